"""Every engine gives the same cohort, row for row."""

import csv
import gc
import shutil
from pathlib import Path

import ibis
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hospitals
from mlci.base.errors import InputError
from mlci.cohort import build_cohort
from mlci.sources import find
from mlci.sources._engine import open_tables

# Spark leaves the sockets through which Arrow comes back to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning")

DEMOS = ("mimic3", "mimic4", "omop")
WHOLE = {"subject_id", "hadm_id", "seq_num", "icd_version", "anchor_age", "anchor_year", "year_of_birth", "person_id"}
WHOLE |= {"visit_occurrence_id", "condition_occurrence_id", "condition_source_concept_id", "concept_id"}
WHOLE |= {"visit_concept_id", "visit_detail_concept_id", "gender_concept_id"}


def type_of(column: str) -> str:
    """PostgreSQL types as mimic-code and the CDM's own scripts give them."""
    if column in WHOLE:
        return "INTEGER"
    if column.endswith("time") or column in ("dob", "dod"):
        return "TIMESTAMP(0)"
    return "DATE" if column.endswith("_date") else "TEXT"


@pytest.fixture
def demo(demos, tmp_path):
    """The demo of a source, as a folder."""

    def folder(source: str) -> Path:
        if source == "omop":
            return hospitals.omop(demos / "mimic4_demo", tmp_path / "omop")
        return demos / f"{source}_demo"

    return folder


def needed(source: str) -> dict:
    """The tables that a source cannot do without."""
    module = find(source)
    return {name: columns for name, columns in module.TABLES.items() if name not in getattr(module, "OPTIONAL", ())}


def tables_of(source: str, folder: Path) -> dict[str, Path]:
    """The files of a source's tables, by lower-case name."""
    files = {file.stem.lower(): file for file in folder.rglob("*.csv")}
    return {name: files[name] for name in needed(source)}


@pytest.fixture
def postgres(postgres_server):
    """Load a folder into schemas of the server, typed as mimic-code types them; returns the URL."""
    import psycopg

    made = []

    def load(source: str, folder: Path, schemas: dict[str, str]) -> str:
        with psycopg.connect(postgres_server, autocommit=True) as server:
            for schema in set(schemas.values()):
                server.execute(f"CREATE SCHEMA {schema}")
                made.append(schema)
            for name, file in tables_of(source, folder).items():
                text = file.read_text()
                header = next(csv.reader([text.split("\n")[0]]))
                types = ", ".join(f"{column} {type_of(column)}" for column in header)
                server.execute(f"CREATE TABLE {schemas[name]}.{name} ({types})")
                with server.cursor().copy(f"COPY {schemas[name]}.{name} FROM STDIN (FORMAT csv, HEADER)") as copy:
                    copy.write(text)
        return postgres_server

    yield load
    with psycopg.connect(postgres_server, autocommit=True) as server:
        for schema in made:
            server.execute(f"DROP SCHEMA {schema} CASCADE")


def load_spark(session, source: str, folder: Path):
    for name, file in tables_of(source, folder).items():
        session.read.csv(str(file), header=True, inferSchema=True).createOrReplaceTempView(name)
    return session


def schemas_of(source: str) -> dict[str, str]:
    tables = needed(source)
    if source == "mimic4":
        return {name: "mimiciv_icu" if name == "icustays" else "mimiciv_hosp" for name in tables}
    return dict.fromkeys(tables, "mimiciii" if source == "mimic3" else "cdm")


@pytest.mark.xdist_group("postgres")
@pytest.mark.parametrize("source", DEMOS)
def test_postgres_gives_the_same_cohort(source, demo, postgres):
    folder = demo(source)
    options = {"schema": ["cdm"]} if source == "omop" else {}
    options |= {"look_back": 365}
    there = build_cohort(source, postgres(source, folder, schemas_of(source)), **options)
    assert there == build_cohort(source, folder, **{name: options[name] for name in options if name != "schema"})


