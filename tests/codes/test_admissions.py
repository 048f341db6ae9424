import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.streams import stream_rows
from toys import streamed

RAW = [["i50.9", " E11.9 "], [], ["I50.9", None, "", "N179"], None, ["038.9"]]
CLEAN = [("I509", "E119"), (), ("I509", "N179"), (), ("0389",)]


def read(batches) -> list[tuple]:
    """(id, (code, version) ...) of each admission, the slow and obvious way."""
    batches = [batches] if isinstance(batches, Admissions) else batches
    return [
        (
            part.ids[i],
            *((part.values[k], int(part.versions[k])) for k in part.indices[part.offsets[i] : part.offsets[i + 1]]),
        )
        for part in batches
        for i in range(len(part))
    ]


def codes_of(batches) -> list[tuple]:
    return [tuple(code for code, _ in codes) for _, *codes in read(batches)]


def test_lists():
    assert codes_of(as_admissions(RAW)) == CLEAN
    assert codes_of(as_admissions([])) == []
    assert codes_of(as_admissions(pd.Series([["I50.9", np.nan]]))) == [("I509",)]
    found = as_admissions(RAW, icd_version=10)
    assert set(found.versions) == {10}
    assert as_admissions(found) is found


def test_frames_of_every_kind_give_the_same():
    wide = {"admission_id": list("abcde"), "codes": RAW, "icd_version": [10, 10, 9, None, 9]}
    expected = [
        ("a", ("I509", 10), ("E119", 10)),
        ("b",),
        ("c", ("I509", 9), ("N179", 9)),
        ("d",),
        ("e", ("0389", 9)),
    ]
    long = [(i, code, version) for i, codes, version in zip(*wide.values()) for code in codes or [None]]
    rows = dict(zip(("admission_id", "code", "icd_version"), map(list, zip(*long))))
    text = wide | {
        "codes": [" ".join(filter(None, codes or [])) for codes in (["i50.9,E119"], [], ["I50.9;N179"], [], ["038.9"])]
    }
    for columns in (wide, rows, text):
        for frame in (pd.DataFrame, pl.DataFrame, pa.table):
            assert read(as_admissions(frame(columns))) == expected, frame
    categories = pd.DataFrame(rows).astype({"code": "category", "admission_id": "category"})
    assert read(as_admissions(categories)) == expected


def test_rows_that_do_not_stand_together_keep_first_appearance():
    frame = pd.DataFrame({"admission_id": [7, 3, 7, 9, 3], "code": ["A", "B", "C", "D", "E"]})
    assert codes_of(as_admissions(frame)) == [("A", "C"), ("B", "E"), ("D",)]


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
    assert read(streamed(folder / "wide.parquet", batch=batch)) == read(as_admissions(table))
    assert read(streamed(folder / "wide.csv", batch=batch)) == read(as_admissions(table))
    for name in ("long.parquet", "long.csv", "long.csv.gz"):
        assert read(streamed(folder / name, batch=batch)) == read(as_admissions(long)), name


def test_identifiers_in_csv_are_numbers_only_if_all_are(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("admission_id,code\n7,I509\n8,0389\n")
    assert [i for i, *_ in read(streamed(file))] == [7, 8]
    file.write_text("admission_id,code\n007,I509\n7,0389\n")
    assert [i for i, *_ in read(streamed(file))] == ["007", "7"]


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
        assert read(shared) == read(plain) == read(as_admissions(pq.read_table(file)))
        assert (shared[0].values is shared[1].values) == (number == 0)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"admission_id": [1], "code": [389]}, "leading zeros"),
        ({"admission_id": [1], "codes": [[38.9]]}, "leading zeros"),
        ({"admission_id": [1], "codes": [389]}, "leading zeros"),
        ({"admission_id": [1], "reason": ["I509"]}, "lacks the column codes; .* found are admission_id, reason"),
        ({"number": [1], "code": ["I509"]}, "lacks the column admission_id; --id names"),
        ({"admission_id": [1, None], "code": ["I509", "I509"]}, "admission_id, row 2: is empty"),
        (
            {"admission_id": [1, 1], "code": ["A", "B"], "icd_version": [10, 11]},
            "icd_version, row 2: a whole number is no ICD version",
        ),
        (
            {"admission_id": [1], "codes": [["A"]], "icd_version": ["ten"]},
            "row 1: text of 3 characters is no ICD version",
        ),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(table, words, tmp_path):
    with pytest.raises(InputError, match=words):
        as_admissions(pa.table(table))
    pq.write_table(pa.table(table), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"bad\.parquet: .*" + words):
        list(streamed(tmp_path / "bad.parquet", batch=1))


def test_bad_lists_and_files(tmp_path):
    with pytest.raises(InputError, match="needs a list of codes"):
        as_admissions(["I509", "N179"])
    with pytest.raises(InputError, match=r"each admission needs a list of texts.*leading zeros"):
        as_admissions([["I509", 389]])
    with pytest.raises(InputError, match="ICD version 11 is not known"):
        as_admissions([["I509"]], icd_version=11)
    (tmp_path / "a.parquet").write_text("not parquet")
    with pytest.raises(InputError, match="neither Parquet"):
        list(streamed(tmp_path / "a.parquet"))
    (tmp_path / "a.csv").write_text("admission_id,code\n1,I509\n1,2,3\n")
    with pytest.raises(InputError, match="is not a CSV table"):
        list(streamed(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(InputError, match="is not a CSV table"):
        list(streamed(tmp_path / "a.csv"))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"admission_id,code\n1,I509\n"))
    assert codes_of(streamed(tmp_path / "a.csv.gz")) == [("I509",)]


def test_icd_version_words_of_other_systems():
    table = pa.table(
        {"admission_id": [1] * 5, "code": list("ABCDE"), "icd_version": ["ICD9CM", "icd-10", "10", "09", None]}
    )
    assert read(as_admissions(table, icd_version=9)) == [(1, ("A", 9), ("B", 10), ("C", 10), ("D", 9), ("E", 9))]
