"""An index with numeric outcomes: expected values, a score that adds up, and all exports."""

import numpy as np
import pandas as pd
import pytest

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.index import vary
from mlci.index.estimator import MLCI, load
from mlci.index.export import export
from mlci.index.learning import learn
from mlci.index.modelcard import model_card
from mlci.index.recalibrate import recalibrate

CONFIG = {"penalty": {"common": 0.05, "own": 0.05, "folds": 2}}
EFFECTS = np.array([0.9, 0.1, 0.5, 0.7, -0.3])


@pytest.fixture(scope="module")
def hospital():
    rng, n = np.random.default_rng(0), 1500
    codes = np.array(["I509", "E119", "J189", "N179", "I10"])
    chosen = rng.random((n, 5)) < 0.35
    frame = pd.DataFrame({"admission_id": np.arange(n), "subject_id": np.arange(n)})
    frame["codes"] = [codes[row].tolist() or ["Z00"] for row in chosen]
    frame["died"] = rng.random(n) < 1 / (1 + np.exp(2 - chosen @ EFFECTS))
    frame["days"] = rng.poisson(np.exp(1 + chosen @ EFFECTS))
    frame["change"] = 100 * (chosen @ EFFECTS) + rng.normal(0, 50, n)
    frame["split"] = np.where(np.arange(n) % 4 == 0, "valid", "train")
    options = {"outcomes": {"mortality": "died"}, "keep": ["days", "change"], "split": "split"}
    return frame, Cohort.from_frame(frame, icd_version=10, **options)


@pytest.fixture(scope="module")
def index(hospital):
    return MLCI(config=CONFIG).fit(hospital[1], numeric={"days": "", "change": "gaussian"})


def test_expected_numbers_are_calibrated_and_in_their_unit(hospital, index):
    frame, cohort = hospital
    table = index.table(cohort)
    valid = (frame["split"] == "valid").to_numpy()
    assert frame["days"][valid].sum() / table["expected_days"][valid].sum() == pytest.approx(1, abs=0.06)
    assert frame["change"][valid].mean() == pytest.approx(table["expected_change"][valid].mean(), abs=8)
    for name in ("days", "change"):
        residual = ((frame[name] - table[f"expected_{name}"]) ** 2)[valid].sum()
        assert residual < 0.75 * ((frame[name] - frame[name][valid].mean()) ** 2)[valid].sum()
    assert list(index.risk(cohort)) == ["mortality"]
    assert index.model_.numbers == {"days": "poisson", "change": "gaussian"}


def test_the_score_follows_the_numbers_and_still_adds_up(hospital, index):
    frame, cohort = hospital
    plain = MLCI(config=CONFIG).fit(cohort)
    with_numbers, without = (np.corrcoef(found.score(cohort), frame["days"])[0, 1] for found in (index, plain))
    assert with_numbers > without
    explanation = index.explain(["I50.9", "N17.9"], icd_version=10)
    assert explanation.base_score + sum(effect.effect for effect in explanation) == pytest.approx(explanation.score)
    assert list(explanation.log_odds) == ["mortality", "days", "change"]
    assert list(explanation.risk_log_odds) == ["mortality"]


def test_the_file_and_the_card_record_numeric_outcomes(hospital, index, tmp_path):
    index.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    pd.testing.assert_frame_equal(again.table(hospital[1]), index.table(hospital[1]))
    assert "days (poisson), change (gaussian)" in model_card(again.model_)


def test_numeric_outcomes_are_exported_to_sql_and_csv_but_not_to_a_workbook(hospital, index, tmp_path):
    import duckdb

    _, cohort = hospital
    export(index.model_, tmp_path / "score.sql")
    expected = index.table(cohort)
    rows = cohort.table.select(["admission_id", "codes"]).to_pandas().explode("codes").rename(columns={"codes": "code"})
    diagnoses = rows.assign(icd_version=10)
    connection = duckdb.connect()
    connection.register("diagnoses", diagnoses)
    connection.execute((tmp_path / "score.sql").read_text())
    found = connection.execute("SELECT * FROM mlci_scores ORDER BY admission_id").df()
    for name in ("score", "risk_mortality", "expected_days", "expected_change"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-8)
    export(index.model_, tmp_path / "weights.csv")
    assert {"mortality", "days", "change"} <= set(pd.read_csv(tmp_path / "weights.csv"))
    parts = pd.read_csv(tmp_path / "weights_curves.csv").set_index("outcome")["part"]
    assert "expected, log" in set(parts["days"])
    assert "risk" in set(parts["mortality"])
    with pytest.raises(InputError, match="a workbook cannot hold numeric outcomes"):
        export(index.model_, tmp_path / "weights.xlsx")


def test_recalibration_does_not_change_expected_numbers(hospital, index):
    _, cohort = hospital
    recalibrated = recalibrate(index.model_, cohort).model
    assert recalibrated.expected(recalibrated.read(cohort.admissions()))["days"].mean() == pytest.approx(
        index.table(cohort)["expected_days"].mean()
    )
    with pytest.raises(InputError, match="does not support numeric outcomes"):
        recalibrate(index.model_, cohort, update="weights")


@pytest.mark.parametrize(
    ("recipe", "numeric", "message"),
    [
        ("deep", ["days"], "the recipe deep does not accept numeric outcomes; the recipe table does"),
        ("table", ["absent"], "no numeric column absent"),
        ("table", ["mortality"], "is an outcome of the cohort already"),
    ],
)
def test_invalid_options_are_refused(hospital, recipe, numeric, message):
    with pytest.raises(InputError, match=message):
        MLCI(recipe=recipe).fit(hospital[1], numeric=numeric)


def test_refits_use_the_numeric_outcomes(hospital, index, monkeypatch):
    _, cohort = hospital
    calls = []
    monkeypatch.setattr(vary, "learn", lambda *data, **options: calls.append(options) or learn(*data, **options))
    vary.resample_training(index.model_, cohort, cohort.split("valid"), times=2)
    assert [options["numeric"] for options in calls] == [index.model_.numbers] * 2
