"""A table as plain text, Markdown and LaTeX."""

from mlci.base import grids
from mlci.base.grids import Grid, GridCell, RowGroup

RANKED = Grid(
    name="table1",
    title="Distance correlation & more",
    heads=("model", "long_stay (×10¹⁰)", "ρ⋆²"),
    sections=(
        RowGroup("Indices", (("Charlson", (GridCell("1.00 ± 0.10", 1), GridCell("5%"))),)),
        RowGroup("", (("A ⊕ B", (GridCell("0.90", 2), GridCell("−1"))),)),
    ),
    notes=("Trees: skipped.",),
)


def test_text_is_aligned_and_marks_the_best():
    lines = grids.as_text(RANKED).splitlines()
    table = lines[2:6]
    assert len({len(line) for line in table if "Indices" not in line}) <= 2  # trailing blanks alone
    assert "1.00 ± 0.10*" in table[2]
    assert "0.90+" in table[3]
    assert lines[-2:] == ["* best, + second.", "Trees: skipped."]


def test_markdown_has_one_bar_more_than_columns_in_every_row():
    lines = [line for line in grids.as_markdown(RANKED).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {4}
    assert "**1.00 ± 0.10**" in lines[3]
    assert "<u>0.90</u>" in lines[4]


def test_latex_escapes_and_joins_mathematics():
    text = grids.as_latex(RANKED)
    assert r"Distance correlation \& more. Trees: skipped." in text
    assert r"long\_stay ($\times$10$^{10}$) & $\rho_\star^{2}$ \\" in text
    assert r"\textbf{1.00 $\pm$ 0.10} & 5\% \\" in text
    assert r"A $\oplus$ B & \underline{0.90} & $-$1 \\" in text


def test_files(tmp_path):
    written = grids.write(tmp_path, grids.files_of(RANKED))
    assert [path.name for path in written] == ["table1.txt", "table1.md", "table1.tex"]
    assert written[0].read_text() == grids.as_text(RANKED)
