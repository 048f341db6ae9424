"""One table, wide, long or with lists, from a file or a frame, with rules or guesses, gives the same cohort."""

import shlex
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import mlci
from mlci.cli import cli
from mlci.sources import file as source
from mlci.sources._meaning import opened, understand
from mlci.sources._outcomes import parse

VISITS = pd.DataFrame(
    {
        "visit_id": ["a1", "a2", "a3", "a4"],
        "mrn": [7, 7, 8, 9],
        "DX1": ["I50.9", "E11.9", "J44.9", None],
        "DX2": ["N17.9", None, "I10", None],
        "DX3": ["?", None, "E11.9", None],
        "expired": ["Y", "N", None, "N"],
        "los": [8, 7, None, 3],
        "gender": ["Female", "Male", "Unknown/Invalid", "Female"],
        "age": ["[60-70)", "70", "90+", "?"],
        "hospital": ["north", "south", "north", "south"],
    }
)
SAID = {"id": "visit_id", "subject": "mrn", "codes": "DX*", "icd_version": 10, "age": "age", "sex": "gender"}
RULES = {"died": "expired:Y", "long_stay": "los>7"}


def rows(cohort) -> dict:
    return {row["admission_id"]: row for row in cohort.table.to_pylist()}


def expected(cohort) -> None:
    found = rows(cohort)
    assert {name: tuple(row[k] for k in ("died", "long_stay", "sex", "age")) for name, row in found.items()} == {
        "a1": (True, True, "F", 65.0),
        "a2": (False, False, "M", 70.0),
        "a3": (None, None, None, 90.0),
    }
    assert found["a1"]["codes"] == ["I509", "N179"]
    assert [row["subject_id"] for row in found.values()] == [7, 7, 8]
    assert [(step.removed, step.left) for step in cohort.attrition] == [(0, 4), (1, 3)]


def test_frames_of_every_kind(tmp_path):
    arrow = pa.Table.from_pandas(VISITS)
    for frame in (VISITS, pl.from_pandas(VISITS), pl.from_pandas(VISITS).lazy(), arrow):
        expected(mlci.Cohort.from_frame(frame, **SAID, outcomes=RULES))


def test_what_a_cohort_has_anyway_may_be_kept_by_name():
    cohort = mlci.Cohort.from_frame(VISITS, **SAID, outcomes=RULES, keep=["age", "hospital"])
    expected(cohort)
    assert (
        cohort.table.column_names
        == mlci.Cohort.from_frame(VISITS, **SAID, outcomes=RULES, keep=["hospital"]).table.column_names
    )


@pytest.mark.parametrize("name", ["v.csv", "v.xlsx", "v.parquet"])
def test_files_and_commands(tmp_path, name):
    path = tmp_path / name
    {"csv": VISITS.to_csv, "xlsx": VISITS.to_excel, "parquet": VISITS.to_parquet}[path.suffix[1:]](path, index=False)
    words = ["cohort", "file", path, "-o", tmp_path / "c.parquet", "--keep", "hospital", "-q"]
    for option, value in SAID.items():
        words += [f"--{option.replace('_', '-')}", value]
    for outcome, rule in RULES.items():
        words += ["--outcome", f"{outcome}={rule}"]
    done = CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, "")
    cohort = mlci.read_cohort(tmp_path / "c.parquet")
    expected(cohort)
    assert cohort.table["hospital"].to_pylist() == ["north", "south", "north"]
    assert cohort.outcomes == {"died": "column expired is Y", "long_stay": "column los is > 7"}


def test_one_row_per_code_and_a_column_of_versions(tmp_path):
    text = "stay,dx,ver,dead\n1,428.0,ICD-9-CM,0\n1,584.9,9,0\n1,I10,ICD10,0\n2,I10,10,1\n"
    (tmp_path / "long.csv").write_text(text)
    cohort = mlci.build_cohort("file", tmp_path / "long.csv", id="stay", icd_version="ver", outcomes={"died": "dead"})
    found = rows(cohort)
    assert (found[1]["codes"], found[1]["icd_version"]) == (["4280", "5849"], 9)
    assert (found[2]["codes"], found[2]["died"]) == (["I10"], True)
    assert any(note.startswith("1 diagnoses of another ICD version") for note in cohort.notes)
    assert any("each admission counts as a patient of its own" in note for note in cohort.notes)


