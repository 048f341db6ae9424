"""Evaluate scores against numeric outcomes: days in hospital, cost, number of readmissions.

Turn scores and numeric columns into a tidy table with:

- Spearman's rank correlation and the concordance index, with intervals clustered by patient;
- distance correlation, its bias-corrected form and the test of independence, nHSIC, and mutual information;
- for expected values, observed / expected with its interval, and the share of variance explained (R²).

Admissions with an unknown value are left out. With survey weights, metrics that have a weighted definition describe the
population, and the others are omitted.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.special import stdtrit

from mlci.base.errors import InputError, kind_of
from mlci.cohort import Cohort
from mlci.measures.design import Design, as_design
from mlci.measures.numeric import (
    concordance,
    numeric_distance_correlation,
    numeric_independence,
    numeric_nhsic,
    spearman,
)
from mlci.measures.weighted import mean

LEAST = 10  # admissions with a known value
INTERVALS = ("spearman", "c_index", "observed_expected")
COLUMNS = [
    *("model", "outcome", "n"),
    *(f"{name}{end}" for name in INTERVALS for end in ("", "_low", "_high")),
    *("r2", "dcorr", "dcorr_corrected", "independence", "nhsic", "mi"),
]


def numeric_column(cohort: Cohort, name: str) -> np.ndarray:
    """Return the numeric column `name` of a `cohort`, NaN if unknown; numbers that a sheet holds as text are read.

    >>> from mlci.cohort import build_cohort
    >>> numeric_column(build_cohort("synthetic", 300), "age").dtype
    dtype('float64')
    """
    schema, column = cohort.table.schema, cohort.table[name] if name in cohort.table.column_names else None
    if column is not None and _is_number(column.type):
        return column.cast(pa.float64()).to_numpy()
    text = None if column is None or not _is_text(column.type) else column.cast(pa.string()).to_pandas()
    values = np.empty(0) if text is None else pd.to_numeric(text, errors="coerce").to_numpy(dtype=float)
    if text is None or not np.isfinite(values).any():
        kept = ", ".join(field.name for field in schema if _is_number(field.type))
        raise InputError(
            f"the cohort has no numeric column {name}; it has {kept}{'' if text is None else f'; {name} holds text'}."
        )
    odd = text.notna().to_numpy() & ~np.isfinite(values)
    if odd.any():
        row = int(np.argmax(odd))
        raise InputError(
            f"the cohort: column {name}, row {row + 1}: {kind_of(text.iloc[row])} is not a number such as 3.5."
        )
    return values


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def judge_numbers(
    models: Mapping[str, np.ndarray],
    columns: Mapping[str, np.ndarray],
    *,
    patients: Any,
    expected: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Evaluate every score against every numeric outcome.

    Args:
        models: name → score of each admission.
        columns: name → number of each admission, NaN if unknown.
        patients: the patient of each admission, or a `Design`.
        expected: model → outcome → expected number of each admission, in the number's unit.
        level: the confidence level.

    Returns:
        One row per score and outcome. An outcome known for fewer than ten admissions is left out, and metrics that do
        not apply (no expected values, or weights) are NaN.

    >>> score = np.arange(50.0)
    >>> found = judge_numbers({"a": score}, {"days": score**2}, patients=np.arange(50))
    >>> found[["spearman", "c_index", "n"]].to_dict("records")
    [{'spearman': 1.0, 'c_index': 1.0, 'n': 50}]
    """
    rows, design = [], as_design(patients)
    for name, column in columns.items():
        known = np.isfinite(column)
        if known.sum() < LEAST:
            continue
        drawn, y = design.take(known), column[known]
        if drawn.is_empty:
            continue
        for model, score in models.items():
            x, predicted = score[known], (expected or {}).get(model, {}).get(name)
            row = {"model": model, "outcome": name, "n": len(y)}
            row |= _ranks(x, y, drawn, level)
            if predicted is not None:
                row |= _calibration(predicted[known], y, drawn, level)
            if drawn.weight is None:
                row |= _dependence(x, y, drawn.cluster)
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def _ranks(x: np.ndarray, y: np.ndarray, design: Design, level: float) -> dict[str, float]:
    """Return rank correlation and concordance index, with intervals on Fisher's z scale and the log-odds scale."""
    quantile, found = float(stdtrit(design.degrees, (1 + level) / 2)), {}
    for name, measure, there, back in (
        ("spearman", spearman, np.arctanh, np.tanh),
        ("c_index", concordance, lambda c: np.arctanh(2 * c - 1), lambda z: (1 + np.tanh(z)) / 2),
    ):
        value, influence = measure(x, y, weight=design.weight)
        found[name] = value
        centred = 2 * value - 1 if name == "c_index" else value
        if not abs(centred) < 1 - 1e-12:  # perfect order, forward or reversed: no variance for an interval
            continue
        slope = (2 if name == "c_index" else 1) / (1 - centred**2)
        half = quantile * slope * np.sqrt(design.variance(influence))
        found |= {f"{name}_low": float(back(there(value) - half)), f"{name}_high": float(back(there(value) + half))}
    return found


def _calibration(expected: np.ndarray, y: np.ndarray, design: Design, level: float) -> dict[str, float]:
    """Return observed / expected with its interval, linearised on the log scale, and the variance explained."""
    weight = np.ones(len(y)) if design.weight is None else design.weight
    total, variance = float(weight @ expected), mean((y - mean(y, weight)) ** 2, weight)
    ratio = float(weight @ y) / total if total else np.nan
    rest = mean((y - expected) ** 2, weight) / variance if variance > 0 else np.nan
    found = {"observed_expected": ratio, "r2": float(1 - rest)}
    if ratio > 0:
        moved = weight * (y - ratio * expected) / total
        half = float(stdtrit(design.degrees, (1 + level) / 2)) * np.sqrt(design.variance(moved)) / ratio
        found |= {f"observed_expected_{end}": ratio * float(np.exp(s * half)) for end, s in (("low", -1), ("high", 1))}
    return found


def _dependence(x: np.ndarray, y: np.ndarray, cluster: np.ndarray) -> dict[str, float]:
    """Return the metrics of dependence, which have no weighted definition here."""
    from sklearn.feature_selection import mutual_info_regression

    unbiased, p = numeric_independence(x, y, patients=cluster)
    return {
        "dcorr": numeric_distance_correlation(x, y),
        "dcorr_corrected": float(np.sqrt(max(unbiased, 0.0))),
        "independence": p,
        "nhsic": numeric_nhsic(x, y),
        "mi": float(mutual_info_regression(x[:, None], y, n_neighbors=5, random_state=12345)[0]),
    }
