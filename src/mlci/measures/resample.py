"""Intervals by resampling patients: all admissions of a patient come and go together.

Scores, outcomes and patients come in; an array of resampled figures goes out, one row per resample. Nothing is sorted
or searched again: each score is sorted once, and a resample is a vector of whole weights on its distinct values, from
which every figure follows by running sums (dCorr, AUROC, average precision), by a matrix product with the kernel's
features (nHSIC), or as a weighted mean (mutual information, calibration). Resamples depend on the seed alone, so that
figures of several scores or outcomes drawn with the same seed are paired.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.measures import alignment, discrimination

Weights = Callable[[np.ndarray], np.ndarray]  # admissions -> resamples x admissions
Statistic = Callable[[Weights], np.ndarray]  # -> resamples x figures
RANKING = ("dcorr", "nhsic", "auroc", "average_precision", "rank_dcorr")
CALIBRATION = ("brier", "slope", "intercept", "ece")
CELLS = 1 << 20  # weights held at once by a thread


@dataclass(frozen=True)
class Interval:
    """A figure with its percentile interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference with the two-sided p-value of no difference (+1 rule)."""

    p: float


def interval(value: float, resampled: np.ndarray, *, level: float = 0.95) -> Interval:
    """Return a figure with its percentile interval.

    Args:
        value: the figure itself.
        resampled: the same figure of each resample; those in which it is undefined (NaN) are left out.
        level: the share of resamples that the interval holds.

    >>> import numpy as np
    >>> found = interval(0.5, np.linspace(0, 1, 101), level=0.9)
    >>> round(found.low, 3), round(found.high, 3)
    (0.05, 0.95)
    """
    low, high = _percentiles(resampled, level)
    return Interval(float(value), low, high)


def difference(value: float, first: np.ndarray, second: np.ndarray, *, level: float = 0.95) -> Difference:
    """Return the paired difference of two figures that were resampled together, with its interval and p-value.

    Args:
        value: the difference of the figures themselves, first minus second.
        first: the first figure of each resample.
        second: the second figure of each resample.
        level: the share of resamples that the interval holds.

    Returns:
        The difference; p = 2 (1 + the lesser number of resamples beyond 0) / (1 + resamples).

    >>> import numpy as np
    >>> difference(0.2, np.full(99, 0.7), np.full(99, 0.5)).p
    0.02
    """
    apart = first - second
    known = apart[~np.isnan(apart)]
    low, high = _percentiles(known, level)
    beyond = min((known <= 0).sum(), (known >= 0).sum())
    return Difference(float(value), low, high, float(min(1.0, 2 * (1 + beyond) / (1 + len(known)))))


def _percentiles(resampled: np.ndarray, level: float) -> tuple[float, float]:
    known = resampled[np.isfinite(resampled)]  # a slope may run away where a resample has no case
    if not len(known):
        return np.nan, np.nan
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bootstrap(
    statistics: list[Statistic], patients: Any, *, resamples: int = 1000, seed: int = 0, threads: int | None = None
) -> list[np.ndarray]:
    """Compute each statistic on the same resamples of patients.

    Args:
        statistics: from `ranking`, `mean` or `calibration`.
        patients: the patient of each admission; all admissions of a patient come and go together.
        resamples: how many.
        seed: of the draws.
        threads: at most 8 by default.

    Returns:
        An array for each statistic, resamples x figures.

    >>> import numpy as np
    >>> y = np.array([0.0, 1.0, 1.0, 0.0])
    >>> [drawn] = bootstrap([mean(np.array([0.2, 0.4, 0.6, 0.8]), y)], ["a", "b", "b", "c"], resamples=50)
    >>> drawn.shape
    (50, 1)
    """
    patient = _numbered(patients)
    if resamples < 1:
        raise InputError(f"resamples: {resamples} is not a positive number.")
    number = int(patient.max()) + 1
    batch = max(2, min(64, CELLS // len(patient)))
    seeds = np.random.SeedSequence(seed).spawn(-(-resamples // batch))

    def run(task: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seeds[task])
        size = min(batch, resamples - task * batch)
        counts = np.empty((size, number))
        for row in counts:
            row[:] = np.bincount(rng.integers(number, size=number), minlength=number)
        return [statistic(lambda rows: counts[:, patient[rows]]) for statistic in statistics]

    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        parts = list(pool.map(run, range(len(seeds))))
    return [np.concatenate(part) for part in zip(*parts)]


def _numbered(patients: Any) -> np.ndarray:
    """Each admission's patient as a number; one whose patient is not known stands for itself."""
    import pandas as pd  # knows the nulls of every library

    number, distinct = pd.factorize(np.asarray(patients), sort=True)
    unknown = number < 0
    number[unknown] = len(distinct) + np.arange(unknown.sum())
    return number


