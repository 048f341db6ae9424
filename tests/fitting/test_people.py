"""Age and sex in the risks, against a general solver."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mlci.fitting._people import PRIOR_EVENTS, ROWS, SPREAD, fit_people, rows_of


def test_the_fit_converges_where_full_newton_steps_oscillate():
    """With a few admissions far out in the tail, full steps alternate between two points."""
    rng = np.random.default_rng(343)
    spread, width, growth = rng.uniform(0.8, 2.2), rng.uniform(0.1, 0.9), rng.uniform(0.3, 2.0)
    n = int(rng.choice([100, 800]))
    x = -3.9 + width * np.exp(spread * rng.normal(size=n))
    y = (rng.random(n) < expit(-4.3 + growth * np.log1p((x + 3.9) * 3))).astype(float)
    rows = rows_of(rng.integers(0, 95, n).astype(float), rng.choice(["F", "M"], n), n)
    present = np.zeros((n, len(ROWS)))
    np.put_along_axis(present, rows.astype(int), 1, axis=1)
    basis = np.column_stack([np.ones(n), x - x.mean(), present])
    prior = np.array([PRIOR_EVENTS, PRIOR_EVENTS, *[1 / SPREAD] * len(ROWS)])

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        odds = x + basis @ values
        total = (np.logaddexp(0, odds) - y * odds).sum() + prior @ values**2 / 2
        return total, basis.T @ (expit(odds) - y) + prior * values

    best = minimize(loss, np.zeros(basis.shape[1]), jac=True, options={"gtol": 1e-7, "maxiter": 5000}).x
    expected = [best[0] - best[1] * x.mean(), 1 + best[1], *best[2:]]
    np.testing.assert_allclose(fit_people(x[:, None], y[:, None], rows)[:, 0], expected, atol=1e-3)
