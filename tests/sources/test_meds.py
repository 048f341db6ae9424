"""The MIMIC-IV demo as MEDS events is the cohort of `mimic4`; splits are kept; predictions fit meds-evaluation."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import meds_folder
import mlci
from mlci.base.errors import InputError
from mlci.cli import cli
from mlci.sources.meds import SPLITS
from toys import random_model


@pytest.fixture(scope="module")
def theirs(demos):
    return mlci.build_cohort("mimic4", demos / "mimic4_demo")


@pytest.mark.parametrize("hadm", [True, False])
def test_the_demo_as_meds_is_the_demo(demos, tmp_path, theirs, hadm):
    ours = mlci.build_cohort("meds", meds_folder.write(demos / "mimic4_demo", tmp_path, hadm=hadm))
    assert len(ours) == len(theirs) == 123
    for name in theirs.outcomes:
        assert ours.labels(name).sum() == theirs.labels(name).sum(), name
    if hadm:
        for name in ("admission_id", "subject_id", "codes", "split", "sex", *theirs.outcomes):
            assert ours.table[name].equals(theirs.table[name]), name
        assert [(step.removed, step.left) for step in ours.attrition] == [(0, 275), (0, 275), (152, 123)]


def test_splits_and_predictions(demos, tmp_path, theirs):
    people = sorted(set(theirs.column("subject_id").tolist()))
    everyone = {person: ["train", "tuning", "held_out"][place % 3] for place, person in enumerate(people)}
    folder = meds_folder.write(demos / "mimic4_demo", tmp_path / "meds", splits=everyone)
    words = ["cohort", "meds", str(folder), "-o", str(tmp_path / "c.parquet"), "-q"]
    assert CliRunner().invoke(cli, words, catch_exceptions=False).exit_code == 0
    cohort = mlci.read_cohort(tmp_path / "c.parquet")
    assert cohort.column("split").tolist() == [SPLITS[everyone[person]] for person in cohort.column("subject_id")]
    random_model().save(tmp_path / "m.safetensors")
    score = [
        "score",
        str(tmp_path / "m.safetensors"),
        str(tmp_path / "c.parquet"),
        "-q",
        "-o",
        str(tmp_path / "p.parquet"),
    ]
    assert CliRunner().invoke(cli, [*score, "--meds", "mortality"], catch_exceptions=False).exit_code == 0
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.remove_metadata() == pa.schema(
        [
            ("subject_id", pa.int64()),
            ("prediction_time", pa.timestamp("us")),
            ("boolean_value", pa.bool_()),
            ("predicted_boolean_value", pa.bool_()),
            ("predicted_boolean_probability", pa.float64()),
        ]
    )
    assert len(table) == 123
    assert pa.compute.sum(table["boolean_value"]).as_py() == 9
    again = CliRunner().invoke(cli, [*score, "--meds", "death"])
    assert "has no outcome 'death'" in str(again.exception)
    theirs.write(tmp_path / "other.parquet")
    score[2] = str(tmp_path / "other.parquet")
    assert "lacks the column prediction_time" in str(CliRunner().invoke(cli, [*score, "--meds", "mortality"]).exception)


def test_a_folder_without_meds_raises_a_clear_error(demos, tmp_path):
    with pytest.raises(mlci.InputError, match="has no data"):
        mlci.build_cohort("meds", tmp_path)
    folder = meds_folder.write(demos / "mimic4_demo", tmp_path / "meds", splits={1: "train"})
    with pytest.raises(mlci.InputError, match="123 admissions have no split"):
        mlci.build_cohort("meds", folder)
    with pytest.raises(mlci.InputError, match="no event begins with STAY; --event admission"):
        mlci.build_cohort("meds", folder, prefixes={"admission": "STAY"})
    with pytest.raises(mlci.InputError, match="stay is not a kind of event; allowed are admission"):
        mlci.build_cohort("meds", folder, prefixes={"stay": "STAY"})
    pq.write_table(pa.table({"subject_id": [1], "code": ["x"]}), tmp_path / "meds" / "data" / "1.parquet")
    (tmp_path / "meds" / "data" / "train" / "0.parquet").unlink()
    with pytest.raises(mlci.InputError, match="lack the column time"):
        mlci.build_cohort("meds", folder)


def test_a_flipped_bit_in_a_page_with_a_checksum_is_refused(demos, tmp_path):
    folder = meds_folder.write(demos / "mimic4_demo", tmp_path)
    file = folder / "data" / "train" / "0.parquet"
    whole = pq.read_table(file)
    said = {"compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    pq.write_table(whole, file, **said)
    assert len(mlci.build_cohort("meds", folder)) == 123
    content = bytearray(file.read_bytes())
    content[content.index(b"DIAGNOSIS//ICD//10//") + 20] ^= 1  # another code, which no other part of the file shows
    file.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        mlci.build_cohort("meds", folder)