def test_unnamed_columns_are_guessed_reported_and_can_be_edited(tmp_path):
    VISITS.to_csv(tmp_path / "v.csv", index=False)
    words = ["cohort", "file", str(tmp_path / "v.csv")]
    done = CliRunner().invoke(cli, [*words, "-o", str(tmp_path / "c.parquet")], catch_exceptions=False)
    assert "Guessed from column names: id: visit_id; codes: DX*; subject: mrn; age: age; sex: gender" in done.output
    assert "--outcome mortality=expired --outcome 'long_stay=los > 7'" in done.output
    assert "the codes were taken for ICD-10" in " ".join(done.output.split())
    toml = done.output.split("--config FILE.toml:\n")[1].splitlines()
    (tmp_path / "edited.toml").write_text("\n".join(line[2:] for line in toml[: toml.index("  [outcomes]") + 3]))
    with source.opened(tmp_path / "v.csv") as table:
        guessed = source.understand(table, {})
        edited = source.understand(table, {}, tmp_path / "edited.toml")
    assert (edited.options, edited.texts) == (guessed.options, guessed.texts)
    assert not edited.guessed
    dry = CliRunner().invoke(cli, [*words, "--dry-run"], catch_exceptions=False)
    assert "mortality True, long_stay True, age 65.0, sex F; 2 codes: I509 N179" in dry.output
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["c.parquet"]


def test_outcomes_of_any_name_are_written_as_toml_and_read_back(tmp_path):
    rules = {"long stay": "los > 7", "in-hospital.death": "expired"}
    with source.opened(VISITS) as table:
        (tmp_path / "own.toml").write_text(source.understand(table, {"outcomes": rules}).toml())
    with source.opened(VISITS) as table:
        assert source.understand(table, {}, tmp_path / "own.toml").texts == rules


