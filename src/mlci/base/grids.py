"""Format a table of texts as plain text, Markdown and LaTeX.

Headings, rows and notes are written as people read them (ρ², ×10³, ±). A cell may be marked as the best of its column
or the second best; each form shows these marks in its own way.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mlci.base.files import atomic

BEST, SECOND = 1, 2
GREEK = {"ρ": "rho", "σ": "sigma", "γ": "gamma", "Δ": "Delta", "ε": "varepsilon", "±": "pm", "×": "times", "⊕": "oplus"}
SIGNS = {
    **{letter: f"\\{letter}" for letter in "&_%#$"},
    **{letter: f"$\\{name}$" for letter, name in GREEK.items()},
    **dict(zip("+−–<>⋆", ("{+}", "$-$", "--", "$<$", "$>$", r"$_\star$"))),
}
RAISED, LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
DIGITS = str.maketrans(RAISED + LOWERED, 2 * "0123456789")


@dataclass(frozen=True)
class GridCell:
    """A cell and its rank in its column: 1 best, 2 second, 0 any other."""

    text: str
    place: int = 0


@dataclass(frozen=True)
class RowGroup:
    """Rows under a heading; an empty heading is not shown. A row is a name and cells."""

    heading: str
    rows: tuple[tuple[str, tuple[GridCell, ...]], ...]


@dataclass(frozen=True)
class Grid:
    """A table: the name of its file, its title, the headings of all columns, its sections, and the notes below it."""

    name: str
    title: str
    heads: tuple[str, ...]
    sections: tuple[RowGroup, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def ranked(self) -> bool:
        return any(entry.place for section in self.sections for _, row in section.rows for entry in row)


def grid(name: str, title: str, heads: Iterable[str], rows: Iterable[Iterable[str]], *notes: str) -> Grid:
    """Return a table without sections or ranks.

    Args:
        name: the name of its file.
        title: the title above it.
        heads: the headings of all columns.
        rows: the cells of each row; the first is the name of the row.
        *notes: sentences below the table.

    >>> print(as_markdown(grid("sizes", "Sizes", ["split", "admissions"], [["train", "70"]])))
    **Sizes**
    <BLANKLINE>
    | split | admissions |
    | --- | ---: |
    | train | 70 |
    <BLANKLINE>
    """
    made = tuple((first, tuple(map(GridCell, rest))) for first, *rest in rows)
    return Grid(name, title, tuple(heads), (RowGroup("", made),), notes)


def as_text(table: Grid) -> str:
    """Return a `table` as plain text; * marks the best of a column, + the second.

    >>> print(as_text(grid("sizes", "Sizes", ["split", "admissions"], [["train", "70"]])))
    Sizes
    <BLANKLINE>
    split  admissions
    train          70
    <BLANKLINE>
    """
    marks = {0: " ", BEST: "*", SECOND: "+"} if table.ranked else {0: ""}
    lines: list[list[str]] = [list(table.heads)]
    for section in table.sections:
        lines += [[section.heading]] if section.heading else []
        indent = "  " if section.heading else ""
        lines += [[indent + name, *(cell.text + marks[cell.place] for cell in row)] for name, row in section.rows]
    full = [line for line in lines if len(line) > 1]
    widths = [max(len(line[k]) for line in full) for k in range(len(table.heads))]
    shown = [
        "  ".join([line[0].ljust(widths[0] if line[1:] else 0), *(c.rjust(w) for c, w in zip(line[1:], widths[1:]))])
        for line in lines
    ]
    legend = ["* best, + second."] if table.ranked else []
    return "\n".join([table.title, "", *(line.rstrip() for line in shown), *_below([*legend, *table.notes])])


def as_markdown(table: Grid) -> str:
    """Return a `table` as Markdown, the best of a column bold, the second underlined.

    >>> best = RowGroup("", (("Charlson", (GridCell("0.71", BEST),)),))
    >>> print(as_markdown(Grid("auroc", "AUROC", ("model", "died"), (best,))).splitlines()[-1])
    | Charlson | **0.71** |
    """
    marks = {0: "{}", BEST: "**{}**", SECOND: "<u>{}</u>"}
    lines = [f"**{table.title}**", "", _bar(table.heads), _bar(["---", *["---:"] * (len(table.heads) - 1)])]
    for section in table.sections:
        if section.heading:
            lines.append(_bar([f"*{section.heading}*", *[""] * (len(table.heads) - 1)]))
        lines += [_bar([name, *(marks[cell.place].format(cell.text) for cell in row)]) for name, row in section.rows]
    return "\n".join([*lines, *_below(table.notes)])


def as_latex(table: Grid) -> str:
    """Return a `table` for LaTeX's booktabs, the best of a column bold, the second underlined.

    >>> best = RowGroup("", (("Charlson", (GridCell("0.71", BEST),)),))
    >>> print(as_latex(Grid("auroc", "AUROC", ("model", "died"), (best,))).splitlines()[7])
    Charlson & \\textbf{0.71} \\\\
    """
    marks = {0: "{}", BEST: r"\textbf{{{}}}", SECOND: r"\underline{{{}}}"}
    caption = " ".join([f"{table.title}.", *table.notes])
    lines = [r"\begin{table}", rf"\caption{{{_latex(caption)}}}", r"\centering"]
    lines += [rf"\begin{{tabular}}{{l{'c' * (len(table.heads) - 1)}}}", r"\toprule", _row(map(_latex, table.heads))]
    for section in table.sections:
        lines.append(r"\midrule")
        if section.heading:
            lines.append(rf"\multicolumn{{{len(table.heads)}}}{{l}}{{\textit{{{_latex(section.heading)}}}}} \\")
        lines += [
            _row([_latex(name), *(marks[cell.place].format(_latex(cell.text)) for cell in row)])
            for name, row in section.rows
        ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


FORMS: dict[str, Callable[[Grid], str]] = {"txt": as_text, "md": as_markdown, "tex": as_latex}


def files_of(table: Grid) -> dict[str, str]:
    """Return the texts of a table's three files, by name.

    >>> list(files_of(grid("sizes", "Sizes", ["split", "admissions"], [["train", "70"]])))
    ['sizes.txt', 'sizes.md', 'sizes.tex']
    """
    return {f"{table.name}.{ending}": form(table) for ending, form in FORMS.items()}


def write(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write texts into a folder; each file is written completely or not at all.

    Args:
        folder: the folder.
        files: the text of each file, by name.

    Returns:
        The paths.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     [path.read_text() for path in write(Path(folder), {"sizes.txt": "train 70"})]
    ['train 70']
    """
    for name, text in files.items():
        with atomic(folder / name) as temporary:
            temporary.write_text(text, "utf-8")
    return [folder / name for name in files]


def power(exponent: int) -> str:
    """Return a factor of ten to the `exponent`, as the heading of a column shows it.

    >>> power(3)
    '×10³'
    """
    return "×10" + str(exponent).translate(str.maketrans("0123456789", RAISED))


def _below(notes: Iterable[str]) -> list[str]:
    return ["", *notes, ""] if notes else [""]


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _latex(text: str) -> str:
    """Escape characters that LaTeX reads as commands; join adjacent pieces of mathematics."""
    text = text.translate(str.maketrans(SIGNS))
    for sign, digits in (("^", RAISED), ("_", LOWERED)):
        text = re.sub(f"[{digits}]+", lambda found, sign=sign: f"${sign}{{{found[0].translate(DIGITS)}}}$", text)
    return text.replace("$$", "")
