"""A card as a PDF: one A4 page, in fonts that every PDF reader has.

A long card has a second page, with the example, comparison, outcomes, model card of the index, and limits. If not even
the groups fit on one page, they go on.
"""

from collections.abc import Sequence

from fpdf import FPDF
from fpdf.fonts import FontFace

from mlci.base.names import label
from mlci.showing.card import _words as say
from mlci.showing.card._compute import Card

MARGIN, GUTTER = 12, 6  # mm
SIZES = (9.0, 8.0, 7.0, 6.5)  # pt of a group's line
RULED = 190  # grey


def draw(card: Card) -> bytes:
    """Return one page if everything fits on it, in the largest font that fits, else two or more; nothing is cut."""
    for size in SIZES:
        page = _draw(card, size, sides=1)
        if page.get_y() <= page.h - MARGIN:
            return bytes(page.output())
    return bytes(_draw(card, SIZES[-1], sides=2).output())


def _draw(card: Card, size: float, *, sides: int) -> FPDF:
    page = FPDF(format="A4")
    page.set_title(_western(card.name))
    page.set_margin(MARGIN)
    page.set_auto_page_break(sides == 2, MARGIN)
    page.set_line_width(0.1)
    page.set_draw_color(RULED)
    page.add_page()
    _write(page, card.name, 16, bold=True)
    _write(page, say.rule(card), 9, above=1)
    _write(page, say.about(card), 8, above=0.5)
    _groups(
        page, [(str(points), "", words) for words, points in say.ages(card) + say.sexes(card)] + say.lines(card), size
    )
    _write(page, f"High severity: {card.cutoff} points or more.", 10, bold=True, above=2)
    heading = f"Outcomes by points ({card.split} split, 95% intervals; few: under {say.CELL})"
    _write(page, heading, 10, bold=True, above=1)
    _table(page, say.meaning(card), widths=(2, 2, *[4] * len(card.outcomes)))
    if sides == 2 and page.page == 1:
        page.add_page()
    if card.example:
        _write(page, "Example", 10, bold=True, above=2)
        _write(page, say.example(card), 8, above=0.5)
    _write(page, f"Comparison with other indices ({card.split} split): AUROC with 95% interval", 10, bold=True, above=2)
    loss = say.loss(card)
    _table(page, loss, widths=(2, *[3] * (len(loss[0]) - 1)))
    _write(page, "Outcomes", 10, bold=True, above=2)
    for name, rule in card.outcomes.items():
        _write(page, f"{label(name)}: {rule}" if rule else label(name), 8, above=0.5)
    _write(page, "The index behind the points", 10, bold=True, above=2)
    _write(page, ". ".join(f"{name}: {words}" for name, words in card.facts.items()) + ".", 8, above=0.5)
    _write(page, "Limits", 10, bold=True, above=2)
    for line in say.limits(card):
        _write(page, line, 8, above=0.5)
    return page


def _write(page: FPDF, text: str, size: float, *, bold: bool = False, above: float = 0) -> None:
    page.set_font("helvetica", "B" if bold else "", size)
    page.set_y(page.get_y() + above)
    page.multi_cell(0, size * 0.45, _western(text), new_x="LMARGIN", new_y="NEXT", align="L")


def _groups(page: FPDF, lines: Sequence[tuple[str, str, str]], size: float) -> None:
    """Lay the groups out in two columns of about the same height, on several pages if they must be."""
    width = (page.epw - GUTTER) / 2
    heights = [_height(page, title, width - 18, size) for _, _, title in lines]
    while lines:
        top = page.get_y() + 2
        room, fitting = page.h - MARGIN - top, len(lines)
        while page.auto_page_break and fitting > 1 and max(_columns(heights[:fitting])) > room:
            fitting -= 1
        _two_columns(page, lines[:fitting], heights[:fitting], size, top)
        lines, heights = lines[fitting:], heights[fitting:]
        if lines:
            page.add_page()


def _turn(heights: Sequence[float]) -> int:
    """Return how many lines the left of two columns of about the same height has."""
    return next(k for k in range(len(heights) + 1) if sum(heights[:k]) >= sum(heights) / 2)


def _columns(heights: Sequence[float]) -> tuple[float, float]:
    """Return the heights of both columns."""
    turn = _turn(heights)
    return sum(heights[:turn]), sum(heights[turn:])


def _two_columns(
    page: FPDF, lines: Sequence[tuple[str, str, str]], heights: Sequence[float], size: float, top: float
) -> None:
    width, turn = (page.epw - GUTTER) / 2, _turn(heights)
    for start, end, left in ((0, turn, MARGIN), (turn, len(lines), MARGIN + width + GUTTER)):
        y = top
        for (points, category, title), height in zip(lines[start:end], heights[start:end]):
            page.set_xy(left, y)
            page.set_font("helvetica", "B", size)
            page.cell(7, size * 0.5, points, align="R")
            page.set_font("courier", "", size)
            page.cell(11, size * 0.5, category, align="C")
            page.set_font("helvetica", "", size)
            page.multi_cell(width - 18, size * 0.5, _western(title), align="L")
            y += height
            page.line(left, y - 0.2, left + width, y - 0.2)
    page.set_y(top + max(_columns(heights)))


def _height(page: FPDF, title: str, width: float, size: float) -> float:
    page.set_font("helvetica", "", size)
    rows = page.multi_cell(width, size * 0.5, _western(title), dry_run=True, output="LINES", align="L")
    assert isinstance(rows, list)
    return size * 0.5 * max(len(rows), 1) + 0.6


def _table(page: FPDF, rows: list[list[str]], *, widths: tuple[int, ...]) -> None:
    page.set_font("helvetica", "", 7.5)
    page.set_y(page.get_y() + 1)
    with page.table(
        borders_layout="HORIZONTAL_LINES",
        headings_style=FontFace(emphasis="BOLD"),
        line_height=4,
        text_align=("LEFT", *["RIGHT"] * (len(rows[0]) - 1)),
        col_widths=widths,
    ) as table:
        for row in rows:
            table.row([_western(text) for text in row])


def _western(text: str) -> str:
    """Return text that the built-in fonts can show; any other character becomes a question mark."""
    plain = text.translate(str.maketrans({"“": '"', "”": '"', "’": "'", "–": "-"}))
    return plain.encode("latin-1", "replace").decode("latin-1")
