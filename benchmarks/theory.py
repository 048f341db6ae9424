"""Diagnose up to a million scored admissions, and fit their best spacing: time and memory, compared with plain methods.

    python benchmarks/theory.py [--quick]

The plain diagnosis holds the n x n kernel and takes the SVD of the stacked outcomes. The plain spacing is a general
nonnegative least-squares solver over the same cuts.
"""

import argparse
import resource
import time

import numpy as np
from scipy.optimize import nnls

from mlci.judging import theory

NAMES = ["mortality", "mortality_30d", "long_stay", "icu_transfer"]


def hospital(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    score = rng.gamma(2, 1, n)
    return score, (0.8 * score[:, None] + rng.logistic(size=(n, 4)) > [6, 5.5, 3, 3.6]).astype(float)


def timed(call, *args, **options):
    start = time.perf_counter()
    result = call(*args, **options)
    return time.perf_counter() - start, result


def naive_diagnosis(score, outcomes, sigma: float) -> tuple[float, float]:
    kernel = np.exp(-((score[:, None] - score) ** 2) / (2 * sigma**2))
    rows = kernel.mean(axis=0)
    kernel = kernel - rows - rows[:, None] + rows.mean()
    profiles = outcomes - outcomes.mean(axis=0)
    stacked = (profiles / np.linalg.norm(profiles, axis=0)).T
    _, values, right = np.linalg.svd(stacked, full_matrices=False)
    order = np.argsort(score)
    best = 0.0
    for split in range(1, len(score)):
        step = np.zeros(len(score))
        step[order[split:]] = 1
        step -= step.mean()
        best = max(best, (right[0] @ step) ** 2 / (step @ step))
    return values[0] ** 2 * (right[0] @ kernel @ right[0]) / np.linalg.norm(kernel), best


def naive_spacing(score, outcomes) -> float:
    steps = (score[:, None] >= np.unique(score)[1:]).astype(float)
    steps -= steps.mean(axis=0)
    profiles = outcomes - outcomes.mean(axis=0)
    b = ((profiles.T @ steps) ** 2 / (profiles**2).sum(axis=0)[:, None]).sum(axis=0)
    lower = np.linalg.cholesky((steps.T @ steps) ** 2)
    a, _ = nnls(lower.T, np.linalg.solve(lower, b))
    return float(np.sqrt(b @ a))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 100,000 admissions")
    sizes = (500, 1_000, 2_000, 10_000, 100_000, *(() if parser.parse_args().quick else (1_000_000,)))
    print(f"{'n':>9} {'diagnose s':>11} {'naive s':>9} {'spacing s':>10} {'solver s':>9} {'peak MB':>8}")
    for n in sizes:
        score, outcomes = hospital(n)
        diagnosing, found = timed(theory.diagnose, score, outcomes, NAMES, floor=0.0)
        spacing, spaced = timed(theory.best_spacing, score, outcomes, cuts=None)
        slow = solver = ""
        if n <= 2_000:
            seconds, (projected, best) = timed(naive_diagnosis, score, outcomes, found.sigma)
            np.testing.assert_allclose((found.projected, found.shared.threshold.rho2), (projected, best), rtol=1e-8)
            slow = f"{seconds:.2f}"
        if n <= 1_000:
            seconds, value = timed(naive_spacing, score, outcomes)
            np.testing.assert_allclose(spaced.value, value, rtol=1e-8)
            solver = f"{seconds:.2f}"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{n:>9,} {diagnosing:>11.3f} {slow:>9} {spacing:>10.3f} {solver:>9} {peak:>8.0f}")


if __name__ == "__main__":
    main()
