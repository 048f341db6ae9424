"""The MIMIC-IV demo as MEDS events is the cohort of `mimic4`; splits are kept; predictions fit meds-evaluation."""

import pandas as pd
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


def test_a_look_back_on_meds_is_that_on_mimic(demos, tmp_path):
    folder = meds_folder.write(demos / "mimic4_demo", tmp_path)
    ours, theirs = (
        mlci.build_cohort(source, place, look_back=365, wash_out=True)
        for source, place in (("meds", folder), ("mimic4", demos / "mimic4_demo"))
    )
    for name in ("admission_id", "codes", "days_observed"):
        assert ours.table[name].equals(theirs.table[name]), name


def events(folder, rows):
    """Write events of subject, time, code and admission as a MEDS folder."""
    frame = pd.DataFrame(rows, columns=["subject_id", "time", "code", "hadm_id"]).astype({"hadm_id": "Int64"})
    (folder / "data").mkdir(parents=True)
    frame.assign(time=pd.to_datetime(frame.time, format="mixed")).to_parquet(folder / "data" / "0.parquet")
    return folder


IN, OUT, CODE = "HOSPITAL_ADMISSION//X", "HOSPITAL_DISCHARGE//HOME", "DIAGNOSIS//ICD//10//I509"
STAY = [(1, "2020-01-01 10:00", IN, 10), (1, "2020-01-02", CODE, 10), (1, "2020-01-03", OUT, 10)]


def test_diagnoses_of_no_admission_and_deaths_before_it_are_reported(tmp_path):
    others = [(1, "2021-01-02", CODE, None), (1, "2020-01-02", CODE, 99), (3, "2020-01-02", CODE, None)]
    cohort = mlci.build_cohort("meds", events(tmp_path, [*STAY, *others, (1, "2020-01-01", "MEDS_DEATH", None)]))
    assert cohort.table["codes"].to_pylist() == [["I509"]]
    assert "3 diagnoses belong to no admission and were dropped." in cohort.notes
    assert any(note.startswith("1 admissions have a date of death on the day of admission") for note in cohort.notes)


def test_a_stay_that_ends_before_it_begins_needs_an_option(tmp_path):
    folder = events(
        tmp_path, [*STAY, (2, "2020-01-05", IN, 11), (2, "2020-01-05", CODE, 11), (2, "2020-01-03", OUT, 11)]
    )
    with pytest.raises(InputError, match=": 1 admissions end before they begin"):
        mlci.build_cohort("meds", folder)
    cohort = mlci.build_cohort("meds", folder, negative_stays=True)
    assert cohort.table["long_stay"].to_pylist() == [False, None]
    assert "1 admissions end before they begin; their long_stay is not known." in cohort.notes


def test_sexes_are_read_however_they_are_written(tmp_path):
    for place, (written, found) in enumerate({"Female": "F", "8507": "M", "Other": None}.items()):
        folder = events(tmp_path / str(place), [*STAY, (1, None, f"GENDER//{written}", None)])
        assert mlci.build_cohort("meds", folder).table["sex"].to_pylist() == [found]
    with pytest.raises(InputError, match="events GENDER//: text of 4 characters is not F or M"):
        mlci.build_cohort("meds", events(tmp_path / "odd", [*STAY, (1, None, "GENDER//lady", None)]))


def test_no_admission_is_lost_to_the_id_of_another(tmp_path):
    other = [(2, "2020-01-01", IN, 10), (2, "2020-01-02", CODE, 10), (2, "2020-01-03", OUT, 10)]
    with pytest.raises(InputError, match="hadm_id: 1 admissions have the id of another"):
        mlci.build_cohort("meds", events(tmp_path / "same", [*STAY, *other]))
    mixed = [(1, time, code, 0) for _, time, code, _ in STAY] + [(2, time, code, None) for _, time, code, _ in other]
    cohort = mlci.build_cohort("meds", events(tmp_path / "mixed", mixed))
    assert cohort.column("subject_id").tolist() == [1, 2]
    assert cohort.table["codes"].to_pylist() == [["I509"]] * 2


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
    with pytest.raises(mlci.InputError, match="death has no prefix; one is needed, as in --event death=MEDS_DEATH"):
        mlci.build_cohort("meds", folder, prefixes={"death": ""})
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
