"""Own tables: the MIMIC-III demo described in TOML gives the cohort of `mimic3`; edge cases of rules; bad input."""

import copy
import csv
import gzip
from pathlib import Path

import duckdb
import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlci
from mlci.sources import tables

DEMO = """
[admissions]
table = "admissions"
admission_id = "hadm_id"
subject_id = "subject_id"
admitted = "admittime"
discharged = "dischtime"
keep = ["insurance"]

[diagnoses]
table = "diagnoses_icd"
admission_id = "hadm_id"
code = "icd9_code"
position = "seq_num"
icd_version = 9

[icu]
table = "icustays"
admission_id = "hadm_id"
entered = "intime"

[outcomes]
mortality = "hospital_expire_flag"
long_stay = "los_days > 7"
icu_transfer = "icu after 24 hours"
"""

LAYOUT = {
    "admissions": {
        "table": "stays",
        "admission_id": "Encounter",
        "subject_id": "mrn",
        "admitted": "came",
        "discharged": "left",
        "died": "death",
        "first_icu": "icu",
        "age": "years",
        "split": "part",
    },
    "diagnoses": {"table": "dx", "admission_id": "encounter", "code": "icd", "icd_version": "version"},
    "outcomes": {
        "expired": "expired",
        "late": "death within 30 days",
        "week": "los_days > 7",
        "icu": "icu after 24 hours",
    },
}
STAYS = [
    ["Encounter", "mrn", "came", "left", "death", "icu", "years", "part", "expired"],
    [
        "a1",
        "p1",
        "2020-01-01 06:00:00",
        "2020-01-08 06:00:00",
        "2020-01-31 06:00:00",
        "2020-01-02 06:00:00",
        70,
        "train",
        0,
    ],
    [
        "a2",
        "p1",
        "2020-01-01 06:00:00",
        "2020-01-08 06:00:01",
        "2020-01-31 06:00:01",
        "2020-01-02 06:00:01",
        71,
        "train",
        1,
    ],
    ["a3", "p2", "2020-01-01 06:00:00", "", "", "", "", "valid", ""],
    ["a4", "p3", "", "2020-01-08 06:00:00", "2020-01-31", "2020-01-02", 40, "test", "true"],
    ["a5", "p4", "2020-01-01 06:00:00", "2020-01-02 00:00:00", "2020-01-01", "", 40.5, "test", "False"],
    ["a6", "p5", "2020-01-01 06:00:00", "2020-01-02 00:00:00", "", "", 50, "test", 0],
]
DX = [
    ["encounter", "icd", "version"],
    *[["a1", code, 10] for code in ("j44.9", "I50.9", "I10")],
    *[["a2", "4280", 9], ["a2", "I509", 10], ["a2", "5849", 9]],
    *[[f"a{i}", "N179", 10] for i in (3, 4, 5)],
]


def write(folder: Path, **content: list[list]) -> Path:
    for name, rows in content.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


def test_the_demo_described_in_toml_is_the_demo(demos, tmp_path):
    (tmp_path / "demo.toml").write_text(DEMO)
    ours = mlci.build_cohort("tables", demos / "mimic3_demo", config=tmp_path / "demo.toml").table
    theirs = mlci.build_cohort("mimic3", demos / "mimic3_demo").table
    for name in (
        "admission_id",
        "subject_id",
        "icd_version",
        "codes",
        "split",
        "mortality",
        "long_stay",
        "icu_transfer",
    ):
        assert ours[name].equals(theirs[name]), name
    assert set(ours["insurance"].to_pylist()) >= {"Medicare", "Private"}


