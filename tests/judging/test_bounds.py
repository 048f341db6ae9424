import numpy as np
import pytest

from mlci.judging.bounds import bounds
from mlci.measures.design import Design
from mlci.measures.discrimination import auroc


def test_bounds_are_the_figures_with_missing_outcomes_filled_in():
    rng = np.random.default_rng(0)
    score, risk = rng.normal(size=300), rng.random(300)
    y = (rng.random(300) < risk).astype(float)
    holes = np.where(rng.random(300) < 0.2, np.nan, y)
    found = bounds({"a": score}, {"whole": y, "holes": holes}, risks={"a": {"holes": risk}})
    assert set(found["outcome"]) == {"holes"}
    assert set(found["missing"]) == {np.isnan(holes).sum()}
    row = found.set_index("figure").loc["auroc"]
    assert row["known"] == auroc(score, holes)
    assert row["all_absent"] == auroc(score, np.nan_to_num(holes))
    assert row["all_present"] == auroc(score, np.nan_to_num(holes, nan=1.0))
    ratio = found.set_index("figure").loc["observed_expected"]
    assert ratio["all_absent"] == pytest.approx(np.nansum(holes) / risk.sum())
    assert ratio["all_absent"] < ratio["known"] < ratio["all_present"]
    share = found.set_index("figure").loc["share"]
    assert share["all_absent"] == pytest.approx(np.nansum(holes) / 300)
    assert share["all_present"] == pytest.approx((np.nansum(holes) + np.isnan(holes).sum()) / 300)
    assert set(bounds({"a": score}, {"holes": holes})["figure"]) == {"share", "auroc", "dcorr"}


def test_an_unknown_outcome_has_scenarios_but_no_value():
    found = bounds({"a": np.arange(5.0)}, {"unknown": np.full(5, np.nan)}).set_index("figure")
    assert found.loc["share", ["all_absent", "all_present"]].tolist() == [0, 1]
    assert found["known"].isna().all()
    assert found.loc[["auroc", "dcorr"], ["all_absent", "all_present"]].isna().all(axis=None)


def test_an_outcome_that_only_admissions_of_weight_0_know_has_no_figures():
    y = np.where(np.arange(40) < 20, np.arange(40) % 2, np.nan)
    design = Design.of(np.arange(40), weights=np.where(np.arange(40) < 20, 0.0, 1.0))
    frame = bounds({"a": np.arange(40.0)}, {"died": y}, patients=design).set_index("figure")
    assert frame["known"].isna().all()
    assert frame.loc["share", ["all_absent", "all_present"]].tolist() == [0, 1]
