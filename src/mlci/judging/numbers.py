"""Scores against outcomes that are numbers: days in hospital, cost, how many readmissions.

Scores and numeric columns come in, a tidy table goes out: distance correlation with and without its bias, the test of
independence, mutual information, and Spearman's rank correlation with an interval that takes a patient's admissions
together. An admission whose number is not known is left out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm, rankdata

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.measures.design import as_design
from mlci.measures.numeric import numeric_distance_correlation, numeric_independence

LEAST = 10  # admissions whose number is known
COLUMNS = ["model", "outcome", "n", "spearman", "low", "high", "dcorr", "dcorr_corrected", "independence", "mi"]


def numeric_column(cohort: Cohort, name: str) -> np.ndarray:
    """Return a numeric column of a cohort, NaN where not known.

    >>> from mlci.cohort import build_cohort
    >>> numeric_column(build_cohort("synthetic", 300), "age").dtype
    dtype('float64')
    """
    kept = cohort.table.to_pandas().select_dtypes("number").columns
    if name not in kept:
        raise InputError(f"cohort: has no numeric column {name}; it has {', '.join(kept)}.")
    return cohort.table[name].to_pandas().to_numpy(dtype=float)


def judge_numbers(
    models: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray], *, patients: Any, level: float = 0.95
) -> pd.DataFrame:
    """Judge every score against every numeric outcome.

    Args:
        models: name → score of each admission.
        columns: name → number of each admission, NaN where not known.
        patients: whose admission each one is, or a `Design`.
        level: the share of intervals that hold the true rank correlation.

    Returns:
        One row per score and outcome; an outcome that fewer than ten admissions have is left out.

    >>> score = np.arange(50.0)
    >>> found = judge_numbers({"a": score}, {"days": score**2}, patients=np.arange(50))
    >>> found[["spearman", "n"]].to_dict("records")
    [{'spearman': 1.0, 'n': 50}]
    """
    from sklearn.feature_selection import mutual_info_regression

    rows, patient = [], as_design(patients).cluster
    for name, column in columns.items():
        known = np.isfinite(column)
        if known.sum() < LEAST:
            continue
        for model, score in models.items():
            x, y = score[known], column[known]
            rank, low, high = _spearman(x, y, patient[known], level)
            unbiased, p = numeric_independence(x, y)
            information = float(mutual_info_regression(x[:, None], y, n_neighbors=5, random_state=12345)[0])
            corrected = float(np.sqrt(max(unbiased, 0.0)))
            figures = (numeric_distance_correlation(x, y), corrected, p, information)
            rows.append((model, name, int(known.sum()), rank, low, high, *figures))
    return pd.DataFrame(rows, columns=COLUMNS)


def _spearman(x: np.ndarray, y: np.ndarray, patient: np.ndarray, level: float) -> tuple[float, float, float]:
    """The rank correlation, with an interval on Fisher's scale from what each patient adds to it."""
    a, b = (rankdata(values) - (len(values) + 1) / 2 for values in (x, y))
    if not a.any() or not b.any():
        return np.nan, np.nan, np.nan
    a, b = a / a.std(), b / b.std()
    rho = float(np.clip(np.mean(a * b), -1, 1))
    moved = np.bincount(patient, a * b - rho * (a * a + b * b) / 2) / len(a)
    if not abs(rho) < 1 - 1e-12:
        return rho, np.nan, np.nan
    half = norm.ppf((1 + level) / 2) * np.sqrt(moved @ moved) / (1 - rho**2)
    low, high = np.tanh(np.arctanh(rho) + np.array([-half, half]))
    return rho, float(low), float(high)
