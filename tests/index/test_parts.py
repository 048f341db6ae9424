"""Files in parts: scored as one file, and published together or not at all."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlci.base.errors import InputError
from mlci.index import parts as module
from mlci.index.parts import parts_of, publishing, score_part
from mlci.index.scoring import score_file
from toys import code_lists, random_model


def admissions(first: int, n: int) -> pa.Table:
    lists = code_lists(first + n)[first:]
    return pa.table({"admission_id": range(first, first + n), "codes": lists, "icd_version": [10] * n})


@pytest.fixture
def folder(tmp_path):
    """Write two files, one of them with three row groups, and hidden files that a reader skips."""
    source = tmp_path / "admissions"
    (source / "2024").mkdir(parents=True)
    pq.write_table(admissions(0, 25), source / "2024" / "a.parquet", row_group_size=10)
    pq.write_table(admissions(25, 10), source / "b.parquet")
    (source / "_SUCCESS").touch()
    (source / ".b.parquet.crc").write_text("...")
    return source


def test_parts_are_scored_as_one_file_is(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART", 15)  # two row groups
    model, parts = random_model(), parts_of(str(folder))
    assert [(Path(part.path).name, part.groups) for part in parts] == [
        ("a.parquet", (0, 1)),
        ("a.parquet", (2,)),
        ("b.parquet", (0,)),
    ]
    with publishing(str(tmp_path / "scores")) as target:
        tallies = [score_part(model, part, target) for part in reversed(parts)]
        score_part(model, parts[0], target)  # a scheduler may run a part again
    pq.write_table(admissions(0, 35), tmp_path / "whole.parquet")
    tally = score_file(model, tmp_path / "whole.parquet", tmp_path / "whole_scores.parquet")
    assert sum(part.admissions for part in tallies) == tally.admissions == 35
    assert pq.read_table(tmp_path / "scores").equals(pq.read_table(tmp_path / "whole_scores.parquet"))
    assert sorted(path.name for path in (tmp_path / "scores").iterdir())[0] == "_SUCCESS"


def test_a_uri_is_read_like_a_path(folder, tmp_path):
    """Output for another file system is written here first, and then copied."""
    (part, *_), remote = parts_of(folder.as_uri()), pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
    with publishing(str(tmp_path / "scores")) as target:
        score_part(random_model(), part, module.PartFolder("scores/_temporary", remote))
        assert isinstance(target.filesystem, pa.fs.LocalFileSystem)
    assert pq.read_table(tmp_path / "scores").num_rows == 25


def test_a_failure_leaves_no_output(tmp_path):
    with pytest.raises(FileNotFoundError), publishing(str(tmp_path / "scores")) as target:
        Path(target.path, "part-00000.parquet").write_bytes(Path(tmp_path, "absent").read_bytes())
    assert list(tmp_path.iterdir()) == []


def test_existing_output_is_not_overwritten(folder):
    for target in (folder, folder / "b.parquet"):
        with pytest.raises(InputError, match="exists already; name a folder"), publishing(str(target)):
            pass


def test_missing_files_and_rows_per_code_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match="contains no Parquet file"):
        parts_of(str(tmp_path / "absent"))
    rows = {"admission_id": [1, 1, 2], "code": ["A000", "A001", "A000"], "icd_version": [10] * 3}
    pq.write_table(pa.table(rows), folder / "c.parquet")
    with pytest.raises(InputError, match=r"c\.parquet: has one row per code"):
        parts_of(str(folder))
    pq.write_table(pa.table({"admission_id": [1, 1, 2], "icd10": ["A000", "A001", "A000"]}), folder / "c.parquet")
    with pytest.raises(InputError, match=r"c\.parquet: has one row per code"):
        parts_of(str(folder))


def test_a_file_without_rows_gives_an_empty_result(tmp_path):
    pq.write_table(admissions(0, 3)[:0], tmp_path / "a.parquet")
    with publishing(str(tmp_path / "scores")) as target:
        for part in parts_of(str(tmp_path / "a.parquet")):
            assert score_part(random_model(), part, target).admissions == 0
    assert pq.read_table(tmp_path / "scores").num_rows == 0
