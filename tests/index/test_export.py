import contextlib
import csv
import shutil
import sqlite3
import subprocess
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sqlglot
from click.testing import CliRunner

from conftest import PATIENCE, require
from mlci.base.errors import InputError
from mlci.cli import cli
from mlci.codes.admissions import as_admissions
from mlci.cohort import build_cohort
from mlci.index._sql import DIALECTS, statements
from mlci.index._workbook import write_workbook
from mlci.index.estimator import MLCI
from mlci.index.export import LEAST, curves, export, fold, weights
from mlci.index.model import Model
from mlci.tokens import UNK
from toys import nested_code_lists, random_model, random_table

# Spark leaves the sockets that return Arrow data to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning")
RECALCULATE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry"><item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop></item></oor:items>"""
PLAIN = random_table()
RARE = replace(PLAIN, vocabulary=replace(PLAIN.vocabulary, support=(0,) * len(PLAIN.vocabulary.tokens)))


def with_gaps(model: Model) -> Model:
    """Return a table without every third row, even of prefixes of known codes; unknown codes add a weight, once."""
    vocabulary, weights = model.vocabulary, model.state["weights"].copy()
    weights[UNK] = 0.3, -0.7
    kept = [row for row in range(len(vocabulary.tokens)) if row % 3]
    parts = {name: tuple(getattr(vocabulary, name)[row] for row in kept) for name in ("tokens", "versions", "support")}
    weights = weights[[0, UNK, *(row + 2 for row in kept)]]
    return replace(model, vocabulary=replace(vocabulary, **parts), state={**model.state, "weights": weights})


IGNORING = with_gaps(replace(random_table(ignored=("10:A00", "10:B012")), quantiles=np.linspace(-1, 1, 21)))


def rows_of(lists: list[list[str]], version: int = 10) -> pd.DataFrame:
    """Return one row per code, in several spellings; an admission without codes has an empty row."""
    rows = [
        (number, version, f" {code[:3].lower()}.{code[3:]}" if code and number % 2 else code)
        for number, codes in enumerate(lists)
        for code in codes or [None]
    ]
    return pd.DataFrame(rows, columns=["admission_id", "icd_version", "code"])


def check_columns(found: pd.DataFrame, model: Model, lists: list[list[str]], *, version: int = 10) -> None:
    expected = model.columns(as_admissions(lists, icd_version=version))
    found = found.assign(admission_id=found["admission_id"].astype(int)).sort_values("admission_id")
    assert len(found) == len(lists)
    for name in set(expected) & set(found.columns):
        np.testing.assert_allclose(found[name].to_numpy(float), expected[name].astype(float), atol=1e-9, err_msg=name)


def test_an_exported_table_has_no_row_of_fewer_than_ten_admissions(tmp_path):
    assert 0 in PLAIN.vocabulary.support
    messages = export(PLAIN, tmp_path / "weights.csv")
    frame = pd.read_csv(tmp_path / "weights.csv", dtype={"code": str})
    assert "under 10" not in set(frame["admissions"])
    assert len(frame) == sum(least >= LEAST for least in PLAIN.vocabulary.support) < len(PLAIN.vocabulary.tokens)
    folded, what = fold(PLAIN)
    assert str(what) == messages[0]
    assert f"{what.rows:,} of {what.of:,} rows" in messages[0]
    # the reported change is the largest weight of a row that was left out
    left_out = sorted(set(PLAIN.vocabulary.tokens) - set(folded.vocabulary.tokens))
    data = as_admissions([[code] for code in left_out], icd_version=10)
    change = np.abs(PLAIN.read(data).log_odds - folded.read(data).log_odds)
    assert change.max() > 0
    rows = [list(PLAIN.vocabulary.tokens).index(code) + 2 for code in left_out]
    assert what.largest == pytest.approx(np.abs(PLAIN.state["weights"][rows]).max())
    assert export(PLAIN, tmp_path / "all.csv", all_rows=True)[0].startswith("Rows of rare codes are included")
    assert len(pd.read_csv(tmp_path / "all.csv")) == len(PLAIN.vocabulary.tokens)


def test_the_csv_holds_weights_titles_and_curves():
    frame, points = weights(PLAIN), curves(PLAIN)
    assert list(frame) == ["icd_version", "code", "title", "admissions", "mortality", "long stay"]
    assert frame.loc[frame["code"] == "A00", "title"].item() == "Cholera"
    np.testing.assert_array_equal(frame[["mortality", "long stay"]], PLAIN.state["weights"][2:])
    knots = points[(points["part"] == "score") & (points["outcome"] == "mortality")]
    np.testing.assert_array_equal(knots[["x", "y"]].T, [PLAIN.state["knots"][0], PLAIN.state["heights"][0]])


