"""A points card as a PDF: one A4 page of text, in the fonts that every reader brings along."""

from collections.abc import Mapping, Sequence

from fpdf import FPDF
from fpdf.fonts import FontFace

MARGIN, GUTTER = 12, 6  # mm
HIGH, LOW = 5.4, 2.0  # mm of a group's line: at most, at least
ROW = 4.2  # mm of a table's row
RULED = 190  # grey


def draw(
    rule: str, groups: Sequence[tuple[str, str, str]], example: str, tables: Mapping[str, list[list[str]]]
) -> bytes:
    """The page; titles are cut where their line ends, and lines are as high as the page allows."""
    page = FPDF(format="A4")
    page.set_title("Points card")
    page.set_margin(MARGIN)
    page.set_auto_page_break(False)
    page.set_line_width(0.1)
    page.set_draw_color(RULED)
    page.add_page()
    _write(page, "Points card", 16, bold=True)
    _write(page, rule, 9, above=1)
    _groups(page, groups, below=30 + sum(12 + ROW * (len(rows) + 1) for rows in tables.values()))
    _write(page, "Example", 11, bold=True, above=4)
    _write(page, example, 9, above=1)
    for heading, rows in tables.items():
        _write(page, heading, 11, bold=True, above=4)
        _table(page, rows)
    return bytes(page.output())


def _write(page: FPDF, text: str, size: float, *, bold: bool = False, above: float = 0) -> None:
    page.set_font("helvetica", "B" if bold else "", size)
    page.set_y(page.get_y() + above)
    page.multi_cell(0, size * 0.45, _western(text), new_x="LMARGIN", new_y="NEXT")


def _groups(page: FPDF, lines: Sequence[tuple[str, str, str]], *, below: float) -> None:
    """In two columns, with `below` mm left for the rest of the page."""
    width, top, many = (page.epw - GUTTER) / 2, page.get_y() + 2, -(-len(lines) // 2)
    height = max(LOW, min(HIGH, (page.eph + MARGIN - top - below) / many))
    size = min(9.0, 1.9 * height)
    for place, (points, category, title) in enumerate(lines):
        column, row = divmod(place, many)
        page.set_xy(MARGIN + column * (width + GUTTER), top + row * height)
        page.set_font("helvetica", "B", size)
        page.cell(7, height, points, align="R", border="B")
        page.set_font("courier", "", size)
        page.cell(11, height, category, align="C", border="B")
        page.set_font("helvetica", "", size - 1)
        page.cell(width - 18, height, _cut(page, _western(title), width - 20), border="B")
    page.set_y(top + many * height)


def _table(page: FPDF, rows: list[list[str]]) -> None:
    page.set_font("helvetica", "", 8)
    page.set_y(page.get_y() + 1)
    with page.table(
        borders_layout="HORIZONTAL_LINES",
        headings_style=FontFace(emphasis="BOLD"),
        line_height=ROW,
        text_align=("LEFT", *["RIGHT"] * (len(rows[0]) - 1)),
    ) as table:
        for row in rows:
            table.row([_western(text) for text in row])


def _cut(page: FPDF, text: str, width: float) -> str:
    if page.get_string_width(text) <= width:
        return text
    while text and page.get_string_width(text + "...") > width:
        text = text[:-1]
    return text.rstrip() + "..."


def _western(text: str) -> str:
    """What the readers' own fonts can show; any other letter is a question mark."""
    return text.encode("latin-1", "replace").decode("latin-1")
