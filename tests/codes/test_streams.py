"""Files of admissions, some at a time, give what the same rows give in memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.codes.admissions import as_admissions
from mlci.codes.streams import stream_rows
from toys import spelled_out, streamed

ADMISSIONS = st.lists(
    st.lists(st.sampled_from(["I50.9", "e11.9", "038.9", "", None, " N17 "]), max_size=5), max_size=12
)


@settings(max_examples=15, deadline=None)
@given(ADMISSIONS, st.integers(1, 7), st.randoms(use_true_random=False), st.booleans())
def test_streaming_equals_memory_for_every_file_and_batch_size(tmp_path_factory, lists, batch, random, sort):
    folder = tmp_path_factory.mktemp("files")
    ids = random.sample(range(100), len(lists))
    ids = sorted(ids) if sort else ids
    wide = pd.DataFrame({"admission_id": np.array(ids, dtype=np.int64), "codes": lists, "icd_version": 9})
    table = pa.table(
        {
            "admission_id": pa.array(ids, pa.int64()),
            "codes": pa.array(lists, pa.list_(pa.string())),
            "icd_version": pa.array([9] * len(ids)),
        }
    )
    long = [(i, code, random.choice([9, 10])) for i, codes in zip(ids, lists) for code in codes or [None]]
    if not sort:
        random.shuffle(long)
    long = pd.DataFrame(long, columns=["admission_id", "code", "icd_version"]).astype({"admission_id": "int64"})
    pq.write_table(table, folder / "wide.parquet", row_group_size=3)
    long = long.astype({"code": "str"})
    long.to_parquet(folder / "long.parquet", row_group_size=4)
    long.to_csv(folder / "long.csv", index=False)
    long.to_csv(folder / "long.csv.gz", index=False, sep=";")
    wide.assign(codes=[" | ".join(code or "" for code in codes) for codes in lists]).to_csv(
        folder / "wide.csv", index=False
    )
    assert spelled_out(streamed(folder / "wide.parquet", batch=batch)) == spelled_out(as_admissions(table))
    assert spelled_out(streamed(folder / "wide.csv", batch=batch)) == spelled_out(as_admissions(table))
    for name in ("long.parquet", "long.csv", "long.csv.gz"):
        assert spelled_out(streamed(folder / name, batch=batch)) == spelled_out(as_admissions(long)), name


def test_identifiers_in_csv_are_numbers_only_if_all_are(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("admission_id,code\n7,I509\n8,0389\n")
    assert [i for i, *_ in spelled_out(streamed(file))] == [7, 8]
    file.write_text("admission_id,code\n007,I509\n7,0389\n")
    assert [i for i, *_ in spelled_out(streamed(file))] == ["007", "7"]


def test_carried_columns_stay_beside_their_admissions(tmp_path):
    table = pa.table({"admission_id": [1, 2, 3], "codes": [["A"], [], ["B"]], "split": ["train", "test", "train"]})
    pq.write_table(table, tmp_path / "c.parquet")
    parts = list(stream_rows(tmp_path / "c.parquet", carry=("split", "age"), batch=2))
    assert [carried["split"].to_pylist() for _, carried in parts] == [["train", "test"], ["train"]]


def test_batches_may_share_the_files_dictionary(tmp_path):
    table = pa.table({"admission_id": [1, 2, 3, 4], "codes": [["b.1", "A"], None, ["c", None, " "], ["a", "B1"]]})
    versions = ([10] * 4, [10, 10, 10, 9])
    for number, column in enumerate(versions):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(table.append_column("icd_version", pa.array(column)), file)
        options = {"batch": 2, "icd_version": 10}
        plain, shared = ([part for part, _ in stream_rows(file, **options, unused=u)] for u in (False, True))
        assert spelled_out(shared) == spelled_out(plain) == spelled_out(as_admissions(pq.read_table(file)))
        assert (shared[0].values is shared[1].values) == (number == 0)