def test_a_cohort_is_not_overwritten_unless_forced(tmp_path):
    VISITS.to_csv(tmp_path / "v.csv", index=False)
    words = ["cohort", "file", str(tmp_path / "v.csv"), "-q", "-o", str(tmp_path / "c.parquet")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    again = CliRunner().invoke(cli, words)
    assert "is a cohort file and would be overwritten" in str(again.exception)
    assert CliRunner().invoke(cli, [*words, "--force"]).exit_code == 0


@pytest.mark.parametrize(
    ("rule", "values", "answer"),
    [
        ("x", ["1", "0", "", None, " Yes", "no", "T", "false", "NA"], [1, 0, None, None, 1, 0, 1, 0, None]),
        ("x:20, 41", ["20", "41", "1", "?", "20.0"], [1, 1, 0, None, 1]),
        ("x > 7", ["7", "7.5", "", "-3"], [0, 1, None, 0]),
        ("x > 7", ["NaN", "NAN", " nan", "inf"], [None, None, None, 1]),
        ("x >= 7", ["7", "6.9"], [1, 0]),
        ("x<2", ["2", "1"], [0, 1]),
        ("x <= 2", ["2", "3"], [1, 0]),
    ],
)
def test_rules(rule, values, answer):
    found, _ = source.applied(pa.array(values, pa.string()), parse(rule, "x"))
    assert found.to_pylist() == [None if value is None else bool(value) for value in answer]


def changed(column: str, row: int, value: object) -> pd.DataFrame:
    frame = VISITS.astype(object).copy()
    frame.loc[row, column] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "said", "words"),
    [
        (
            changed("expired", 1, "maybe"),
            {"outcomes": {"d": "expired"}},
            "column expired, row 3: text of 5 characters is not 0 or 1",
        ),
        (changed("los", 2, "long"), {}, "column los, row 4: text of 4 characters is not a number"),
        (changed("gender", 0, "Queen"), {}, "column gender, row 2: text of 5 characters is not F or M"),
        (changed("mrn", 2, " "), {}, "column mrn, row 4: is empty; each admission needs its patient"),
        (changed("visit_id", 1, " "), {}, "column visit_id, row 3: is empty; each row needs its admission"),
        (changed("age", 3, "old"), {}, "column age, row 5: text of 3 characters is not an age from 0 to 129, a band"),
        (changed("age", 1, "70,5"), {}, "column age, row 3: text of 4 characters is not an age from 0 to 129, a band"),
        (changed("age", 1, "79-70"), {}, "column age, row 3: text of 5 characters is not an age from 0 to 129, a band"),
        (VISITS.assign(gender=[0, 1, 1, 0]), {}, "column gender, row 2: from 0 and 1 alone, the sex cannot be told"),
        (changed("mrn", 2, None), {}, "column mrn, row 4: is empty; each admission needs its patient"),
        (changed("visit_id", 3, None), {}, "column visit_id, row 5: is empty"),
        (changed("visit_id", 1, "a1"), {}, "column visit_id, row 3: names the admission of row 2 again"),
        (VISITS, {"outcomes": {"d": "expired = Y"}}, "outcome d: 'expired = Y' is not a rule; allowed is"),
        (VISITS, {"outcomes": {"d": "nowhere"}}, r"lacks the column nowhere \(--outcome d\)"),
        (VISITS, {"outcomes": {"d": "death within 30 days"}}, "needs times"),
        (VISITS, {"outcomes": {"codes": "expired"}}, "the name codes is taken"),
        (VISITS, {"keep": ["ward"]}, r"lacks the column ward \(--keep\)"),
        (VISITS.assign(years=50), {"age": "years", "keep": ["age"]}, "the name age is taken: the cohort has a column"),
        (VISITS.assign(codes="x"), {"keep": ["codes"]}, "the name codes is taken: the cohort has a column"),
        (VISITS, {"config": {"diagnosis": {}}}, "config: diagnosis is not a known key; allowed are admissions, diagn"),
        (VISITS, {"config": {"admissions": {"keep": "hospital"}}}, "admissions.keep: input should be a valid list"),
        (
            VISITS,
            {"config": {"admissions": {"subject_id": 5}}},
            "admissions.subject_id: input should be a valid string",
        ),
        (VISITS, {"config": {"diagnoses": {"codes": 7}}}, r"diagnoses.codes.*: input should be .*\(it is 7\)"),
        (VISITS, {"config": {"outcomes": "expired"}}, "config: outcomes: input should be a valid dictionary"),
        (VISITS, {"outcomes": {"": "expired"}}, "outcome '': a name is needed"),
        (VISITS, {"config": {"diagnoses": {"code": "x"}}}, "diagnoses.code is not a known key; allowed are codes"),
        (VISITS.drop(columns=["expired", "los"]), {"outcomes": None}, "no column has the name of an outcome"),
        (VISITS.assign(expired="J", los="3,5"), {"outcomes": None}, "most values of expired, los are neither 0 and 1"),
        (
            VISITS.assign(split=["train", "Test", "valid", "train"]),
            {},
            "column split, row 3: text of 4 characters is not",
        ),
        (VISITS.assign(age=[50, 60, -5, 70]), {}, "column age, row 4: a whole number is not an age from 0"),
        (VISITS.assign(DX1="X9999", DX2="QQQ"), {"icd_version": None}, "the ICD version of the codes cannot be told"),
        (VISITS[:0], {}, "has no rows"),
        # Guessed by its name, as most of its values fit: the odd one is an error, and the outcome is not passed over.
        (
            changed("expired", 0, "maybe"),
            {"outcomes": None},
            "column expired, row 2: text of 5 characters is not 0 or 1",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_column_and_row(tmp_path, frame, said, words):
    frame.to_csv(tmp_path / "v.csv", index=False)
    with pytest.raises(mlci.InputError, match=words) as error:
        mlci.build_cohort("file", tmp_path / "v.csv", **{**SAID, "outcomes": RULES, **said})
    assert "\n" not in str(error.value)


def test_a_csv_with_blanks_behind_its_commas_gives_the_same_cohort(tmp_path):
    text = "visit,DX1,died,age,sex,split,icd_version,los\n7,I50.9,Y,71,F,train,10,9\n8,E11.9,N,65,M,test,10,3\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_text(text.replace(",", ", "))
    plain, blanks = (mlci.build_cohort("file", tmp_path / name).table for name in ("a.csv", "b.csv"))
    assert blanks.equals(plain)


@pytest.mark.parametrize("words", ["died", "=x", "died=", "los>=7"])
def test_an_outcome_needs_a_name_and_a_rule(words):
    done = CliRunner().invoke(cli, ["cohort", "file", "v.csv", "-o", "c.parquet", "--outcome", words])
    assert "is not NAME=RULE" in str(done.exception)


def test_durations_are_not_taken_for_days():
    frame = VISITS.assign(los=pd.to_timedelta([1.0] * len(VISITS), unit="D"))  # Arrow would compare nanoseconds
    with pytest.raises(mlci.InputError, match=r"column los, row 1: text of .* is not a number such as 3.5"):
        mlci.Cohort.from_frame(frame, **SAID, outcomes={"long_stay": "los > 7"})


def test_identifiers_of_other_types_are_refused():
    frame = VISITS.assign(visit_id=[uuid.UUID(int=place) for place in range(len(VISITS))])
    for refused in (mlci.Cohort.from_frame, mlci.charlson):
        with pytest.raises(mlci.InputError, match=r"column visit_id: .*; an admission needs one number or text"):
            refused(frame)


def test_patients_in_several_splits_are_reported():
    said = "1 patients have admissions in more than one split, so figures of the test split look too good."
    frame = pd.DataFrame({"id": [1, 2, 3], "mrn": [7, 7, 8], "DX1": ["I10"] * 3, "ward": [1, 2, 3], "died": [0, 1, 0]})
    given = frame.assign(split=["train", "test", "test"])
    assert said in mlci.Cohort.from_frame(given, icd_version=10).notes
    assert said not in mlci.Cohort.from_frame(frame, icd_version=10).notes
    assert said not in mlci.Cohort.from_frame(given.assign(mrn=[7, 8, 8]), icd_version=10).notes
    one_each = {"proportions": [0.5, 0, 0.5], "split_by": "admission_id"}
    many = pd.concat([frame.assign(id=frame["id"] + 3 * k) for k in range(30)])
    assert any(
        "more than one split" in note for note in mlci.build_cohort("file", many, icd_version=10, **one_each).notes
    )


def test_a_single_name_is_a_name_and_outcomes_need_rules():
    assert "hospital" in mlci.Cohort.from_frame(VISITS, **SAID, keep="hospital").table.column_names
    for wrong in ("died", ["died"]):
        with pytest.raises(mlci.InputError, match="outcomes: a mapping of names to rules is needed"):
            mlci.Cohort.from_frame(VISITS, **SAID, outcomes=wrong)


def test_an_outcome_has_one_rule():
    words = ["cohort", "file", "v.csv", "-o", "c.parquet", "--outcome", "died=a:Y", "--outcome", "died = a:N"]
    said = str(CliRunner().invoke(cli, words).exception)
    assert said == "--outcome died: is given twice; each outcome has one rule."


def test_python_does_not_write_a_cohort_under_the_name_of_a_sheet(tmp_path):
    with pytest.raises(mlci.InputError, match=r"a.csv: a cohort file is written as Parquet; name it .parquet"):
        mlci.build_cohort("synthetic", 5).write(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


def test_a_cohort_is_not_written_under_the_name_of_a_sheet(tmp_path):
    VISITS.to_csv(tmp_path / "v.csv", index=False)
    done = CliRunner().invoke(cli, ["cohort", "file", str(tmp_path / "v.csv"), "-o", str(tmp_path / "c.csv")])
    assert "c.csv: a cohort file is written as Parquet; name it .parquet." in str(done.exception)
    assert not (tmp_path / "c.csv").exists()


@pytest.mark.parametrize("names", [("Dx, 1", "Dx, 2"), ("Dx, main", "other, dx")])
def test_the_command_that_is_printed_names_columns_with_commas(names):
    frame = VISITS.rename(columns=dict(zip(("DX1", "DX2"), names)))
    with opened(frame) as table:
        pattern = understand(table, SAID | {"codes": [*names], "outcomes": RULES}).options["codes"]
        again = understand(table, SAID | {"codes": pattern, "outcomes": RULES})
    assert again.layout.codes == names


def test_the_command_that_is_printed_does_the_same(tmp_path):
    """Also the options that do not name columns are printed, and the name of the output, by a dry run too."""
    frame = pd.DataFrame({"visit": np.arange(200), "dx": ["38.9", "401.9"] * 100, "died": [0, 1] * 100})
    frame.to_csv(tmp_path / "v.csv", index=False)
    given = ["cohort", "file", str(tmp_path / "v.csv"), "-o", str(tmp_path / "a.parquet"), "--icd-version", "9"]
    given += ["--restore-zeros", "--proportions", "0.5,0.2,0.3"]

    def printed(*words):
        done = CliRunner().invoke(cli, [*given, *words], catch_exceptions=False)
        return next(line for line in done.output.splitlines() if line.startswith("  mlci cohort file"))

    command = printed("--dry-run")
    assert printed() == command
    assert command.endswith("--outcome mortality=died --proportions 0.5,0.2,0.3 --restore-zeros")
    first = (tmp_path / "a.parquet").read_bytes()
    CliRunner().invoke(cli, [*shlex.split(command)[1:], "--force"], catch_exceptions=False)
    assert (tmp_path / "a.parquet").read_bytes() == first


def test_lost_zeros_are_reported_and_restored():
    frame = pd.DataFrame({"visit": np.arange(40), "dx": ["38.9", "401.9"] * 20, "died": [0, 1] * 20})
    cohort = mlci.Cohort.from_frame(frame, icd_version=9)
    assert any("20 codes have fewer than three digits before their dot" in note for note in cohort.notes)
    cohort = mlci.Cohort.from_frame(frame, icd_version=9, restore_zeros=True)
    assert cohort.table["codes"][0].as_py() == ["0389"]
    assert not any("zero" in note for note in cohort.notes)


def test_how_a_cohort_looks():
    cohort = mlci.Cohort.from_frame(VISITS, **SAID, outcomes=RULES)
    assert (
        str(cohort).splitlines()[0] == "Cohort of 3 admissions, 2 patients (file); codes per admission: median 2 [2, 2]"
    )
    assert "long_stay      2  1 (50.0%)" in repr(cohort)
    assert "<caption" in cohort._repr_html_()
    assert "I509 N179" in cohort._repr_html_()
    assert (len(cohort.head(2)), len(cohort.to_pandas()), len(cohort.to_polars())) == (2, 3, 3)


def test_wrong_names_get_a_sentence():
    cohort = mlci.Cohort.from_frame(VISITS, **SAID, outcomes=RULES)
    with pytest.raises(mlci.InputError, match="there is no split 'tst'; allowed are train, valid, test"):
        cohort.split("tst")
    with pytest.raises(mlci.InputError, match="no outcome 'dead'; it has died, long_stay"):
        cohort.labels("dead")
    with pytest.raises(mlci.InputError, match="no column 'ward'"):
        cohort.column("ward")
    with pytest.raises(mlci.InputError, match="a pandas, polars or Arrow frame is needed, not list"):
        mlci.Cohort.from_frame([1, 2])


def test_a_column_that_is_an_outcome_by_name_only_is_reported(tmp_path):
    """A decimal comma may be a thousand: such lengths of stay are not read, nor forgotten."""
    (tmp_path / "a.csv").write_text("visit_id;DX1;died;los\n1;I50.9;1;9,5\n2;E11.9;0;3,0\n")
    cohort = mlci.build_cohort("file", tmp_path / "a.csv")
    assert list(cohort.outcomes) == ["mortality"]
    assert any(note.startswith("column los is not used as an outcome") for note in cohort.notes)
    (tmp_path / "a.csv").write_text("visit_id;DX1;died\n1;I50.9;dead\n2;E11.9;alive\n")
    with pytest.raises(mlci.InputError, match="most values of died are neither 0 and 1"):
        mlci.build_cohort("file", tmp_path / "a.csv")


@pytest.mark.parametrize(("rule", "told"), [("los>7", True), ("los>=-20", False), ("died", False)])
def test_numbers_below_zero_in_a_comparison_are_reported(rule, told):
    """Many a file writes -9 for "not known"; what is compared with a number below 0 may well be below it."""
    visits = VISITS.assign(los=[8, -9, None, 3], died=[1, 0, 0, 1])
    cohort = mlci.Cohort.from_frame(visits, id="visit_id", icd_version=10, outcomes={"stay": rule})
    said = "column los: numbers below 0 (1) count as they are; empty their cells if they mean not known."
    assert (said in cohort.notes) == told


def test_a_dry_run_of_a_table_with_unnamed_columns(tmp_path):
    table = tmp_path / "visits.csv"
    table.write_text("visit_id,DX1,died,,\n1,I50.9,1,,\n2,I10,0,,\n")
    words = ["cohort", "file", str(table), "--icd-version", "10", "--dry-run"]
    dry = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert dry.exit_code == 0
    assert "mortality True; 1 code: I509" in dry.output
