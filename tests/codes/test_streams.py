"""Files that are read in batches give the same admissions as their rows in memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.base.errors import InputError
from mlci.codes.admissions import as_admissions
from mlci.codes.streams import stream_rows
from mlci.cohort import Cohort
from toys import as_tuples, streamed

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
    assert as_tuples(streamed(folder / "wide.parquet", batch=batch)) == as_tuples(as_admissions(table))
    assert as_tuples(streamed(folder / "wide.csv", batch=batch)) == as_tuples(as_admissions(table))
    for name in ("long.parquet", "long.csv", "long.csv.gz"):
        assert as_tuples(streamed(folder / name, batch=batch)) == as_tuples(as_admissions(long)), name


def test_identifiers_in_csv_are_numbers_only_if_all_are(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("admission_id,code\n7,I509\n8,0389\n")
    assert [i for i, *_ in as_tuples(streamed(file))] == [7, 8]
    file.write_text("admission_id,code\n007,I509\n7,0389\n")
    assert [i for i, *_ in as_tuples(streamed(file))] == ["007", "7"]


def test_carried_columns_stay_with_their_admissions(tmp_path):
    table = pa.table({"admission_id": [1, 2, 3], "codes": [["A"], [], ["B"]], "split": ["train", "test", "train"]})
    pq.write_table(table, tmp_path / "c.parquet")
    parts = list(stream_rows(tmp_path / "c.parquet", carry=("split", "age"), batch=2))
    assert [carried["split"].to_pylist() for _, carried in parts] == [["train", "test"], ["train"]]


def test_rows_of_an_admission_may_lack_the_same_number(tmp_path):
    missing = [float("nan"), float("nan"), None, 70.0]
    table = pa.table({"visit_id": [1, 1, 1, 2], "code": list("ABCD"), "age": pa.array(missing, from_pandas=False)})
    pq.write_table(table, tmp_path / "long.parquet")
    parts = [carried["age"] for _, carried in stream_rows(tmp_path / "long.parquet", carry=["age"])]
    assert [len(ages) for ages in parts] == [1, 1]
    assert parts[1].to_pylist() == [70]
    pq.write_table(table.set_column(2, "age", pa.array([missing[0], 60.0, 60.0, 70.0])), tmp_path / "long.parquet")
    with pytest.raises(InputError, match="column age, row 2: differs"):
        list(stream_rows(tmp_path / "long.parquet", carry=["age"]))


def test_batches_may_share_the_files_dictionary(tmp_path):
    table = pa.table({"admission_id": [1, 2, 3, 4], "codes": [["b.1", "A"], None, ["c", None, " "], ["a", "B1"]]})
    versions = ([10] * 4, [10, 10, 10, 9])
    for number, column in enumerate(versions):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(table.append_column("icd_version", pa.array(column)), file)
        options = {"batch": 2, "icd_version": 10}
        plain, shared = ([part for part, _ in stream_rows(file, **options, unused=u)] for u in (False, True))
        assert as_tuples(shared) == as_tuples(plain) == as_tuples(as_admissions(pq.read_table(file)))
        assert (shared[0].values is shared[1].values) == (number == 0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("visit_id,codes,icd_version\n7,I10,10\n,,\n\n8,I10,x\n", "column icd_version, row 5:"),
        ("visit_id,DX1,DX2,POA1,POA2\n7,I10,,Y,\n,,,,\n8,I10,,Q,\n", "column POA1, row 4:"),
        ("visit_id,code,icd_version\n8,I10,10\n,,\n7,I10,10\n8,I10,x\n", "column icd_version, row 5:"),  # sorted
        ("visit_id,code\n8,I10\n,\n,I10\n", "column visit_id, row 4: is empty"),
        ("visit_id,codes\n8,I10\n,\n,I10\n", "column visit_id, row 4: is empty"),
    ],
)
def test_messages_name_the_row_of_the_file_below_empty_rows(rows, message, tmp_path):
    (tmp_path / "a.csv").write_text(rows)
    for batch in (1, 100):
        with pytest.raises(InputError, match=message):
            list(stream_rows(tmp_path / "a.csv", icd_version=10, poa="any", batch=batch))


@pytest.mark.parametrize("words", [["score", "us2010"], ["explain", "us2010"], ["indices"], ["cohort", "file"]])
@pytest.mark.parametrize("rows", ["DX1,DX2,died\n7,I10,,1\n,,,\n8,I50.9,I10,0\n", "code,died\n7,I10,1\n,,\n8,I10,0\n"])
def test_every_command_reports_empty_rows(words, rows, mlci_cli, tmp_path):
    (tmp_path / "a.csv").write_text(f"visit_id,{rows}")
    done = mlci_cli(*words, tmp_path / "a.csv", "-o", tmp_path / "out.parquet", "--icd-version", "10")
    assert "row 3 is empty and left out." in done.stdout + done.stderr
    assert pq.read_table(tmp_path / "out.parquet")["admission_id"].unique().to_pylist() == [7, 8]


@pytest.mark.parametrize("column", ["codes", "icd10", "code"])
@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (pa.nulls(2), "column visit_id, row 1: is empty"),
        (pa.array([{"a": 1}, {"a": 2}]), "column visit_id: holds lists or structs"),
        (pa.array([[1], [2]]), "column visit_id: holds lists or structs"),
    ],
)
def test_identifiers_that_are_no_single_value_are_refused(ids, words, column, tmp_path):
    table = pa.table({"visit_id": ids, column: ["I50.9", "E11.9"], "died": [1, 0]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f"the frame: {words}"):
        as_admissions(table, icd_version=10)
    with pytest.raises(InputError, match=words):
        list(stream_rows(tmp_path / "a.parquet", icd_version=10, on_doubt=print))
    with pytest.raises(InputError, match=words):
        Cohort.from_frame(table, icd_version=10)