def known_answer(cohort: mlci.Cohort) -> None:
    rows = {row["admission_id"]: row for row in cohort.table.to_pylist()}
    outcomes = {name: tuple(row[k] for k in ("expired", "late", "week", "icu")) for name, row in rows.items()}
    assert outcomes == {
        "a1": (False, True, False, False),  # 30 days, 7 days and 24 hours to the second
        "a2": (True, False, True, True),  # one second more
        "a3": (None, False, None, False),  # still here
        "a4": (True, None, None, None),  # without times
        "a5": (False, False, False, False),  # died on the day, by date alone: before the admission
    }
    assert rows["a1"]["codes"] == ["I10", "I509", "J449"]  # no position: alphabetical
    assert (rows["a2"]["codes"], rows["a2"]["icd_version"]) == (["4280", "5849"], 9)
    assert [rows[name]["split"] for name in rows] == ["train", "train", "valid", "test", "test"]
    assert rows["a5"]["age"] == 40.5
    assert [(step.removed, step.left) for step in cohort.attrition] == [(0, 6), (1, 5)]
    assert any(note.startswith("1 diagnoses of another ICD version") for note in cohort.notes)
    assert any(note.startswith("1 patients died on the day") for note in cohort.notes)


def test_rules_at_their_edges_in_a_folder_and_a_database(tmp_path):
    folder = write(tmp_path, stays=STAYS, dx=DX)
    known_answer(mlci.build_cohort("tables", folder, config=LAYOUT))
    with duckdb.connect(tmp_path / "own.duckdb") as own:
        own.sql("CREATE SCHEMA ward")
        for name in ("stays", "dx"):
            own.sql(f"CREATE TABLE ward.{name} AS FROM '{folder / name}.csv'")
    known_answer(mlci.build_cohort("tables", f"duckdb://{tmp_path}/own.duckdb", config=LAYOUT, schema=["ward"]))


PEOPLE = [
    ["visit", "mrn", "came", "went", "birth", "home"],
    [1, 7, "2020-01-01 09:00", "2020-01-03 09:00", "2019-01-01", "HOME"],  # a first birthday; back after 30 days
    [2, 7, "2020-02-02 09:00", "2020-02-03 09:00", "2019-01-01", "AMA"],  # back 30 days and a second later
    [3, 7, "2020-03-04 09:01", "", "2019-01-01", ""],  # still here
    [4, 8, "2021-02-28 00:00", "2021-03-01 00:00", "1948-02-29", "snf"],  # a day before the birthday
    [5, 9, "2021-03-01 00:00", "2021-03-01 00:00", "", "Home"],
]
WRITTEN = ["ICD10", "ICD-10-CM", "10", "icd_10", "10.0"]
PLACES = {
    "admissions": {
        "table": "ward.people",
        "admission_id": "visit",
        "subject_id": "mrn",
        "born": "birth",
        "admitted": "came",
        "discharged": "went",
    },
    "diagnoses": {"table": "coding.dx", "admission_id": "visit", "code": "icd", "icd_version": "vocabulary"},
    "outcomes": {"back": "readmission within 30 days", "home": "home:HOME,SNF"},
}


def test_birth_dates_written_versions_schemas_and_readmission(tmp_path):
    for folder in ("ward", "coding"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "ward", people=PEOPLE)
    dx = [["visit", "icd", "vocabulary"], *[[place + 1, "I10", text] for place, text in enumerate(WRITTEN)]]
    write(tmp_path / "coding", dx=[*dx, [2, "4019", "ICD-9-CM"]])
    with duckdb.connect(tmp_path / "own.duckdb") as own:
        for schema, table in (("ward", "people"), ("coding", "dx")):
            own.sql(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table} AS FROM '{tmp_path}/{schema}/{table}.csv'")
    for location in (tmp_path, f"duckdb://{tmp_path}/own.duckdb"):
        found = mlci.build_cohort("tables", location, config=PLACES)
        assert found.table["age"].to_pylist() == [1, 1, 1, 72, None]
        assert found.table["back"].to_pylist() == [True, False, None, False, False]
        assert found.table["home"].to_pylist() == [True, False, None, True, True]
        assert found.table["icd_version"].to_pylist() == [10] * 5
        assert any(note.startswith("1 diagnoses of another ICD version") for note in found.notes)


def test_an_admission_before_the_birth_has_no_age(tmp_path):
    people = with_cell(PEOPLE, 1, 4, "2020-01-02")
    layout = copy.deepcopy(PLACES)
    layout["admissions"]["table"], layout["diagnoses"] = "people", {**PLACES["diagnoses"], "table": "dx"}
    folder = write(tmp_path, people=people, dx=[["visit", "icd", "vocabulary"], [1, "I10", 10], [2, "I10", 10]])
    found = mlci.build_cohort("tables", folder, config=layout)
    assert found.table["age"].to_pylist() == [None, 1]
    assert any(note.startswith("1 admissions have an age below 0") for note in found.notes)


