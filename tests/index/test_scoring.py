import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlci.base.errors import InputError
from mlci.codes import streams
from mlci.codes.admissions import as_admissions
from mlci.index import scoring as module
from mlci.index.scoring import score_file
from toys import code_lists, random_model, random_table


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    random_model().save(path)
    return path


@pytest.mark.parametrize("make", [random_model, random_table])
def test_strict_scoring_ignores_unknown_codes_and_needs_half_understood(make, tmp_path):
    model = make()
    lists = [["A000", "A001", "QQQ9"], ["A000", "QQQ9", "QQQ8"], ["A000", "A001"], ["QQQ7"], []]
    admissions = as_admissions(lists, icd_version=10)
    columns = pd.DataFrame(model.columns(admissions, strict=True))
    assert columns["score"].isna().tolist() == [False, True, False, True, True]
    assert (
        columns["high_severity"].isna().tolist()
        == columns["risk_mortality"].isna().tolist()
        == [*(False, True, False, True, True)]
    )
    assert columns["score"][0] == columns["score"][2] == model.score(admissions)[2]
    pd.DataFrame({"admission_id": range(5), "codes": [" ".join(codes) for codes in lists]}).to_csv(
        tmp_path / "a.csv", index=False
    )
    tally = score_file(model, tmp_path / "a.csv", tmp_path / "s.parquet", icd_version=10, strict=True)
    table = pd.read_parquet(tmp_path / "s.parquet")
    assert table["score"].isna().tolist() == [False, True, False, True, True]
    assert (tally.few, tally.empty) == (2, 1)
    assert tally.warnings(strict=True)[-2:] == [
        "in 2 of 5 admissions, fewer than half of the codes are understood: they have no score.",
        "1 of 5 admissions have no code and therefore no score.",
    ]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("long", [False, True])
def test_files_and_lists_have_equal_scores(suffix, long, tmp_path, monkeypatch):
    codes = [each for each in code_lists(60, seed=1) if each]
    table = pa.table(
        {"admission_id": [f"a{i}" for i in range(len(codes))], "codes": codes, "icd_version": [10] * len(codes)}
    )
    if long:
        table = pa.Table.from_pandas(table.to_pandas().explode("codes").rename(columns={"codes": "code"}))
    source, target = tmp_path / "admissions.parquet", tmp_path / f"scores.{suffix}"
    pq.write_table(table, source)
    monkeypatch.setattr(module, "stream_rows", lambda path, **o: streams.stream_rows(path, batch=7, **o))

    model = random_model()
    counts: list[int] = []
    assert score_file(model, source, target, on_batch=counts.append).admissions == len(codes) == counts[-1]
    assert len(counts) > 3
    found = pd.read_parquet(target) if suffix == "parquet" else pd.read_csv(target)
    assert list(found["admission_id"]) == [f"a{i}" for i in range(len(codes))]
    for name, column in model.columns(as_admissions(codes, icd_version=10)).items():
        np.testing.assert_allclose(found[name].to_numpy(float), column.astype(float), rtol=1e-12, err_msg=name)


def test_an_empty_file_gives_a_file_without_rows(tmp_path):
    pq.write_table(
        pa.table({"admission_id": pa.array([], pa.int64()), "codes": pa.array([], pa.list_(pa.string()))}),
        tmp_path / "a.parquet",
    )
    score_file(random_model(), tmp_path / "a.parquet", tmp_path / "s.parquet")
    assert pq.read_table(tmp_path / "s.parquet").num_rows == 0


def test_an_output_of_unknown_kind_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.parquet, \.csv or \.xlsx"):
        score_file(random_model(), tmp_path / "none", tmp_path / "scores.txt")


def test_scoring_loads_nothing_heavy(file, tmp_path):
    pq.write_table(pa.table({"admission_id": [1], "codes": [["A000"]]}), tmp_path / "a.parquet")
    program = (
        "import sys; from mlci.index.model import load_model; from mlci.index.scoring import score_file; "
        f"score_file(load_model({str(file)!r}), {str(tmp_path / 'a.parquet')!r}, {str(tmp_path / 's.csv')!r}); "
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True).stdout.split()
    # pandas is not in this list, since pyarrow imports it if it is installed
    assert not {"torch", "sklearn", "scipy", "duckdb", "ibis", "matplotlib", "rich"} & set(loaded)


@pytest.mark.parametrize("held", [2, 100])  # counted on disk, or in memory
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("kind", ["a{}", "{}", "-{}000000000"])  # text, numbers that are close, and far apart
@pytest.mark.parametrize(
    ("ids", "repeated"), [([1, 2, 3, 4, 5, 6], 0), ([6, 1, 3, 2, 5, 4], 0), ([2, 1, 2, 3, 1, 1], 3)]
)
def test_repeated_identifiers_are_counted(ids, repeated, kind, suffix, held, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "IN_MEMORY", held)
    monkeypatch.setattr(module, "stream_rows", lambda path, **o: streams.stream_rows(path, batch=2, **o))
    named = [kind.format(id) if kind == "a{}" else int(kind.format(id)) for id in ids]
    frame = pd.DataFrame({"admission_id": named, "DX1": "A000", "DX2": "A001"})
    write = frame.to_parquet if suffix == "parquet" else frame.to_csv
    write(tmp_path / f"wide.{suffix}", index=False)
    tally = score_file(random_model(), tmp_path / f"wide.{suffix}", tmp_path / "s.parquet", icd_version=10)
    message = "3 of 6 rows have the identifier of an earlier row: each row counts as an admission of its own."
    assert [text for text in tally.problems() if "earlier row" in text] == ([message] if repeated else [])
    assert pq.read_table(tmp_path / "s.parquet")["admission_id"].to_pylist() == frame["admission_id"].tolist()


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.uint64()])
def test_identifiers_at_the_ends_of_their_type_are_counted(kind, tmp_path):
    least, most = (-128, 127) if kind == pa.int8() else (0, 2**kind.bit_width - 1)
    ids = pa.array([most, least, most, most - 1], kind)
    pq.write_table(pa.table({"admission_id": ids, "codes": [["A000"]] * 4}), tmp_path / "a.parquet")
    tally = score_file(random_model(), tmp_path / "a.parquet", tmp_path / "s.parquet", icd_version=10)
    assert tally.of_file[0].startswith("1 of 4 rows")