def ranking(scores: np.ndarray, y: np.ndarray, *, sigma: float | None = None, kernel: str = "rbf") -> Statistic:
    """Return the statistic that resamples the figures of `RANKING` for a score and an outcome.

    Args:
        scores: one number per admission.
        y: the outcome: 0, 1, or NaN where not known.
        sigma: the bandwidth of nHSIC in the score's units; by default the score's own reference bandwidth.
        kernel: of nHSIC.

    >>> import numpy as np
    >>> statistic = ranking(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> figures = statistic(lambda rows: np.ones((1, len(rows))))  # one resample: every admission once
    >>> float(figures[0, RANKING.index("auroc")])
    0.75
    """
    if sigma is None and kernel != "energy":
        sigma = alignment.unit_bandwidth(scores)
    rows = np.flatnonzero(~np.isnan(y))
    rows = rows[np.argsort(scores[rows], kind="stable")]
    values, starts = np.unique(scores[rows], return_index=True)
    positive = y[rows] == 1
    tied = len(values) < len(rows)
    unit = np.abs(values).max() or 1.0 if len(values) else 1.0
    gaps = np.diff(values / unit)

    def statistic(weights: Weights) -> np.ndarray:
        weight = weights(rows)
        figures = np.full((len(weight), len(RANKING)), np.nan)
        if len(values) < 2:
            return figures
        cases = weight * positive
        if tied:
            weight, cases = np.add.reduceat(weight, starts, axis=1), np.add.reduceat(cases, starts, axis=1)
        n, n1 = weight.sum(axis=1), cases.sum(axis=1)
        mixed = (n1 > 0) & (n1 < n)
        weight, cases, n, n1 = weight[mixed], cases[mixed], n[mixed, None], n1[mixed, None]
        if len(n):
            figures[mixed] = _ranking(weight, cases, n, n1, gaps, values, kernel, sigma)
        return figures

    return statistic


def _ranking(weight, cases, n, n1, gaps, values, kernel: str, sigma: float | None) -> np.ndarray:
    prevalence = n1 / n
    profile = cases - prevalence * weight
    squared = n1 * (1 - prevalence)  # ‖l‖²
    controls = weight - cases
    below = np.cumsum(controls, axis=1) - controls / 2
    area = np.sum(cases * below, axis=1) / (n1 * (n - n1))[:, 0]
    # From the highest score down: precision at each distinct score, weighted by the cases found there.
    found, seen = np.cumsum(cases[:, ::-1], axis=1), np.cumsum(weight[:, ::-1], axis=1)
    precision = np.divide(found, seen, out=np.zeros_like(found), where=seen > 0)
    average = np.sum(precision * cases[:, ::-1], axis=1) / n1[:, 0]
    order = (weight[:, 1:] + weight[:, :-1]) / 2  # between the mid-ranks of neighbouring values
    dependence = []
    for gap in (gaps, order):
        forms, norm = alignment.energy(gap, weight, cases)
        dependence.append(np.sqrt(_ratio(forms, norm * squared[:, 0])))
    if kernel == "energy":  # its alignment is the squared distance correlation
        return np.column_stack([dependence[0], dependence[0] ** 2, area, average, dependence[1]])
    forms, norm = alignment.rbf(values, weight.T, profile.T[..., None], kernel, sigma)
    nhsic = _ratio(forms[:, 0], norm * squared[:, 0])
    return np.column_stack([dependence[0], nhsic, area, average, dependence[1]])


def _ratio(forms: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.clip(np.divide(forms, scale, out=np.zeros_like(forms), where=scale > 0), 0, 1)


def mean(values: np.ndarray, y: np.ndarray) -> Statistic:
    """Return the statistic that resamples the mean, floored at 0, of one number per known admission.

    Args:
        values: the numbers, such as the contributions to mutual information.
        y: the outcome, which says where admissions are known.

    >>> import numpy as np
    >>> mean(np.array([0.2, 0.4]), np.array([0.0, np.nan, 1.0]))(lambda rows: np.ones((1, len(rows)))).round(3)
    array([[0.3]])
    """
    rows = np.flatnonzero(~np.isnan(y))

    def statistic(weights: Weights) -> np.ndarray:
        weight = weights(rows)
        return np.maximum(weight @ values / np.maximum(weight.sum(axis=1), 1), 0)[:, None]

    return statistic


def calibration(risks: np.ndarray, y: np.ndarray) -> Statistic:
    """Return the statistic that resamples the figures of `CALIBRATION` for a risk and an outcome.

    Slope and intercept take one Newton step from the full fit, which has the bootstrap's spread to first order; the
    groups of the calibration error stay those of the full data.

    Args:
        risks: a probability per admission.
        y: the outcome: 0, 1, or NaN where not known.

    >>> import numpy as np
    >>> statistic = calibration(np.array([0.1, 0.3, 0.6, 0.8]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> round(float(statistic(lambda rows: np.ones((1, len(rows))))[0, 0]), 3)
    0.225
    """
    rows = np.flatnonzero(~np.isnan(y))
    if not len(rows):
        return lambda weights: np.full((len(weights(rows)), len(CALIBRATION)), np.nan)
    risk, y = risks[rows], y[rows]
    x = discrimination.logit(risk)
    groups = np.eye(10)[discrimination.risk_groups(risk)] * (y - risk)[:, None]
    columns = [(y - risk) ** 2, np.ones_like(x)]
    starts = []
    for slope in (None, 1.0):
        at = np.array(discrimination.calibration_line(risk, y, slope=slope))
        fitted = 0.5 * (1 + np.tanh((at[0] + at[1] * x) / 2))
        spread = fitted * (1 - fitted)
        columns += [y - fitted, (y - fitted) * x, spread, spread * x, spread * x**2]
        starts.append(at)
    sums = np.column_stack([*columns, groups])

    def statistic(weights: Weights) -> np.ndarray:
        total = weights(rows) @ sums
        n = np.maximum(total[:, 1], 1)
        g0, g1, h00, h01, h11 = total[:, 2:7].T
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = starts[0][1] + (h00 * g1 - h01 * g0) / (h00 * h11 - h01**2)
            intercept = starts[1][0] + total[:, 7] / total[:, 9]
        error = np.abs(total[:, 12:]).sum(axis=1) / n
        return np.column_stack([total[:, 0] / n, slope, intercept, error])

    return statistic
