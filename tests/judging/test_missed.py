"""What a score misses: the same as a regression of the outcome on the code with the score as offset."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.optimize import minimize
from scipy.special import expit

import mlci
from mlci.cli import cli
from mlci.judging.missed import COLUMNS, missed
from mlci.judging.smooth import smooth

CODES = ["I50.9", "A41.9", "I10", "N17.9"]


@pytest.fixture(scope="module")
def hospital() -> tuple[mlci.Cohort, np.ndarray]:
    """Heart failure and sepsis raise mortality, the other two do not; the score knows only heart failure."""
    rng = np.random.default_rng(0)
    has = rng.random((2_000, 4)) < [0.3, 0.2, 0.5, 0.2]
    died = rng.random(2_000) < expit(-2 + 1.0 * has[:, 0] + 1.5 * has[:, 1])
    codes = [[code for code, present in zip(CODES, row) if present] for row in has]
    frame = pd.DataFrame({"visit_id": range(2_000), "codes": codes, "died": died.astype(int)})
    frame = frame[[bool(row) for row in codes]]
    cohort = mlci.Cohort.from_frame(frame, icd_version=10, outcomes={"mortality": "died"})
    return cohort, np.array(["I509" in row for row in cohort.table["codes"].to_pylist()], dtype=float)


def test_effects_equal_a_regression_for_each_code(hospital):
    cohort, score = hospital
    table = missed({"points": score}, cohort).set_index("category")
    y = cohort.labels()[:, 0]
    risk = smooth(score, y)(score)
    logit = np.log(risk / (1 - risk))
    for code in ("A41", "I10", "N17"):
        has = np.array([any(c.startswith(code) for c in row) for row in cohort.table["codes"].to_pylist()])

        def loss(weights, has=has):
            shifted = logit + weights[0] + weights[1] * has
            return 2 * (np.logaddexp(0, shifted) - y * shifted).sum()

        best = minimize(loss, np.zeros(2))
        assert table.loc[code, "log_odds"] == pytest.approx(best.x[1], abs=0.06)
        assert table.loc[code, "deviance"] == pytest.approx(loss(np.zeros(2)) - best.fun, rel=0.05, abs=0.05)
        assert table.loc[code, "admissions"] == has.sum()


def test_the_missed_code_comes_first_and_counted_codes_add_nothing(hospital):
    cohort, score = hospital
    table = missed({"points": score}, cohort)
    assert list(table.columns) == COLUMNS
    first = table.iloc[0]
    assert (first["category"], first["title"]) == ("A41", "Other sepsis")
    assert first["low"] < 1.5 < first["high"]
    assert first["deviance_low"] > 20
    rest = table.set_index("category")
    assert rest.loc[["I50", "N17"], "deviance_low"].max() < 1
    assert table["inside"].isna().all()  # the lists of `points` are not known
    inside = missed({"cci_charlson": score}, cohort).set_index("category")["inside"]
    assert inside.to_dict() == {"A41": False, "I50": True, "I10": False, "N17": False}
    inside = missed({"gagne_score": score}, cohort).set_index("category")["inside"]
    assert inside.to_dict() == {"A41": False, "I50": True, "I10": True, "N17": False}


def test_codes_that_an_index_does_not_count_have_their_own_rows():
    rng = np.random.default_rng(1)
    old, new = rng.random((2, 600)) < 0.4
    frame = pd.DataFrame({"visit_id": range(600), "died": (rng.random(600) < 0.1 + 0.5 * new).astype(int)})
    frame["codes"] = [["I10", *["I258"] * a, *["I252"] * b] for a, b in zip(new.tolist(), old.tolist())]
    cohort = mlci.Cohort.from_frame(frame, icd_version=10, outcomes={"mortality": "died"})
    table = missed({"cci_charlson": mlci.charlson(cohort)["cci_charlson"].to_numpy()}, cohort)
    rows = table[table["category"] == "I25"].set_index("inside")  # Charlson counts I25.2 and not I25.8
    assert rows["admissions"].to_dict() == {True: int(old.sum()), False: int(new.sum())}
    assert rows.loc[False, "deviance_low"] > 10 > rows.loc[True, "deviance_high"]
    summed = missed({"s:cci_eci": np.zeros(600)}, cohort).set_index("category")["inside"]  # the name names two indices
    assert summed.loc["I25"].tolist() == [False, True]


def test_categories_of_icd9_have_titles(hospital):
    frame = pd.DataFrame({"visit_id": range(40), "codes": [["0389"], ["99592"]] * 20, "died": [0, 1] * 20})
    cohort = mlci.Cohort.from_frame(frame, icd_version=9, outcomes={"mortality": "died"})
    titles = missed({"points": np.zeros(40)}, cohort).set_index("category")["title"]
    assert titles["038"] == "Sepsis (blood infection)"
    assert titles.str.len().min() > 5


def test_rare_categories_and_rare_outcomes_are_left_out(hospital):
    cohort, score = hospital
    few = cohort.where(np.arange(len(cohort)) < 30)
    assert set(missed({"points": score[:30]}, few)["category"]) == {"I10", "I50"}  # N17 and A41 have 9 and 8 admissions
    fewer = cohort.where(np.arange(len(cohort)) < 12)
    assert missed({"points": score[:12]}, fewer).empty  # fewer than ten deaths
    with pytest.raises(mlci.InputError, match="points: has 3 admissions, but the cohort has"):
        missed({"points": np.zeros(3)}, cohort)


def test_the_command_prints_and_writes_missed_codes(hospital, tmp_path):
    cohort, _ = hospital
    cohort.write(tmp_path / "c.parquet")
    run = CliRunner().invoke
    run(cli, ["indices", str(tmp_path / "c.parquet"), "-o", str(tmp_path / "s.csv"), "-q"], catch_exceptions=False)
    words = ["evaluate", str(tmp_path / "s.csv"), str(tmp_path / "c.parquet"), "--split", "all", "--resamples", "0"]
    words += ["--score", "cci_charlson", "--missed", "-o", str(tmp_path / "m.csv")]
    done = run(cli, words, catch_exceptions=False)
    assert "Code categories that cci_charlson misses for mortality" in done.output
    assert "A41 Other sepsis" in done.output
    assert "I50 " not in done.output  # counted by Charlson
    assert pd.read_csv(tmp_path / "m_missed.csv")["category"].iloc[0] == "A41"
