"""`mlci explain`: rows of codes add up to what `mlci score` gives, typed codes are explained, bad input is reported."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.base.tablewriter import writing
from mlci.codes.admissions import Admissions
from mlci.fitting._people import ROWS
from mlci.index.estimator import load
from mlci.index.explaining import explain_file, explained
from toys import NESTED_CODES, random_model, random_table

lists = st.lists(st.lists(st.sampled_from([*NESTED_CODES[:30], "ZZZ"]), max_size=6), max_size=5)


@pytest.fixture
def visits(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("visit_id,icd_version,codes\na,10,I50.9 N17.9 E11.9\nb,9,486 518.81\nc,10,\nd,10,K35.80 ZZZ9\n")
    return path


@given(lists=lists, primary=st.booleans())
@settings(max_examples=30, deadline=None)
def test_rows_of_a_table_add_up_to_score_and_log_odds(lists, primary):
    model = random_table(primary=primary)
    admissions = Admissions.from_lists(lists, icd_version=10)
    rows, reading = explained(model, admissions).to_pandas(), model.read(admissions)
    assert len(rows) == len(lists) + sum(map(len, lists))
    sums = rows.groupby("admission_id").sum(numeric_only=True)
    np.testing.assert_allclose(sums["score"], reading.score, atol=1e-9)
    np.testing.assert_allclose(sums.filter(like="log_odds_"), reading.log_odds, atol=1e-9)


def test_a_file_is_explained_as_it_is_scored(mlci_cli, visits, tmp_path):
    mlci_cli("score", "us2010", visits, "-o", tmp_path / "scores.csv")
    for name in ("why.csv", "why.parquet", "why.xlsx"):
        done = mlci_cli("explain", "us2010", visits, "-o", tmp_path / name)
        assert "7 codes of 4 admissions. Rows add up." in done.stderr
    rows, scores = pd.read_csv(tmp_path / "why.csv"), pd.read_csv(tmp_path / "scores.csv")
    sums = rows.groupby("admission_id")["score"].sum()
    np.testing.assert_allclose(sums[scores.admission_id], scores.score, atol=1e-9)
    own = rows[rows.admission_id == "b"]
    assert own.code.tolist()[1:] == ["486", "518.81"]
    assert own.title.tolist() == ["without codes", "Pneumonia, organism unspecified", "Acute respiratory failure"]
    assert rows[rows.code == "ZZZ.9"].known.tolist() == [False]
    again = pd.read_parquet(tmp_path / "why.parquet").drop(columns="known")
    pd.testing.assert_frame_equal(again, rows.drop(columns="known"), check_dtype=False)
    assert len(pd.read_excel(tmp_path / "why.xlsx", engine="calamine")) == len(rows)


def test_batches_do_not_matter_and_networks_leave_codes_out(visits, tmp_path, monkeypatch):
    table, network = random_table(), random_model()
    whole = _explained(table, visits, tmp_path)
    monkeypatch.setattr("mlci.index.explaining.BATCH", 1)
    pd.testing.assert_frame_equal(_explained(table, visits, tmp_path), whole)
    rows = _explained(network, visits, tmp_path)
    assert len(rows) == 7
    assert rows.code.notna().all()


def _explained(model, source, folder) -> pd.DataFrame:
    tally = explain_file(model, source, folder / "rows.parquet", on_guess=lambda said: None)
    assert tally.admissions == 4
    return pd.read_parquet(folder / "rows.parquet")


def test_a_file_without_rows_is_explained_without_rows(mlci_cli, tmp_path):
    (tmp_path / "none.csv").write_text("visit_id,icd_version,codes\n")
    mlci_cli("explain", "us2010", "none.csv", "-o", "why.csv")
    assert (tmp_path / "why.csv").read_text().startswith('"admission_id","code","title","known","score"')


def test_a_percentile_below_100_is_not_printed_as_100(mlci_cli):
    done = mlci_cli("explain", "us2010", "A41.9", "J96.01", "I46.9", "G93.5")
    assert ", percentile 99.6: high severity." in done.stdout  # as on the page


@pytest.mark.parametrize(("typed", "version"), [(["I50.9", "N17.9"], 10), (["486", "518.81"], 9), (["486 518.81"], 9)])
def test_typed_codes_are_explained(mlci_cli, typed, version):
    done = mlci_cli("explain", "us2010", *typed)
    index = load("us2010")
    score = index.score([" ".join(typed).split()], icd_version=version)[0]
    assert f"Score {score:.3f}, percentile " in done.stdout
    assert f"read as ICD-{version}" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    column = re.findall(r"  ([+-]\d\.\d{3})  ", done.stdout)
    assert len(column) == 4
    assert sum(map(float, column[:-1])) == pytest.approx(float(column[-1]), abs=0.002)


def test_typing_errors_are_reported_with_suggestions(mlci_cli):
    done = mlci_cli("explain", "us2010", "I50.9", "sepsis", "--icd-version", "10")
    assert (
        "'sepsis' is not understood and does not count (did you mean A41.9 Sepsis, unspecified organism" in done.stderr
    )
    assert "I50.9 Heart failure" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["foo", "bar"], "no ICD code was found"),
        (["518.81", "--icd-version", "10"], "it is an ICD-9 code"),
        (["486", "I50.9"], "ICD version of these codes is ambiguous"),
        (["E11.9", "XX1.2", "FF4.44"], "fewer than half"),
        (["I50.9", "--icd-version", "year"], "--icd-version must be 9 or 10"),
        (["I50.9", "--id", "visit"], "need a file"),
        (["I50.9", "--age", "70"], "do not depend on age"),
        (["I50.9", "--age", "70", "-o", "why.csv"], "leave out -o"),
        (["visits.csv"], "needs -o"),
        (["visits.csv", "-o", "why.csv", "--sex", "F"], "need typed codes"),
        (["visits.csv", "-o", "visits.csv"], "visits.csv"),
        (["visits.xls", "-o", "why.csv"], "visits.xls: a spreadsheet is read as .xlsx"),
        (["nothing.csv", "-o", "why.csv"], "nothing.csv: there is no such file"),
    ],
)
def test_bad_input_is_one_sentence(mlci_cli, visits, words, said):
    before = visits.read_bytes()
    visits.with_name("visits.xls").touch()
    done = mlci_cli("explain", "us2010", *words, code=2)
    assert said in done.stderr
    assert done.stdout == ""
    assert visits.read_bytes() == before
    assert not visits.with_name("why.csv").exists()


def test_age_and_sex_are_rows_of_the_risks(mlci_cli, tmp_path):
    model, rows = random_table(), 2 + len(ROWS)
    state = {**model.state, "people": np.linspace(-1, 1, 2 * rows).reshape(rows, 2)}
    card = {**model.card, "config": {**model.card["config"], "people": {"age": True, "sex": True}}}
    replace(model, state=state, card=card).save(tmp_path / "m.safetensors")
    done = mlci_cli("explain", "m.safetensors", NESTED_CODES[0], "--icd-version", "10", "--age", "70", "--sex", "F")
    assert done.stdout.count(", in the risks") == 2


def test_typed_codes_go_to_a_file_too(mlci_cli, tmp_path):
    mlci_cli("explain", "us2010", "I50.9", "-o", "why.csv")
    rows = pd.read_csv(tmp_path / "why.csv")
    with writing(tmp_path / "again.csv") as write:
        write(explained(load("us2010").model_, Admissions.from_lists([["I509"]], icd_version=10)))
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "why.csv").read_text()
    assert rows.score.sum() == pytest.approx(load("us2010").score([["I50.9"]], icd_version=10)[0])