def test_an_age_of_999_is_not_known_and_a_death_before_the_admission_is_reported(tmp_path):
    stays = with_cell(with_cell(STAYS, 1, STAYS[0].index("years"), 999), 2, STAYS[0].index("death"), "2019-12-31")
    cohort = mlci.build_cohort("tables", write(tmp_path, stays=stays, dx=DX), config=LAYOUT)
    assert cohort.table["age"].to_pylist()[:2] == [None, 71]
    assert cohort.table["late"].to_pylist()[1] is False
    for note in (
        "1 admissions have an age below 0 or from 130, ",
        "1 admissions begin on a day after the date of death",
    ):
        assert any(found.startswith(note) for found in cohort.notes)


def test_sexes_are_read_however_they_are_written(tmp_path):
    dx = [["visit", "icd"], [1, "I10"], [2, "I10"], [3, "I10"]]
    config = {
        "admissions": {"table": "stays", "admission_id": "id", "subject_id": "id", "sex": "gender"},
        "diagnoses": {"table": "dx", "admission_id": "visit", "code": "icd", "icd_version": 10},
        "outcomes": {"died": "died"},
    }
    for written in (["w", "m", "d"], ["female", "M", "Unknown"], [2, 1, 0]):
        stays = [["id", "gender", "died"], *([row, sex, row % 2] for row, sex in enumerate(written, 1))]
        cohort = mlci.build_cohort("tables", write(tmp_path, stays=stays, dx=dx), config=config)
        assert cohort.table["sex"].to_pylist() == ["F", "M", None]
        assert cohort.describe()["women"][0] == "1 (50.0%)"
    assert "column gender: 1 was read as male and 2 as female." in cohort.notes
    for row, odd in ((3, with_cell(stays, 2, 1, "lady")), (4, with_cell(stays, 1, 1, 1))):
        with pytest.raises(mlci.InputError, match=f"column gender, row {row}: "):
            mlci.build_cohort("tables", write(tmp_path, stays=odd, dx=dx), config=config)


def test_death_day_counts_changes_a_death_on_the_day(tmp_path):
    folder = write(tmp_path, stays=STAYS, dx=DX)
    cohort = mlci.build_cohort("tables", folder, config=LAYOUT, death_day_counts=True)
    assert dict(zip(cohort.column("admission_id"), cohort.table["late"].to_pylist()))["a5"] is True


def test_days_of_stay_may_be_a_column_and_flags_may_be_of_any_type(tmp_path):
    stays = {
        "id": [1, 2, 3, 4],
        "days": [7.0, 7.5, None, float("nan")],
        "a": [True, False, None, None],
        "b": [1, 0, None, None],
        "c": [1.0, 0.0, None, float("nan")],
    }
    pq.write_table(pa.table(stays), tmp_path / "stays.parquet")
    pq.write_table(pa.table({"id": [1, 2, 3, 4], "icd": ["I10"] * 4}), tmp_path / "dx.parquet")
    layout = {
        "admissions": {"table": "stays", "admission_id": "id", "subject_id": "id", "los_days": "days"},
        "diagnoses": {"table": "dx", "admission_id": "id", "code": "icd", "icd_version": 10},
        "outcomes": {"week": "los_days > 7", "one": "a", "two": "b", "three": "c"},
    }
    table = mlci.build_cohort("tables", tmp_path, config=layout | {"outcomes": {"dear": "c >= 1"}}).table
    assert table["dear"].to_pylist() == [True, False, None, None]
    table = mlci.build_cohort("tables", tmp_path, config=layout).table
    assert table["admission_id"].to_pylist() == [1, 2, 3, 4]
    assert table["week"].to_pylist() == [False, True, None, None]
    for name in ("one", "two", "three"):
        assert table[name].to_pylist() == [True, False, None, None]


FLAGGED = [
    ["encounter", "icd", "version", "present"],
    *[["a1", "T81.4XXA", 10, "N"], ["a1", "I50.9", 10, " y"], ["a1", "I10", 10, ""], ["a1", "I1", 10, "exempt"]],
    *[["a2", "I509", 10, "U"], ["a3", "N179", 10, "W"], ["a3", "4280", 9, "Y"], ["a4", "E119", 10, 1]],
]


