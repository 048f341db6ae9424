import numpy as np

from mlci.measures.matching import LEVELS, matched


def skewed(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return a score with a long tail, and one value that a third of the admissions share."""
    score = np.exp(rng.normal(size=rows))
    return np.where((score > 0.6) & (score < 1.4), 1.0, score)


def test_scores_are_matched_to_the_other_distribution():
    rng = np.random.default_rng(0)
    latent, others = rng.normal(size=400), rng.normal(size=4000)
    moved = matched(np.exp(others), np.exp(latent), np.exp(1.3 * latent - 0.2))
    reached = np.quantile(moved, LEVELS)
    assert (
        np.abs(np.interp(reached, np.sort(np.exp(1.3 * others - 0.2)), np.linspace(0, 1, 4000)) - LEVELS).max() < 0.03
    )
    assert (np.argsort(moved, kind="stable") == np.argsort(others, kind="stable")).all()


def test_equal_rules_change_nothing_and_ties_stay_ties():
    rng = np.random.default_rng(1)
    scores, few = skewed(rng, 3000), skewed(rng, 60)
    assert np.array_equal(matched(scores, few, few), scores)
    parts = np.concatenate([few, few])  # the same admissions by two parts
    assert np.allclose(matched(scores, parts, few), scores, atol=0.4)
    assert len(np.unique(matched(scores, parts, few)[scores == 1])) == 1


def test_few_admissions_shift_scores_little():
    far = [matched(np.zeros(1), np.zeros(n), np.ones(n))[0] for n in (10, 1000)]
    assert far[0] == 0.5
    assert far[1] > 0.98


def test_weights_count_as_repeated_admissions():
    rng = np.random.default_rng(2)
    first, second, times = rng.normal(size=200), rng.normal(1, 2, size=200), rng.integers(1, 4, 200)
    weighted = matched(first, first, second, weight=times.astype(float), other=times.astype(float))
    repeated = matched(first, np.repeat(first, times), np.repeat(second, times), weight=np.ones(times.sum()))
    assert np.corrcoef(weighted, repeated)[0, 1] > 0.999
