import numpy as np
import pytest

from mlci.judging.groups import by_group, interactions
from mlci.measures.discrimination import auroc


@pytest.fixture(scope="module")
def hospital():
    """Women die as their risk says; men twice as often in odds; a few of unknown sex."""
    rng = np.random.default_rng(0)
    n = 3000
    odds = rng.normal(size=n) - 2
    sex = np.where(np.arange(n) % 2 == 0, "F", "M").astype(object)
    sex[:8] = None
    died = (rng.random(n) < 1 / (1 + np.exp(-odds - 0.7 * (sex == "M")))).astype(float)
    died[100:120] = np.nan
    return odds, 1 / (1 + np.exp(-odds)), died, sex


def test_groups_have_their_own_figures_and_few_are_left_out(hospital):
    score, risk, died, sex = hospital
    found = by_group(score, {"died": risk}, {"died": died, "other": died}, {"sex": sex}, patients=np.arange(3000))
    assert found["group"].tolist() == ["F", "M"]
    assert set(found["outcome"]) == {"died"}
    women, men = found.to_dict("records")
    rows = sex == "F"
    known = rows & ~np.isnan(died)
    assert women["auroc"] == auroc(score[rows], died[rows])
    assert women["ratio"] == pytest.approx(died[known].sum() / risk[known].sum())
    assert (women["n"], women["positives"]) == (known.sum(), died[known].sum())
    assert women["ratio_low"] < 1 < women["ratio_high"]
    assert men["ratio_low"] > 1.2


def test_a_patient_admitted_twice_alike_is_worth_one(hospital):
    score, risk, died, sex = hospital
    single, double = (
        by_group(
            np.tile(score, times),
            {"died": np.tile(risk, times)},
            {"died": np.tile(died, times)},
            {"sex": np.tile(sex, times)},
            patients=np.tile(np.arange(3000), times),
        ).iloc[0]
        for times in (1, 2)
    )
    assert double["ratio_low"] == pytest.approx(single["ratio_low"], abs=1e-9)
    assert double["n"] == 2 * single["n"]


def test_groups_that_differ_are_found_in_level_or_in_slope(hospital):
    _, risk, died, sex = hospital
    rng = np.random.default_rng(1)
    parts = {"sex": sex, "coin": rng.integers(0, 3, 3000)}
    found = interactions({"died": risk}, {"died": died}, parts, patients=np.arange(3000)).set_index("by")
    assert found.loc["sex", "level"] < 1e-6
    assert found.loc["sex", "slope"] > 0.01
    assert found.loc["coin", "level"] > 0.01
    assert found["groups"].to_dict() == {"sex": 2, "coin": 3}
    steep = (rng.random(3000) < np.where(sex == "M", risk, risk.mean())).astype(float)
    found = interactions({"died": risk}, {"died": steep}, {"sex": sex}, patients=np.arange(3000))
    assert found["slope"].iloc[0] < 1e-6
    assert interactions({"died": risk}, {"died": died}, {"all": np.ones(3000)}, patients=np.arange(3000)).empty


def test_copies_of_an_admission_are_no_new_evidence():
    rng = np.random.default_rng(2)
    rejected = 0
    for _ in range(150):
        patient = np.repeat(np.arange(150), 3)
        risk, ward = rng.random(150)[patient], rng.integers(0, 2, 150)[patient]
        died = (rng.random(150) < risk[::3]).astype(float)[patient]
        rejected += interactions({"d": risk}, {"d": died}, {"w": ward}, patients=patient)["level"].iloc[0] < 0.05
    assert rejected <= 17
