import numpy as np
import pytest

from mlci.judging.evaluate import judge
from mlci.judging.groups import LEAST, by_group, interactions, shown_groups, small
from mlci.measures.design import Design
from mlci.measures.discrimination import auroc


@pytest.fixture(scope="module")
def hospital():
    """Return score, risk, deaths and sex; men die with twice the odds of the risk, and a few are of unknown sex."""
    rng = np.random.default_rng(0)
    n = 3000
    odds = rng.normal(size=n) - 2
    sex = np.where(np.arange(n) % 2 == 0, "F", "M").astype(object)
    sex[:8] = None
    died = (rng.random(n) < 1 / (1 + np.exp(-odds - 0.7 * (sex == "M")))).astype(float)
    died[100:120] = np.nan
    return odds, 1 / (1 + np.exp(-odds)), died, sex


def test_groups_have_their_own_figures_and_small_ones_are_merged(hospital):
    score, risk, died, sex = hospital
    found = by_group(score, {"died": risk}, {"died": died, "other": died}, {"sex": sex}, patients=np.arange(3000))
    assert found["group"].tolist() == [
        "M",
        "F or not known",
    ]  # alone, the few of unknown sex could be found by subtraction
    assert set(found["outcome"]) == {"died"}
    men, women = found.to_dict("records")
    rows = sex != "M"
    known = rows & ~np.isnan(died)
    assert women["auroc"] == auroc(score[rows], died[rows])
    assert women["ratio"] == pytest.approx(died[known].sum() / risk[known].sum())
    assert (women["n"], women["positives"]) == (known.sum(), died[known].sum())
    assert women["ratio_low"] < 1 < women["ratio_high"]
    assert men["ratio_low"] > 1.2


def test_copies_of_admissions_do_not_narrow_intervals(hospital):
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


def test_differences_in_level_and_in_slope_are_found(hospital):
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


def test_copies_of_admissions_do_not_add_evidence():
    rng = np.random.default_rng(2)
    rejected = 0
    for _ in range(150):
        patient = np.repeat(np.arange(150), 3)
        risk, ward = rng.random(150)[patient], rng.integers(0, 2, 150)[patient]
        died = (rng.random(150) < risk[::3]).astype(float)[patient]
        rejected += interactions({"d": risk}, {"d": died}, {"w": ward}, patients=patient)["level"].iloc[0] < 0.05
    assert rejected <= 17


@pytest.mark.parametrize("seed", range(20))
def test_no_count_below_ten_can_be_derived(seed):
    rng = np.random.default_rng(seed)
    ward = rng.choice(list("ABCDE"), 400, p=rng.dirichlet(np.ones(5)))
    died = (rng.random(400) < rng.uniform(0.02, 0.6)).astype(float)
    died[rng.random(400) < 0.1] = np.nan
    shown = shown_groups(ward, died)
    for kind in (0, 1):
        counts = [int((died[inside] == kind).sum()) for _, inside in shown]
        rest = int((died == kind).sum()) - sum(counts)
        assert min(counts, default=LEAST) >= LEAST
        assert rest == 0 or rest >= LEAST or not shown
    assert sum(inside.sum() for _, inside in shown) <= 400


def test_no_more_groups_are_hidden_than_necessary():
    assert not small([10, 12], [50, 60]).any()
    assert small([6, 7, 30], [50, 60, 70]).tolist() == [True, True, False]  # only their sum, thirteen, can be derived
    assert small([0, 30, 20, 40], [90, 90, 90, 90]).tolist() == [True, False, True, False]
    assert small([3], [50]).tolist() == [True]


def test_evaluation_and_comparison_show_the_same_groups(hospital):
    score, risk, died, sex = hospital
    found = judge({"a": score}, {"died": died}, risks={"a": {"died": risk}}, by={"sex": sex}, resamples=0).table
    assert list(dict.fromkeys(found["group"])) == ["", "M", "F or not known"]
    counts = found[found["metric"] == "auroc"].set_index("group")["positives"]
    assert counts["M"] + counts["F or not known"] == counts[""]


def test_a_group_whose_weights_are_all_0_has_no_figures():
    rng = np.random.default_rng(0)
    risk, ward = rng.random(400), np.array(["A", "B"] * 200)
    died, weight = (rng.random(400) < risk).astype(float), np.where(ward == "A", 0.0, 1.0)
    design = Design.of(np.arange(400), weights=weight)
    frame = by_group(risk, {"died": risk}, {"died": died}, {"ward": ward}, patients=design).set_index("group")
    assert frame.loc["A", ["auroc", "auroc_low", "ratio", "ratio_low"]].isna().all()
    assert frame.loc["B", "n"] == 200
    assert frame.loc["B", "ratio_low"] < frame.loc["B", "ratio"] < frame.loc["B", "ratio_high"]
