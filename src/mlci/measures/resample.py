"""Figures of resampled patients: all admissions of a patient come and go together.

Scores, outcomes and patients come in; an array of resampled figures goes out, one row per resample. Nothing is sorted
or searched again: each score is sorted once, and a resample is a vector of whole weights on its distinct values, from
which every figure follows by running sums (dCorr, AUROC, average precision), by a matrix product with the kernel's
features (nHSIC), or as a weighted mean (mutual information, calibration). Resamples depend on the seed alone, so that
figures of several scores or outcomes drawn with the same seed are paired. `mlci.measures.intervals` makes intervals.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.measures import alignment, discrimination

Weights = Callable[[np.ndarray], np.ndarray]  # admissions -> resamples x admissions
Statistic = Callable[[Weights], np.ndarray]  # -> resamples x figures
RANKING = ("dcorr", "nhsic", "auroc", "average_precision", "rank_dcorr")
CALIBRATION = ("observed_expected", "brier", "slope", "intercept", "brier_skill", "deviance", "nagelkerke")
CELLS = 1 << 20  # weights held at once by a thread


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
    patient = numbered(patients)
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

    with single_thread(), ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        parts = list(pool.map(run, range(len(seeds))))
    return [np.concatenate(part) for part in zip(*parts)]


def numbered(patients: Any) -> np.ndarray:
    """Return each admission's patient as a number; one whose patient is not known stands for itself.

    >>> numbered(["b", None, "a", "b"])
    array([1, 2, 0, 1])
    """
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
    won = _won(cases, weight - cases) / (n1 * (n - n1))[:, 0]
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
        return np.column_stack([dependence[0], dependence[0] ** 2, won, average, dependence[1]])
    forms, norm = alignment.rbf(values, weight.T, profile.T[..., None], kernel, sigma)
    nhsic = _ratio(forms[:, 0], norm * squared[:, 0])
    return np.column_stack([dependence[0], nhsic, won, average, dependence[1]])


def _ratio(forms: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.clip(np.divide(forms, scale, out=np.zeros_like(forms), where=scale > 0), 0, 1)


def area(scores: np.ndarray, y: np.ndarray) -> Statistic:
    """Return the statistic that resamples AUROC alone.

    Args:
        scores: one number per admission.
        y: the outcome: 0, 1, or NaN where not known.

    >>> import numpy as np
    >>> area(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 1]))(lambda rows: np.ones((1, len(rows))))
    array([[0.75]])
    """
    rows = np.flatnonzero(~np.isnan(y))
    rows = rows[np.argsort(scores[rows], kind="stable")]
    _, starts = np.unique(scores[rows], return_index=True)
    positive = y[rows] == 1

    def statistic(weights: Weights) -> np.ndarray:
        weight = weights(rows)
        cases, controls = weight * positive, weight * ~positive
        if 0 < len(starts) < len(rows):
            cases, controls = np.add.reduceat(cases, starts, axis=1), np.add.reduceat(controls, starts, axis=1)
        pairs = cases.sum(axis=1) * controls.sum(axis=1)
        return np.divide(_won(cases, controls), pairs, out=np.full(len(weight), np.nan), where=pairs > 0)[:, None]

    return statistic


def _won(cases: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """Pairs of a case and a control below it; ties count half."""
    return np.sum(cases * (np.cumsum(controls, axis=1) - controls / 2), axis=1)


def mean(values: np.ndarray, y: np.ndarray) -> Statistic:
    """Return the statistic that resamples the mean of one number per known admission.

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
        return (weight @ values / np.maximum(weight.sum(axis=1), 1))[:, None]

    return statistic


def calibration(risks: np.ndarray, y: np.ndarray) -> Statistic:
    """Return the statistic that resamples the figures of `CALIBRATION` for a risk and an outcome.

    Slope and intercept take one Newton step from the full fit, which has the bootstrap's spread to first order.

    Args:
        risks: a probability per admission.
        y: the outcome: 0, 1, or NaN where not known.

    >>> import numpy as np
    >>> statistic = calibration(np.array([0.1, 0.3, 0.6, 0.8]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> round(float(statistic(lambda rows: np.ones((1, len(rows))))[0, CALIBRATION.index("brier")]), 3)
    0.225
    """
    rows = np.flatnonzero(~np.isnan(y))
    if not len(rows):
        return lambda weights: np.full((len(weights(rows)), len(CALIBRATION)), np.nan)
    risk, y = risks[rows], y[rows]
    x = discrimination.logit(risk)
    columns = [(y - risk) ** 2, np.ones_like(x)]
    starts = []
    for slope in (None, 1.0):
        at = np.array(discrimination.calibration_line(risk, y, slope=slope))
        fitted = 0.5 * (1 + np.tanh((at[0] + at[1] * x) / 2))
        spread = fitted * (1 - fitted)
        columns += [y - fitted, (y - fitted) * x, spread, spread * x, spread * x**2]
        starts.append(at)
    sums = np.column_stack([*columns, discrimination.log_losses(risk, y), y, risk])

    def statistic(weights: Weights) -> np.ndarray:
        total = weights(rows) @ sums
        n = np.maximum(total[:, 1], 1)
        g0, g1, h00, h01, h11 = total[:, 2:7].T
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = starts[0][1] + (h00 * g1 - h01 * g0) / (h00 * h11 - h01**2)
            intercept = starts[1][0] + total[:, 7] / total[:, 9]
        brier, loss, rate = total[:, 0] / n, total[:, 12] / n, total[:, 13] / n
        ratio = total[:, 13] / np.maximum(total[:, 14], 1e-300)
        return np.column_stack([ratio, brier, slope, intercept, *discrimination.skill(brier, loss, rate)])

    return statistic
