"""Display small tables: as plain text in a terminal, as HTML in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape


def text_table(rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a table as text, with columns of equal width, the first aligned to the left.

    Args:
        rows: the cells of each row.
        head: names of the columns, if any.

    >>> print(text_table([["died", "12"], ["long_stay", "340"]], ["outcome", "n"]))
    outcome      n
    died        12
    long_stay  340
    """
    lines = [[str(cell) for cell in row] for row in ([head] if head else []) + [list(row) for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )


def html_table(rows: Iterable[Sequence[object]], head: Sequence[str] = (), caption: str = "") -> str:
    """Return a table as HTML for a notebook, escaped.

    Args:
        rows: the cells of each row.
        head: names of the columns, if any.
        caption: the text above the table.

    >>> html_table([["a < b", 1]], ["", "n"])
    '<table><thead><tr><th></th><th>n</th></tr></thead><tbody><tr><td>a &lt; b</td><td>1</td></tr></tbody></table>'
    """
    top = f"<thead><tr>{''.join(f'<th>{escape(str(cell))}</th>' for cell in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>"


class Shown(ABC):
    """A result that is displayed as a table, in a terminal and in a notebook."""

    @abstractmethod
    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the rows of the table."""

    def __repr__(self) -> str:
        heads, rows = self.cells()
        return text_table(rows, heads)

    def _repr_html_(self) -> str:
        heads, rows = self.cells()
        return html_table(rows, heads)