@pytest.mark.slow  # what a second decides, below, is asked of Spark in every run
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("source", DEMOS)
def test_spark_gives_the_same_cohort(source, demo, spark):
    folder = demo(source)
    there = build_cohort(source, load_spark(spark, source, folder), look_back=365)
    assert there == build_cohort(source, folder, look_back=365)


FLAGGED = {
    "admissions": {"table": "stays", "admission_id": "id", "subject_id": "mrn", "admitted": "came"},
    "diagnoses": {"table": "dx", "admission_id": "id", "code": "icd", "icd_version": 10, "poa": "present"},
    "outcomes": {"mortality": "died"},
}


@pytest.fixture
def flagged(tmp_path) -> list[str]:
    """Own tables with flags of what was present on admission, as CSV in `tmp_path`; their names."""
    came = ["2020-01-01 06:00:00", "2020-03-01 06:00:00", "2020-02-01 06:00:00"]
    frames = {
        "stays": pd.DataFrame({"id": [1, 2, 3], "mrn": [7, 7, 8], "came": came, "died": [0, 1, 0]}),
        "dx": pd.DataFrame(
            {
                "id": [1, 1, 2, 2, 3],
                "icd": ["I50.9", "T81.4XXA", "E11.9", "I50.9", "J44.9"],
                "present": ["y", "N", None, "u", "1"],
            }
        ),
    }
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return list(frames)


@pytest.mark.xdist_group("postgres")
def test_postgres_gives_the_same_flags(flagged, tmp_path, postgres_server):
    import psycopg

    columns = {"stays": "id INT, mrn INT, came TIMESTAMP, died INT", "dx": "id INT, icd TEXT, present CHAR(1)"}
    with psycopg.connect(postgres_server, autocommit=True) as server:
        for name, types in columns.items():
            server.execute(f"CREATE TABLE {name} ({types})")
            with server.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write((tmp_path / f"{name}.csv").read_text())
        there = build_cohort("tables", postgres_server, config=FLAGGED, look_back=365)
        server.execute("DROP TABLE stays, dx")
    assert there == build_cohort("tables", tmp_path, config=FLAGGED, look_back=365)
    assert there.table["poa"].to_pylist() == [["Y", "N"], [None, "U", "Y"], ["1"]]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_gives_the_same_flags(flagged, tmp_path, spark):
    for name in flagged:
        spark.read.csv(f"{tmp_path}/{name}.csv", header=True, inferSchema=True).createOrReplaceTempView(name)
    assert build_cohort("tables", spark, config=FLAGGED) == build_cohort("tables", tmp_path, config=FLAGGED)


@pytest.mark.parametrize("source", DEMOS)
def test_duckdb_database_gives_the_same_cohort(source, demo, tmp_path):
    folder = demo(source)
    database = ibis.duckdb.connect(tmp_path / "hospital.duckdb")
    for name, file in tables_of(source, folder).items():
        database.create_table(f"x_{name.upper()}", database.read_csv(file))
    database.disconnect()
    there = build_cohort(source, f"duckdb://{tmp_path}/hospital.duckdb", prefix="x_")
    assert there == build_cohort(source, folder)


@pytest.mark.parametrize("source", DEMOS)
def test_every_row_of_the_diagnoses_is_written_or_counted_out(source, demo, tmp_path):
    folder = shutil.copytree(demo(source), tmp_path / "copy")
    before = build_cohort(source, folder)
    table, key, code = {
        "mimic3": ("DIAGNOSES_ICD", "hadm_id", "icd9_code"),
        "mimic4": ("hosp/diagnoses_icd", "hadm_id", "icd_code"),
        "omop": ("condition_occurrence", "visit_occurrence_id", "condition_source_value"),
    }[source]
    file = folder / f"{table}.csv"
    rows = pd.read_csv(file, dtype=str)
    first = rows[rows[key] == str(before.table["admission_id"][0])].head(1)
    nobody, nowhere, blank = (
        first.assign(**{column: value}) for column, value in ((key, "999"), (key, None), (code, None))
    )
    if source == "omop":
        blank = blank.assign(condition_source_concept_id="0")
    pd.concat([rows, nobody, nowhere, blank]).to_csv(file, index=False)
    after = build_cohort(source, folder)
    assert after.table.equals(before.table)
    assert sorted({*after.notes} - {*before.notes}) == [
        "1 diagnoses hold no ICD code (none, a chart entry, another vocabulary alone) and were left out.",
        f"2 rows of {Path(table).name.lower()} belong to no row of {next(iter(find(source).TABLES))} and were dropped.",
    ]