def test_flags_of_what_was_present_travel_with_the_codes(tmp_path):
    folder = write(tmp_path, stays=STAYS, dx=FLAGGED)
    with duckdb.connect(tmp_path / "own.duckdb") as own:
        for name in ("stays", "dx"):
            own.sql(f"CREATE TABLE {name} AS FROM read_csv('{folder / name}.csv', all_varchar = {name == 'dx'})")
    config = changed(diagnoses={"poa": "present"})
    for location in (folder, f"duckdb://{tmp_path}/own.duckdb"):
        cohort = mlci.build_cohort("tables", location, config=config)
        rows = {row["admission_id"]: (row["codes"], row["poa"]) for row in cohort.table.to_pylist()}
        assert rows == {
            "a1": (["I1", "I10", "I509", "T814XXA"], ["1", None, "Y", "N"]),  # in the order of codes, as without flags
            "a2": (["I509"], ["U"]),
            "a3": (["N179"], ["W"]),
            "a4": (["E119"], ["1"]),
        }
        assert (
            "2 of 7 codes arose after admission by their flags (POA N or U); 1 have no flag and count as present."
            in (cohort.notes)
        )
        assert cohort.present().table["codes"].to_pylist()[:2] == [["I1", "I10", "I509"], []]
    carried = mlci.build_cohort(
        "tables", write(tmp_path, stays=with_cell(STAYS, 2, 2, "2020-01-05 06:00:00")), config=config, look_back=30
    )
    assert carried.table["codes"].to_pylist()[1] == ["I509", "I1", "I10", "T814XXA"]
    assert carried.table["poa"].to_pylist()[1] == ["U", "Y", "Y", "Y"]  # what arose then is history now
    with pytest.raises(mlci.InputError, match=r"dx.csv: column present, row 3: text of 1 character is not Y, N, U, W"):
        mlci.build_cohort("tables", write(tmp_path, dx=with_cell(FLAGGED, 2, 3, "Q")), config=config)


@pytest.mark.parametrize("dialect", ["postgres", "databricks", "bigquery", "snowflake"])
def test_the_expression_compiles_for_other_engines(dialect):
    layout, _ = tables._layout(changed(diagnoses={"poa": "present"}))
    rules = {name: tables._rule(layout, name, text, "") for name, text in layout.outcomes.items()}
    schemas = tables._wanted(layout, rules, "")
    unbound = {name: ibis.table(columns, name=name) for name, columns in schemas.items()}
    assert "stays" in ibis.to_sql(tables._admissions(unbound, layout, rules), dialect=dialect)


def changed(**sections: dict) -> dict:
    layout = copy.deepcopy(LAYOUT)
    for name, values in sections.items():
        layout.setdefault(name, {}).update(values)
        layout[name] = {key: value for key, value in layout[name].items() if value is not None}
    return layout


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            changed(admissions={"admited": "x"}),
            r"admissions.admited is not a known key; allowed are table, admission_id",
        ),
        (
            changed(admission={"table": "x"}),
            r"admission is not a known key; allowed are admissions, diagnoses, icu, out",
        ),
        (changed(diagnoses={"code": None}), r"diagnoses.code is missing"),
        (changed(diagnoses={"icd_version": 11}), r"icd_version is 11; allowed is 9, 10 or the name of a column"),
        (changed(admissions={"keep": "age"}), r"admissions.keep: input should be a valid list \(it is 'age'\)"),
        (
            changed(outcomes={"week": "los_days = 7"}),
            r"outcomes.week: 'los_days = 7' is not a rule; allowed is a column",
        ),
        (changed(admissions={"died": None}), r"outcomes.late: 'death within 30 days' needs admissions.died"),
        (changed(admissions={"first_icu": None}), r"outcomes.icu: 'icu after 24 hours' needs admissions.first_icu"),
        (changed(outcomes={"codes": "expired"}), r"the name codes is taken"),
        (changed(outcomes={"came": "came"}), r"column came of stays is named both as timestamp and as string"),
        (changed(outcomes={"other": "nowhere"}), r"stays.csv: lacks the column nowhere"),
        (changed(diagnoses={"table": "codes"}), r"lacks the table codes"),
        (changed(admissions={"born": "birth"}), r"stays.csv: lacks the column birth"),
        (
            {**PLACES, "admissions": {**PLACES["admissions"], "admitted": None}},
            r"admissions.born needs admissions.admitted: age is computed at admission",
        ),
        (PLACES, r"lacks the table ward.people; allowed are ward.people.csv"),
        (
            changed(outcomes={"week": "readmission within 30 days"}, admissions={"discharged": None}),
            r"outcomes.week: 'readmission within 30 days' needs admissions.discharged",
        ),
        (changed(outcomes={"back": "readmission within a month"}), r"stays.csv: lacks the column readmission within"),
        ({**LAYOUT, "outcomes": {}}, r"outcomes is empty"),
        (None, r"needs the option config"),
    ],
)
def test_a_bad_layout_raises_a_clear_error(layout, message, tmp_path):
    with pytest.raises(mlci.InputError, match=message):
        mlci.build_cohort("tables", write(tmp_path, stays=STAYS, dx=DX), config=layout)


