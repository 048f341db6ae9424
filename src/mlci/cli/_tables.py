"""Tables on a terminal that are never cut off: a table that is too wide is printed row by row."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

NAMES = 22  # least width of the column of names, before other columns move to a block of their own


def figure(value: float, low: float, high: float, *, digits: int = 4, sign: str = "", gap: str = " ") -> str:
    """Return a figure with its interval, without the interval if that is NaN, or a dash if the figure is NaN."""
    if value != value:
        return "–"
    interval = "" if low != low else f"{gap}({low:{sign}.3f} to {high:{sign}.3f})"
    return f"{value:{sign}.{digits}f}{interval}"


def p_value(p: float) -> str:
    """Return a p-value as text; a dash if it is NaN."""
    return "< 0.001" if p < 0.001 else "–" if p != p else f"{p:.3f}"


def plain_console(**options: Any) -> "Console":
    """Return a console that prints texts as they are: a hospital may be called [/A], or :fire:."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, **options)


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table, row by row if it is wider than the terminal; the first `left` columns are left-aligned."""
    from rich.table import Table

    console = plain_console()
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [
        max([*(len(line) for line in head.split("\n")), *(_width(row[i]) for row in cells)])
        for i, head in enumerate(heads)
    ]
    if sum(widths) + 3 * len(heads) + 1 <= console.width:
        table = Table(title=title, title_justify="left")
        for place, head in enumerate(heads):
            table.add_column(head, justify="left" if place < left else "right", no_wrap=True)
        for row in cells:
            table.add_row(*row)
        console.print(table)
        return
    console.print(title, style="bold")
    names = [head.replace("\n", " ") for head in heads[left:]]
    indent = max(map(len, names), default=0)
    for row in cells:
        console.print("  ".join(filter(None, row[:left])))
        for name, cell in zip(names, row[left:]):
            if cell:
                console.print(f"  {name.ljust(indent)}  {cell.replace(chr(10), ' ')}", soft_wrap=False)


def show_grid(table) -> None:
    """Print a table of `mlci.base.grids`: the best of a column bold, the second underlined.

    Columns that do not fit are printed in a block below, so that no figure is cut off. A first column of words, which
    say what the figures of its row are, is repeated there.
    """
    from rich.table import Table
    from rich.text import Text

    console, styles = plain_console(), ("", "bold", "underline")
    heads = [head.replace(" (×", "\n(×") for head in table.heads]
    names, blocks = _blocks(table, heads, console.width)
    for place, block in enumerate(blocks):
        shown = Table(title=None if place else table.title, title_justify="left")
        shown.add_column(heads[0], width=names)
        for k in block:
            shown.add_column(heads[k + 1], justify="right", no_wrap=True)
        for section in table.sections:
            shown.add_section()
            if section.heading:
                shown.add_row(Text(section.heading, style="italic"))
            for name, row in section.rows:
                shown.add_row(Text(name), *(Text(row[k].text, styles[row[k].place]) for k in block))
        console.print(shown)
    for note in table.notes:
        console.print(note)


def _blocks(table, heads: Sequence[str], width: int) -> tuple[int, list[list[int]]]:
    """Return the width of the column of names, and the columns of each block."""
    rows = [(name, row) for section in table.sections for name, row in section.rows]
    names = max(_width(text) for text in (heads[0], *(section.heading for section in table.sections), *dict(rows)))
    figures = [
        max(_width(text) for text in (head, *(row[k].text for _, row in rows))) + 3 for k, head in enumerate(heads[1:])
    ]
    room = width - 4 - sum(figures)
    names = min(names, max(room, NAMES))
    said = [0] if all(_is_words(row[0].text) for _, row in rows) else []
    blocks: list[list[int]] = [[]]
    for k, figure in enumerate(figures):
        if set(blocks[-1]) - {*said} and sum(figures[other] for other in blocks[-1]) + figure > width - 4 - names:
            blocks.append([*said])
        blocks[-1].append(k)
    return names, blocks


def _is_words(text: str) -> bool:
    return any(letter.isalpha() for letter in text) and not any(letter in "0123456789" for letter in text)


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))
