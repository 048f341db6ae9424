"""A misplaced quotation mark raises an error with its line; no parser may lose rows because of it."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.base import quotes
from mlci.base.errors import InputError
from mlci.base.quotes import check_quotes


def check(text: str, delimiter: str = ",") -> None:
    check_quotes(io.BytesIO(text.encode()), delimiter, "a.csv")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,codes\n1,I10\n2,"E11\n3,N17\n4,I10\n', 3),  # swallows the rest
        ('id,codes\n1,"I10\n2,"E11"\n3,N17\n', 3),  # swallows one row, then text after the closing mark
        ('id,codes\n1,I10\n2,E"11\n', 3),
        ('id,codes\n1,"I10"x\n', 2),
        ('id,codes\n"1,I10\n', 2),
        ('id,codes\n1,"""\n', 2),
    ],
)
def test_a_stray_mark_is_named_by_its_line(text, line):
    with pytest.raises(InputError, match=rf"^a\.csv: line {line}: "):
        check(text)


@given(
    st.lists(st.lists(st.text('ab,;"\n\r', max_size=6), min_size=2, max_size=3), max_size=6),
    st.sampled_from(",;"),
    st.integers(1, 9),
)
def test_what_a_writer_quotes_passes_whatever_the_block(rows, delimiter, block):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    before, quotes.BLOCK = quotes.BLOCK, block
    try:
        check("\ufeff" + text.getvalue(), delimiter)
    finally:
        quotes.BLOCK = before


@given(st.integers(1, 9))
def test_the_line_is_right_whatever_the_block(block):
    before, quotes.BLOCK = quotes.BLOCK, block
    try:
        with pytest.raises(InputError, match="line 4:"):
            check('id,codes\n1,"a\nb"\n2,E"1\n')
    finally:
        quotes.BLOCK = before


def test_very_many_marks_in_a_row_are_refused_at_once():
    marks = '"' * (quotes.BLOCK + 2 * quotes.RUN)
    with pytest.raises(InputError, match=r"^a\.csv: line 2: has more than 65,536 quotation marks in a row\.$"):
        check(f"id,codes\n1,{marks}\n")
    few = '"' * (quotes.RUN - 2)
    check(f"id,codes\n1,{few}\n" * (2 * quotes.BLOCK // len(few)))
