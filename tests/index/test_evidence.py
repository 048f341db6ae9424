"""Curves, percentiles and cutoff rest on admissions that had no part in the weights."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mlci.index import _model_of_fit
from mlci.index._evidence import MIN_ADMISSIONS, Evidence, halved
from mlci.index.learning import FitSettings, learn
from mlci.judging import theory
from mlci.measures.discrimination import calibration
from toys import record_blas_threads

NAMES = ["mortality", "long_stay"]


def draw(rng, n: int, memory: float) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes that follow a true severity, and a score that knows it and, with `memory`, the outcomes too."""
    severity = rng.normal(size=n)
    labels = (severity[:, None] + rng.logistic(size=(n, 2)) > [2, 1]).astype(float)
    return severity + memory * labels.mean(axis=1), labels


def evidence(
    *, valid: int = 2_000, cross_fitted: bool = False, memory: float = 3.0, seed: int = 0, **options
) -> Evidence:
    rng = np.random.default_rng(seed)
    parts = {"train": draw(rng, 4_000, memory), "valid": draw(rng, valid, 0.0)}
    scores, labels = ({name: part[place] for name, part in parts.items()} for place in (0, 1))
    halves = halved(np.arange(valid) // 2, valid)
    settings = {"names": NAMES, "weights": [1.0, 1.0], "cross_fitted": cross_fitted, "halves": halves}
    return Evidence(scores, labels, **(settings | options))


def test_curves_of_overfitted_scores_use_the_validation_split():
    found = evidence()
    assert (found.splits, found.words, found.in_sample()) == (("valid",), "validation admissions", [])
    score, labels = draw(np.random.default_rng(9), 20_000, 0.0)
    flattering = Evidence(found.scores, found.labels, NAMES, [1, 1], True, found.halves).curves(least=10)
    for place, name in enumerate(NAMES):
        slope, other = (
            calibration(curves[name](score), labels[:, place]).slope for curves in (found.curves(least=10), flattering)
        )
        assert slope == pytest.approx(1, abs=0.15)
        assert other < slope - 0.1


def test_the_held_out_certificate_is_that_of_new_admissions():
    chosen = [evidence(valid=300, seed=seed).cutoff() for seed in range(8)]
    score, labels = draw(np.random.default_rng(9), 20_000, 0.0)
    elsewhere = np.mean([theory.certify(score, labels, NAMES, cut.score) for cut in chosen])
    kept, held_out = np.mean([cut.certificate for cut in chosen]), np.mean([cut.held_out for cut in chosen])
    assert elsewhere < kept - 0.01  # a maximum flatters
    assert held_out == pytest.approx(elsewhere, abs=0.02)


def test_cross_fitted_scores_take_all_admissions():
    found = evidence(cross_fitted=True, memory=0.0)
    assert found.splits == ("train", "valid")
    assert found.words == "training and validation admissions"
    assert found.in_sample() == []
    assert found.cutoff().n == 6_000


def test_a_small_validation_split_and_a_rare_outcome_are_reported():
    few = evidence(valid=MIN_ADMISSIONS - 1)
    assert few.words.endswith("which it was learned from")
    assert few.in_sample() == NAMES
    rare = evidence()
    rare.labels["valid"][:, 0] = 0
    rare.labels["valid"][:5, 0] = 1
    assert rare.in_sample() == ["mortality"]
    assert set(rare.curves(least=10)) == set(NAMES)


def test_an_outcome_that_the_cutoff_leaves_out_is_named():
    found = evidence()
    found.labels["valid"][:, 0] = 0
    assert found.cutoff().left_out == {"mortality": "it is never present in 2,000 admissions"}
    assert theory.Cutoff.from_dict(found.cutoff().to_dict()) == found.cutoff()


def test_risks_of_validation_admissions_come_from_the_other_half():
    found = evidence(valid=400)
    labels = found.labels["valid"]
    risk = found.held_out_risk(labels[:, 1], 1)
    changed = labels[:, 1].copy()
    changed[found.halves] = 1 - changed[found.halves]
    again = found.held_out_risk(changed, 1)
    assert risk is not None
    assert again is not None
    np.testing.assert_array_equal(risk[found.halves], again[found.halves])
    assert not np.allclose(risk[~found.halves], again[~found.halves])
    assert (halved(np.array(["b", "a", "b"]), 3) == [False, True, False]).all()


def test_a_model_is_built_with_one_thread_of_blas(monkeypatch):
    """The last digits must not depend on the number of the machine's cores."""
    seen = record_blas_threads(monkeypatch, _model_of_fit, "event_counts")
    with threadpool_limits(2, user_api="blas"):
        learn(FitSettings(), [["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
    assert set(seen) == {1}
