"""Tables on a terminal that are never cut: side by side where they fit, else one row per block."""

from collections.abc import Sequence


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table whose first `left` columns are words; one that is wider than the terminal comes row by row."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
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
            console.print(f"  {name.ljust(indent)}  {cell.replace(chr(10), ' ')}", soft_wrap=False)


def show_grid(table) -> None:
    """Print a table of `mlci.base.grids`: the best of a column bold, the second underlined."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, styles = Console(highlight=False), ("", "bold", "underline")
    shown = Table(title=table.title, title_justify="left")
    for place, head in enumerate(table.heads):
        shown.add_column(head.replace(" (×", "\n(×"), justify="right" if place else "left")
    for section in table.sections:
        shown.add_section()
        if section.heading:
            shown.add_row(Text(section.heading, style="italic"))
        for name, row in section.rows:
            shown.add_row(Text(name), *(Text(cell.text, styles[cell.place]) for cell in row))
    console.print(shown)
    for note in table.notes:
        console.print(note)


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))
