from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from mlci.base.errors import InputError
from mlci.cohort import build_cohort
from mlci.index import vary
from mlci.index.estimator import MLCI
from mlci.index.vary import _bootstrap, resample_training
from mlci.measures.discrimination import auroc


@pytest.fixture(scope="module")
def fitted():
    cohort = build_cohort("synthetic", 500)
    return MLCI(outcomes=["long_stay"]).fit(cohort), cohort


def test_a_refit_without_an_order_has_no_correlation():
    flat = SimpleNamespace(names=[], labels=np.empty((5, 0)), weight=None, score=np.ones(5), risks={})
    found = vary._Judged.compared_with(flat, SimpleNamespace(score=np.arange(5.0), risks={}))
    np.testing.assert_equal(found, [np.nan, 0.8])


def test_refits_are_summarised_and_kept(fitted, tmp_path, monkeypatch):
    index, cohort = fitted
    finished, options = [], {"times": 2, "seed": 1, "state": tmp_path / "refits"}
    found = resample_training(index.model_, cohort, cohort.split("test"), on_fit=finished.append, **options)
    assert finished == [1, 2]
    cell = found.set_index(["outcome", "figure"])
    assert (cell["least"] <= cell["mean"]).all()
    assert (cell["mean"] <= cell["largest"]).all()
    assert (cell.loc[("long_stay", "auroc"), "sd"]) > 0
    assert 0.5 < cell.loc[("score", "rank correlation"), "mean"] < 1
    assert 0 < cell.loc[("score", "moved by a tenth"), "mean"] < 1
    own = cell.loc[("long_stay", "auroc"), "value"]
    y = cohort.split("test").labels("long_stay")[:, 0]
    assert own == auroc(index.score(cohort.split("test")), y)
    assert 0 < cell.loc[("long_stay", "risk moved"), "mean"] < 0.3
    monkeypatch.setattr(vary, "learn", None)  # finished refits are not repeated
    assert found.equals(resample_training(index.model_, cohort, cohort.split("test"), **options))
    with pytest.raises(InputError, match="other data, settings or seed"):
        resample_training(index.model_, cohort, cohort.split("test"), **{**options, "seed": 2})
    other_codes = [[f"X{code}" for code in codes] for codes in cohort.table["codes"].to_pylist()]
    for name, values in (("codes", other_codes), ("subject_id", cohort.table["admission_id"].to_pylist())):
        place = cohort.table.column_names.index(name)
        other = replace(cohort, table=cohort.table.set_column(place, name, pa.array(values)))
        with pytest.raises(InputError, match="other data, settings or seed"):
            resample_training(index.model_, other, cohort.split("test"), **options)


def test_invalid_arguments_raise_one_sentence(fitted):
    index, cohort = fitted
    with pytest.raises(InputError, match="2 or more"):
        resample_training(index.model_, cohort, cohort, times=1)
    with pytest.raises(InputError, match="lacks the split train or valid"):
        resample_training(index.model_, cohort.split("test"), cohort, times=2)
    with pytest.raises(InputError, match=r"the cohort that the index was fitted to"):
        resample_training(index.model_, cohort.where(np.arange(len(cohort)) % 2 == 0), cohort, times=2)
    assert np.isfinite(index.score(cohort)).all()


def test_a_resample_keeps_both_classes_of_a_rare_outcome(fitted):
    _, cohort = fitted
    train = cohort.split("train")
    rare = np.flatnonzero(train.labels("mortality")[:, 0] == 1)[:2]  # a plain resample lacks both once in seven times
    few = train.where(np.isin(np.arange(len(train)), rare) | (train.labels("mortality")[:, 0] == 0))
    drawn = [_bootstrap(few, np.random.default_rng(seed), "subject_id", ["mortality"]) for seed in range(30)]
    assert all(any(table["mortality"].to_pylist()) for table in drawn)
    assert all(table.num_rows > 0.7 * len(few) for table in drawn)