@pytest.fixture(
    params=[
        "folder",
        pytest.param("postgres", marks=pytest.mark.xdist_group("postgres")),
        pytest.param("spark", marks=[pytest.mark.xdist_group("spark"), pytest.mark.slow]),
    ]
)
def edges(request, tmp_path):
    """The hospital of edge cases on every engine."""
    folder = hospitals.write(tmp_path / "edges", hospitals.edges())
    if request.param == "postgres":
        return request.getfixturevalue("postgres")("mimic4", folder, schemas_of("mimic4"))
    if request.param == "spark":
        return load_spark(request.getfixturevalue("spark"), "mimic4", folder)
    return folder


def test_a_second_and_the_day_of_admission_decide_on_every_engine(edges):
    cohort = build_cohort("mimic4", edges)
    *timed, untimed = zip(*(cohort.table[name].to_pylist() for name in cohort.outcomes))
    assert timed == [expected for _, expected in hospitals.EDGES]
    # Without a time of admission only death in hospital can be known.
    assert untimed == (False, None, None, None)
    assert any(note.startswith("1 admissions have a date of death on the day of admission") for note in cohort.notes)
    counted = build_cohort("mimic4", edges, death_day_counts=True)
    pairs = zip(*(each.table["mortality_30d"].to_pylist() for each in (cohort, counted)))
    assert [row for row, (before, after) in enumerate(pairs) if before != after] == [7]


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])
@pytest.mark.parametrize("source", DEMOS)
def test_warehouses_compile(source, dialect, demo):
    wanted = needed(source)
    with open_tables(demo(source), wanted) as tables:
        bare = {name: ibis.table(tables[name].schema(), name=name) for name in wanted}
    asked = [find(source)._admissions]
    if source.startswith("mimic"):  # which asks for codes apart
        version = {"icd_version": 10} if source == "mimic4" else {}
        asked = [query.of for query in find(source)._queries(death_day_counts=False, **version)]
    sql = "".join(ibis.to_sql(each(bare), dialect=dialect) for each in asked)
    assert all(name in sql for name in bare)
    assert source != "mimic4" or "seq_num" in sql


def test_duckdb_spills_into_a_private_folder(demo):
    """Two connections that spill into the same one crash."""

    def folder(tables) -> Path:
        return Path(tables.backend.con.sql("SELECT current_setting('temp_directory')").fetchone()[0])

    place = demo("mimic4"), find("mimic4").TABLES
    with open_tables(*place) as one, open_tables(*place) as two:
        folders = folder(one), folder(two)
        assert folders[0] != folders[1]
        assert all(each.stat().st_mode & 0o777 == 0o700 for each in folders)
    del one, two
    gc.collect()
    assert not any(each.exists() for each in folders)


def test_a_parquet_column_of_another_kind_is_named(tmp_path):
    pq.write_table(pa.table({"HADM_ID": [1], "INTIME": [20200101]}), tmp_path / "icustays.parquet")
    wanted = {"icustays": {"hadm_id": "int64", "intime": "timestamp", "outtime": "timestamp?"}}
    with pytest.raises(InputError, match=r"icustays\.parquet: column intime: is BIGINT; timestamp is needed"):
        open_tables(tmp_path, wanted)


def test_a_damaged_parquet_table_is_named(tmp_path):
    pq.write_table(pa.table({"hadm_id": list(range(9999))}), tmp_path / "icustays.parquet")
    whole = (tmp_path / "icustays.parquet").read_bytes()
    (tmp_path / "icustays.parquet").write_bytes(whole[:-20] + whole[-10:])
    with pytest.raises(InputError, match=r"icustays\.parquet: is not a table that can be read"):
        open_tables(tmp_path, {"icustays": {"hadm_id": "int64"}})