@pytest.mark.parametrize("model", [PLAIN, IGNORING], ids=["plain", "ignoring"])
@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_sql_gives_the_numbers_of_mlci_score(engine, model):
    lists = nested_code_lists(300)
    found = {"duckdb": on_duckdb, "sqlite": on_sqlite}[engine](model, rows_of(lists), None)
    assert list(found)[1:] == list(model.columns(as_admissions(lists[:1], icd_version=10)))
    check_columns(found, model, lists)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_sql_is_valid_in_each_dialect(dialect):
    *_, view = statements(
        replace(PLAIN, quantiles=np.linspace(-1, 1, 11)), dialect
    )  # fewer quantiles, for a shorter statement
    tree = sqlglot.parse_one(view, read=dialect)
    assert tree.find(sqlglot.exp.Create)
    quote = "`" if dialect in ("spark", "bigquery") else '"'
    assert f"{quote}risk_long stay{quote}" in view
    assert ("MATERIALIZED" in view) == (dialect in ("duckdb", "postgres", "sqlite"))


def test_the_command_writes_all_three_forms(tmp_path):
    PLAIN.save(tmp_path / "m.safetensors")
    for name in ("weights.csv", "weights.xlsx", "score.sql"):
        done = CliRunner().invoke(cli, ["export", str(tmp_path / "m.safetensors"), "-o", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert "rows have fewer than 10 training admissions" in done.output
    assert {path.name for path in tmp_path.iterdir()} >= {
        "weights_curves.csv",
        "weights.R",
        "score.sql",
        "weights.xlsx",
    }
    assert (tmp_path / "score.sql").read_text().startswith("-- Severity scores from diagnoses")


@pytest.mark.parametrize(
    ("model", "name", "options", "words"),
    [
        (random_model(), "w.csv", {}, "only models of the recipe table"),
        (PLAIN, "w.txt", {}, r"\.csv, \.xlsx or \.sql"),
        (PLAIN, "w.sql", {"dialect": "oracle"}, "allowed are duckdb"),
        (PLAIN, "w.sql", {"table": "x; DROP TABLE y"}, "not a valid table name"),
        (random_table(primary=True), "w.csv", {}, "separate rows for the first code"),
        (RARE, "w.xlsx", {}, "no code has at least 10 training admissions behind it; --all-rows"),
    ],
)
def test_models_that_cannot_be_exported_are_refused(model, name, options, words, tmp_path):
    with pytest.raises(InputError, match=words):
        export(model, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("model", [PLAIN, IGNORING], ids=["plain", "ignoring"])
def test_the_r_script_gives_the_numbers_of_mlci_score(model, tmp_path):
    require(shutil.which("Rscript"), "R", "apt install r-base-core")
    export(model, tmp_path / "weights.csv", all_rows=True)
    assert len((tmp_path / "weights.R").read_text().splitlines()) <= 20
    lists = nested_code_lists(200)
    rows_of(lists).to_csv(tmp_path / "admissions.csv", index=False)
    subprocess.run(["Rscript", tmp_path / "weights.R", tmp_path / "admissions.csv", tmp_path / "s.csv"], check=True)
    found = pd.read_csv(tmp_path / "s.csv")
    assert {"score", "risk_mortality", "risk_long stay", "unknown_share"} <= set(found)
    check_columns(found, model, lists)


@pytest.mark.slow
@pytest.mark.parametrize("model", [PLAIN, IGNORING], ids=["plain", "ignoring"])
def test_the_workbook_gives_the_numbers_of_mlci_score(model, tmp_path):
    office = shutil.which("soffice")
    require(office, "LibreOffice", "apt install libreoffice-calc-nogui")
    lists = [["A000", "A001", "A0012X4A", "A00", "ZZZ"], ["I01.2", "i012", "B002"], []]
    for number, codes in enumerate(lists):
        book = tmp_path / f"{number}.xlsx"
        write_workbook(model, book, weights(model), about=[], typed=[(10, code) for code in codes])
    out = ["--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false", "--outdir", str(tmp_path)]
    (tmp_path / "profile" / "user").mkdir(parents=True)
    (tmp_path / "profile" / "user" / "registrymodifications.xcu").write_text(RECALCULATE)
    profile = f"-env:UserInstallation=file://{tmp_path}/profile"
    books = [str(tmp_path / f"{number}.xlsx") for number in range(len(lists))]
    words = [str(office), profile, "--headless", *out, *books]
    subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE)
    expected = model.columns(as_admissions(lists, icd_version=10))
    for number in range(len(lists)):
        with open(tmp_path / f"{number}.csv", newline="") as file:
            cells = list(csv.reader(file))
        assert float(cells[1][4]) == pytest.approx(expected["score"][number], abs=1e-9)
        assert float(cells[1][6]) == pytest.approx(expected["percentile"][number], abs=1e-6)
        risks = [float(cells[3][column].rstrip("%")) / 100 for column in (7, 8)]
        assert risks == pytest.approx([expected[f"risk_{name}"][number] for name in model.outcomes], abs=1e-9)


@pytest.fixture(scope="module")
def diagnoses_of_three_sources(demos) -> tuple[Model, pd.DataFrame]:
    """Return a table model with both ICD versions, fitted to the MIMIC-IV demo, and the diagnoses of three sources."""
    rows = []
    for name, file, code in (("mimic3", "DIAGNOSES_ICD.csv", "icd9_code"), ("mimic4", "diagnoses_icd.csv", "icd_code")):
        found = pd.read_csv(next((demos / f"{name}_demo").rglob(file)), dtype={code: str})
        versions = found.get("icd_version", 9)
        ids = name + found["hadm_id"].astype(str)
        rows.append(pd.DataFrame({"admission_id": ids, "icd_version": versions, "code": found[code].str.strip()}))
    nhds = build_cohort("nhds", demos / "nhds2010" / "sample.txt.bz2").table.to_pandas()
    nhds = nhds[["admission_id", "icd_version", "codes"]].explode("codes").rename(columns={"codes": "code"})
    rows.append(nhds.assign(admission_id="nhds" + nhds["admission_id"].astype(str)))
    stays = pd.read_csv(demos / "mimic4_demo" / "hosp" / "admissions.csv").set_index("hadm_id")
    ids = rows[1]["admission_id"].unique()
    stays = stays.loc[[int(each.removeprefix("mimic4")) for each in ids]]
    days = (pd.to_datetime(stays["dischtime"]) - pd.to_datetime(stays["admittime"])).dt.days
    outcomes = {"mortality": stays["hospital_expire_flag"].tolist(), "long_stay": (days > 7).astype(int).tolist()}
    index = MLCI(recipe="table", anchor=None).fit(rows[1], outcomes)
    return index.model_, pd.concat(rows, ignore_index=True)


def on_duckdb(model, rows, _):
    import duckdb

    with duckdb.connect() as db:
        db.execute("CREATE TABLE diagnoses AS SELECT * FROM rows")
        for statement in statements(model, "duckdb"):
            db.execute(statement)
        return db.execute("FROM mlci_scores").df()


def on_sqlite(model, rows, _):
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        rows.to_sql("diagnoses", db, index=False)
        for statement in statements(model, "sqlite"):
            db.execute(statement)
        return pd.read_sql("SELECT * FROM mlci_scores", db)


def on_postgres(model, rows, request):
    import psycopg

    with psycopg.connect(request.getfixturevalue("postgres_server")) as db:
        db.execute("CREATE TABLE diagnoses (admission_id text, icd_version integer, code text)")
        with db.cursor().copy("COPY diagnoses FROM STDIN") as copy:
            for row in rows.astype(object).where(rows.notna(), None).itertuples(index=False):
                copy.write_row(row)
        for statement in statements(model, "postgres"):
            db.execute(statement)
        cursor = db.execute("SELECT * FROM mlci_scores")
        found = pd.DataFrame(cursor.fetchall(), columns=[column.name for column in cursor.description or ()])
        db.rollback()
    return found


def on_spark(model, rows, request):
    spark = request.getfixturevalue("spark")
    folder = request.getfixturevalue("tmp_path")
    rows.to_parquet(folder / "rows.parquet")
    spark.read.parquet(str(folder / "rows.parquet")).createOrReplaceTempView("diagnoses")
    first, second, create, *inserts, view = statements(model, "spark")
    assert [first.split()[0], second.split()[0], create.split()[0]] == ["DROP", "DROP", "CREATE"]
    for statement in (second, f"{create} USING parquet LOCATION '{folder}/weights'", *inserts):
        spark.sql(statement)
    spark.sql(view.replace("CREATE VIEW", "CREATE OR REPLACE TEMPORARY VIEW"))  # since `diagnoses` is one
    found = spark.sql("SELECT * FROM mlci_scores").toArrow().to_pandas()
    spark.sql(second)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("engine", [on_duckdb, on_sqlite, on_postgres, on_spark])
def test_sql_scores_three_sources_in_their_database(engine, diagnoses_of_three_sources, request):
    model, rows = diagnoses_of_three_sources
    if engine is on_spark:
        rows = rows[~rows["admission_id"].str.startswith("nhds") | rows["admission_id"].str.endswith("77")]  # a sample
    found = engine(model, rows, request).set_index("admission_id")
    admissions = as_admissions(rows)
    assert len(found) == len(admissions)
    found = found.loc[admissions.ids]
    for name, column in model.columns(admissions).items():
        np.testing.assert_allclose(found[name].to_numpy(float), column.astype(float), atol=1e-9, err_msg=name)
