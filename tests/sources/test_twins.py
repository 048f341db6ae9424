import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.sources._twins import Twins, repeated, twins

WHOLE = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.one_of(WHOLE, st.none())))
def test_repeats_are_counted_whatever_the_numbers(ids):
    column = pa.chunked_array([ids[: len(ids) // 2], ids[len(ids) // 2 :]], pa.int64())
    assert repeated(column) == len(ids) - pc.count_distinct(column, mode="all").as_py()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.uint64(), pa.string()])
def test_the_first_repeat_is_named(kind):
    ids = pa.chunked_array([[3, 1, 2, 1, 3, 1]]).cast(kind)
    assert twins(ids) == Twins(first=1, later=3, many=3)
    assert twins(ids[:3]) is None


def test_numbers_beyond_the_signed_range_are_distinguished():
    assert repeated(pa.chunked_array([pa.array([2**64 - 1, 2**64 - 2, 2**64 - 1], pa.uint64())])) == 1
