import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from sklearn.feature_selection import mutual_info_classif
from sklearn.metrics import mutual_info_score

from mlci.base.errors import InputError
from mlci.measures.information import contributions, mutual_information


def peer(score, y, dtype=np.float64):
    """Compute it as the paper does: z-scored, k = min(5, n − 1), seed 12345."""
    score = np.asarray(score, dtype)
    z = (score - score.mean()) / (score.std() + dtype(1e-8))
    found = mutual_info_classif(z[:, None], y.astype(int), n_neighbors=min(5, len(y) - 1), random_state=12345)
    return found[0]


def drawn(n, kind, share, seed=0):
    rng = np.random.default_rng(seed)
    score = {
        "normal": rng.normal(size=n),
        "integer": rng.poisson(3, n).astype(float),
        "tied": np.round(rng.normal(size=n), 1),
    }
    score = score[kind]
    y = (rng.random(n) < share * (1 + np.tanh(score))).astype(float)
    y[:2] = 0, 1
    score[0] += 1  # never constant
    return score, y


@pytest.mark.parametrize("n", [3, 4, 7, 13, 60, 1000, 12_000])
@pytest.mark.parametrize("kind", ["normal", "integer", "tied"])
@pytest.mark.parametrize("share", [0.01, 0.3])  # 0.01: at small n the outcome has one member
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equals_scikit_learn(n, kind, share, dtype):
    score, y = drawn(n, kind, share)
    assert mutual_information(score, y, dtype=dtype) == pytest.approx(peer(score, y, dtype), abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 80), st.integers(0, 10**6))
def test_equals_scikit_learn_on_anything(n, seed):
    rng = np.random.default_rng(seed)
    score, y = np.round(rng.normal(size=n), rng.integers(0, 8)), (rng.random(n) < rng.random()).astype(float)
    if np.ptp(score) == 0 or np.ptp(y) == 0:
        assert mutual_information(score, y) == 0
    else:
        assert mutual_information(score, y) == pytest.approx(peer(score, y), abs=1e-9)


def test_each_outcome_on_its_own_valid_admissions():
    score, y = drawn(500, "normal", 0.3)
    both = np.column_stack([y, np.where(np.arange(500) % 3 == 0, np.nan, y)])
    found = mutual_information(score, both)
    rest = np.arange(500) % 3 != 0
    assert found == pytest.approx([peer(score, y), peer(score[rest], y[rest])], abs=1e-9)


def test_plug_in_equals_scikit_learn():
    score, y = drawn(3000, "integer", 0.2)
    assert mutual_information(score, y, estimator="plug-in") == pytest.approx(mutual_info_score(score, y), abs=1e-12)


@pytest.mark.parametrize("estimator", ["neighbours", "plug-in"])
def test_estimate_is_the_mean_contribution(estimator):
    score, y = drawn(2000, "integer", 0.3)
    mean = np.mean(contributions(score, y, estimator=estimator))
    assert mutual_information(score, y, estimator=estimator) == pytest.approx(max(0, mean), abs=1e-12)


def test_converges_to_the_truth():
    """Two normals one standard deviation apart share 0.1133 nats with their class (by quadrature)."""
    grid = np.linspace(-9, 10, 20_001)
    p = [np.exp(-((grid - shift) ** 2) / 2) / np.sqrt(2 * np.pi) for shift in (0, 1)]
    mixture = (p[0] + p[1]) / 2
    truth = sum(integrate.trapezoid(q * np.log(q / mixture), grid) for q in p) / 2
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 100_000).astype(float)
    assert mutual_information(rng.normal(size=len(y)) + y, y) == pytest.approx(truth, abs=0.005)


def test_conventions():
    assert mutual_information([1.0, 2.0], [0, 1]) == 0
    assert mutual_information([1.0, 2.0, 3.0], [1, 1, 1]) == 0
    assert mutual_information([1.0, 1.0, 1.0], [1, 0, 1]) == 0
    assert mutual_information([1.0, 2.0, 3.0], [None, None, None]) == 0
    assert np.isfinite(mutual_information([1e300, -1e300, 0.0, 1e-300], [0, 1, 1, 0]))


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"score\[1\]: nan is not a finite number"):
        mutual_information([1.0, np.nan, 2.0], [0, 1, 0])
    with pytest.raises(InputError, match=r"y\[0\]: a number is not 0, 1 or null"):
        mutual_information([1.0, 2.0], [3, 1])
    with pytest.raises(InputError, match="estimator: 'histogram' is not known"):
        mutual_information([1.0, 2.0, 3.0], [0, 1, 0], estimator="histogram")  # type: ignore[arg-type]


@pytest.mark.parametrize("neighbours", [0, -1, 2.5, "5"])
def test_the_number_of_neighbours_must_be_whole(neighbours):
    with pytest.raises(InputError, match="whole numbers from 1"):
        mutual_information([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], neighbours=neighbours)