def with_cell(rows: list[list], row: int, column: int, value: object) -> list[list]:
    rows = copy.deepcopy(rows)
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("stays", "dx", "message"),
    [
        (with_cell(STAYS, 2, 8, "2"), DX, r"stays.csv: column expired, row 3: a whole number is not 0 or 1"),
        (with_cell(STAYS, 6, 8, "odd"), DX, r"stays.csv: column expired, row 7: text of 3 characters is not 0 or 1"),
        (with_cell(STAYS, 3, 7, "val"), DX, r"stays.csv: column part, row 4: text of 3 characters is not a split"),
        (with_cell(STAYS, 3, 7, ""), DX, r"stays.csv: column part, row 4: empty is not a split"),
        (
            STAYS,
            with_cell(DX, 5, 2, "ICD"),
            r"dx.csv: column version, row 6: text of 3 characters is not an ICD version",
        ),
        (
            STAYS,
            with_cell(DX, 5, 2, "ICD-11"),
            r"dx.csv: column version, row 6: text .* allowed is 9 or 10, also as IC",
        ),
        (STAYS, with_cell(DX, 5, 2, ""), r"dx.csv: column version, row 6: empty is not an ICD version"),
        (STAYS, with_cell(DX, 5, 2, " 11 "), r"dx.csv: column version, row 6: a whole number is not an ICD version"),
        (STAYS, with_cell(DX, 5, 2, " "), r"dx.csv: column version, row 6: empty is not an ICD version"),
        (with_cell(STAYS, 1, 2, "yesterday"), DX, r"stays.csv: column came, row 2: text of 9 characters is not a time"),
        (with_cell(STAYS, 1, 3, "2019-12-31 00:00:00"), DX, r"column left: 1 admissions end before they begin"),
        (with_cell(STAYS, 4, 1, " "), DX, r"column mrn: 1 admissions have none"),
        (with_cell(STAYS, 4, 0, "a1"), DX, r"stays.csv: column Encounter, row 5: names the admission of row 2 again"),
        (STAYS, DX[:1], r"no admission is left after the rule 'has a diagnosis'"),
    ],
)
def test_a_bad_value_is_named_by_file_column_and_row(stays, dx, message, tmp_path):
    with pytest.raises(mlci.InputError, match=message):
        mlci.build_cohort("tables", write(tmp_path, stays=stays, dx=dx), config=LAYOUT)


@pytest.mark.parametrize("name", ["stays.csv", "stays.csv.gz"])
def test_rows_are_counted_as_an_editor_shows_them_if_some_lines_are_blank(name, tmp_path):
    folder = write(tmp_path, stays=with_cell(STAYS, 6, 8, "odd"), dx=DX)
    header, *rows = (folder / "stays.csv").read_text().splitlines()
    (folder / "stays.csv").unlink()
    text = "\r\n".join([header, rows[0], "", "", *rows[1:], ""]).encode()
    pack = gzip.compress if name.endswith("gz") else bytes
    (folder / name).write_bytes(pack(text))
    with pytest.raises(mlci.InputError, match="column expired, row 9: text of 3 characters"):
        mlci.build_cohort("tables", folder, config=LAYOUT)
    (folder / name).write_bytes(pack(b"\n" + text))
    with pytest.raises(mlci.InputError, match="its first line is empty; the names of the columns belong there"):
        mlci.build_cohort("tables", folder, config=LAYOUT)


