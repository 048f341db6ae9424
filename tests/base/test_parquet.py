"""Parquet files of unknown origin: bombs, repeated columns, flipped bits."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlci.base.errors import InputError
from mlci.base.parquet import open_parquet, read_parquet, write_parquet


def test_a_small_file_that_holds_a_huge_cell_is_refused_unread(tmp_path):
    pq.write_table(pa.table({"id": [1], "codes": [["A" * 40_000_000]]}), tmp_path / "a", compression="zstd")
    assert (tmp_path / "a").stat().st_size < 20_000
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(InputError, match=r"column codes\.list\.element: holds cells of more than 1,000 characters"):
        open_parquet(tmp_path / "a")
    assert pa.default_memory_pool().bytes_allocated() - before < 1_000_000


def test_a_column_twice_is_refused(tmp_path):
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "a")
    with pytest.raises(InputError, match="has the column a twice"):
        open_parquet(tmp_path / "a")


def test_a_flipped_bit_in_a_page_raises_an_error(tmp_path):
    path, numbers = tmp_path / "a", np.random.default_rng(0).normal(size=5000)
    write_parquet(pa.table({"x": numbers}), path, compression="none", use_dictionary=False)
    whole = path.read_bytes()
    assert read_parquet(path)["x"].to_numpy().tolist() == numbers.tolist()
    for place in np.random.default_rng(1).integers(200, 40_000, 40).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="is not a Parquet file that can be read"):
            read_parquet(path)
