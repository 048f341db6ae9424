import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.cohort import build_cohort
from mlci.index.estimator import MLCI
from mlci.index.vary import resample_training
from mlci.measures.discrimination import auroc


@pytest.fixture(scope="module")
def fitted():
    cohort = build_cohort("synthetic", 500)
    return MLCI(outcomes=["long_stay"]).fit(cohort), cohort


def test_new_fits_lie_around_each_other(fitted):
    index, cohort = fitted
    told = []
    found = resample_training(index, cohort, cohort.split("test"), times=2, seed=1, on_fit=told.append)
    assert told == [1, 2]
    cell = found.set_index(["outcome", "figure"])
    assert (cell["least"] <= cell["mean"]).all()
    assert (cell["mean"] <= cell["largest"]).all()
    assert (cell.loc[("long_stay", "auroc"), "sd"]) > 0
    assert 0.5 < cell.loc[("score", "rank correlation"), "mean"] < 1
    assert 0 < cell.loc[("score", "moved by a tenth"), "mean"] < 1
    own = cell.loc[("long_stay", "auroc"), "value"]
    y = cohort.split("test").labels("long_stay")[:, 0]
    assert own == auroc(index.score(cohort.split("test")), y)


def test_what_cannot_be_done_is_said(fitted):
    index, cohort = fitted
    with pytest.raises(InputError, match="2 and more"):
        resample_training(index, cohort, cohort, times=1)
    with pytest.raises(InputError, match="lacks a split train or valid"):
        resample_training(index, cohort.split("test"), cohort, times=2)
    assert np.isfinite(index.score(cohort)).all()