def test_the_row_of_a_misfit_is_right_in_a_long_file(tmp_path):
    many = 300_000
    stays = pa.table({"id": range(many), "flag": ["0"] * 250_000 + ["x"] + ["1"] * (many - 250_001)})
    folder = write(tmp_path, dx=[["id", "icd"], [0, "I10"]])
    pq.write_table(stays, folder / "stays.parquet")
    layout = {
        "admissions": {"table": "stays", "admission_id": "id", "subject_id": "id"},
        "diagnoses": {"table": "dx", "admission_id": "id", "code": "icd", "icd_version": 10},
        "outcomes": {"flag": "flag"},
    }
    with pytest.raises(
        mlci.InputError, match=r"stays.parquet: column flag, row 250001: text of 1 character is not 0 or 1"
    ):
        mlci.build_cohort("tables", folder, config=layout)


def test_command_line(mlci_cli, demos, tmp_path):
    (tmp_path / "demo.toml").write_text(DEMO)
    done = mlci_cli("cohort", "tables", demos / "mimic3_demo", "--config", "demo.toml", "-o", "c.parquet")
    assert "129 admissions" in done.stdout
    (tmp_path / "demo.toml").write_text(DEMO + "[more]\n")
    done = mlci_cli("cohort", "tables", demos / "mimic3_demo", "--config", "demo.toml", "-o", "d.parquet", code=2)
    assert "demo.toml: more is not a known key" in done.stderr
    assert not (tmp_path / "d.parquet").exists()


OWN = {
    "admissions": {"table": "stays", "admission_id": "id", "subject_id": "id"},
    "diagnoses": {"table": "dx", "admission_id": "id", "code": "icd", "icd_version": 10, "position": "rank"},
    "outcomes": {"died": "died"},
}


def own(folder, dx, died=(0, 1)):
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, stays=[["id", "died"], *enumerate(died)], dx=[["id", "icd", "rank"], *dx])
    return mlci.build_cohort("tables", folder, config=OWN)


def test_a_position_below_0_is_refused_and_cuts_no_code(tmp_path):
    with pytest.raises(mlci.InputError, match=r"dx\.csv: column rank: 2 codes have a position below 0"):
        own(tmp_path, [[0, "I50.9", -1], [0, "428.0", 0], [1, "E11", -90000]])
    assert own(tmp_path, [[0, "I50.9", 0], [1, "E11", 10**12]]).table["codes"].to_pylist() == [["I509"], ["E11"]]


@pytest.mark.parametrize("name", ["x[1]", "h*", "h?", "[a-z]"])
def test_a_folder_is_no_pattern(tmp_path, name):
    own(tmp_path / "h1", [[0, "A41", 1], [1, "A41", 1]])
    own(tmp_path / "x1", [[0, "A41", 1], [1, "A41", 1]])
    assert own(tmp_path / name, [[0, "I10", 1], [1, "E11", 1]]).table["codes"].to_pylist() == [["I10"], ["E11"]]


def test_diagnoses_of_no_admission_are_counted(tmp_path):
    cohort = own(tmp_path, [[0, "I10", 1], [1, "E11", 1], [7, "E11", 1], [8, "", 1], [9, "E11", 2]])
    assert "2 diagnoses belong to no row of the admissions and were dropped." in cohort.notes
    assert "1 diagnoses hold no code and were dropped." in cohort.notes


def test_a_stray_quotation_mark_swallows_nothing(tmp_path):
    write(tmp_path, stays=[["id", "died"], [0, 0], [1, 1]])
    (tmp_path / "dx.csv").write_text('id,icd,rank\n0,"I10,1\n1,E11,1\n')
    with pytest.raises(mlci.InputError, match=r"dx\.csv: row 2"):
        mlci.build_cohort("tables", tmp_path, config=OWN)
