"""The index in scikit-learn's tools, and its display."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import mlci
from mlci.config import TableConfig, toml_of
from mlci.judging.evaluate import judge
from toys import code_lists, toy_cohort, toy_outcomes

CODES = code_lists(400, seed=3)
DIED = np.array([bool(value) for value in toy_outcomes(CODES, seed=3)["mortality"]])


@pytest.fixture(scope="module")
def index():
    return mlci.MLCI(recipe="table").fit(CODES, DIED, icd_version=10)


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_the_estimator_passes_the_checks_of_scikit_learn():
    """Checks that pass a matrix of numbers do not apply to codes and are skipped."""
    check_estimator(mlci.MLCI(recipe="table"))


def test_pipeline_cross_validation_and_clone(index):
    again = clone(index)
    assert again.get_params() == index.get_params()
    assert not hasattr(again, "model_")
    pipeline = make_pipeline(mlci.MLCI(recipe="table"), LogisticRegression()).fit(CODES, DIED)
    assert pipeline.predict_proba(CODES).shape == (400, 2)
    scores = cross_val_score(mlci.MLCI(recipe="table"), CODES, DIED, cv=2, scoring="roc_auc")
    assert (scores > 0.5).all()


def test_outcomes_as_array_series_and_frame(index):
    assert [*index.model_.outcomes] == ["outcome"]
    named = mlci.MLCI(recipe="table").fit(CODES, pd.Series(DIED, name="died"), icd_version=10)
    assert [*named.model_.outcomes] == ["died"]
    assert (named.score(CODES, icd_version=10) == index.score(CODES, icd_version=10)).all()
    both = mlci.MLCI(recipe="table").fit(CODES, np.column_stack([DIED, ~DIED]), icd_version=10)
    assert [*both.model_.outcomes] == ["outcome_0", "outcome_1"]
    assert [part.shape for part in both.predict_proba(CODES)] == [(400, 2)] * 2
    assert index.transform(CODES).shape == (400, 1)
    with pytest.raises(mlci.InputError, match="expected an array of one or two dimensions"):
        mlci.MLCI(recipe="table").fit(CODES, np.zeros((2, 2, 2)))


def test_lists_of_several_outcomes_are_columns_or_refused():
    from mlci.index._inputs import _columns

    rows = [[0, 1], [1, 0], [1, None]]
    for outcomes in (rows, [tuple(row) for row in rows], [np.array(row, dtype=object) for row in rows]):
        found = _columns(outcomes, 3)
        assert list(found) == ["outcome_0", "outcome_1"]
        np.testing.assert_array_equal(found["outcome_1"], [1, 0, np.nan])
    with pytest.raises(mlci.InputError, match="2 rows for 3 admissions; pass one row per admission, or a dict"):
        _columns([[0, 1, 1], [1, 0, 0]], 3)
    with pytest.raises(mlci.InputError, match="the rows differ in length"):
        _columns([[0, 1], [1]], 2)


def test_settings_as_file_and_dictionary(tmp_path, index):
    (tmp_path / "t.toml").write_text(toml_of(TableConfig()))
    for config in (str(tmp_path / "t.toml"), {"tokens": {"max_codes": 256}}):
        fitted = mlci.MLCI(recipe="table", config=config).fit(CODES, DIED, icd_version=10)
        assert (fitted.score(CODES, icd_version=10) == index.score(CODES, icd_version=10)).all()
    with pytest.raises(mlci.InputError, match="token"):
        mlci.MLCI(recipe="table", config={"token": {}}).fit(CODES, DIED)


def test_repr_and_html_of_an_index_and_an_evaluation(index):
    assert repr(index).startswith("MLCI: recipe table, seed 11")
    assert "high severity: score of" in repr(index)
    assert "AUROC on held-out admissions: outcome 0." in repr(index)
    assert "<td>outcomes</td><td>outcome</td>" in index._repr_mimebundle_()["text/html"]
    assert repr(mlci.MLCI(recipe="table")) == "MLCI(recipe='table')"
    found = judge({"MLCI": np.arange(400.0), "other": -np.arange(400.0)}, toy_cohort(400), resamples=20)
    assert repr(found).splitlines()[0].split()[:2] == ["model", "outcome"]
    assert found._repr_html_().count("<circle") == 4


def test_a_nested_list_raises_one_sentence(index):
    with pytest.raises(mlci.InputError, match=r"expected a list of codes of one admission, .*; got a list of lists"):
        index.explain([["I50.9", "N17.9"]])
