"""The effect of present-on-admission flags: compare each index with and without codes that arose after admission.

Each index is computed three times: from all codes, from those present on admission, and without codes that reveal an
outcome. What an index loses without later codes is what it knew from complications. After calibration on the training
split, observed and expected events are compared for all admissions and for those with a code that arose after
admission. An index that counts complications expects more events there, and so hides them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.judging._changes import CHANGE, LEAST, Scores, changes
from mlci.judging.smooth import smooth
from mlci.measures.design import numbered
from mlci.measures.ratios import interval
from mlci.tokens import telling, without

ALL, PRESENT, UNTOLD = "all codes", "present on admission", "without telling codes"


def compare_codes(
    cohort: Cohort, indices: Mapping[str, Scores], *, grade: str = "complication", resamples: int = 200, seed: int = 0
) -> pd.DataFrame:
    """Compare each index from all codes with the same index from fewer codes.

    Args:
        cohort: with present-on-admission flags (`poa`), and with a training and a test split.
        indices: name → a function that returns scores from the training and the evaluated admissions of one choice.
        grade: of the codes that reveal an outcome; these and all surer ones are left out (`mlci.codes.outcome`).
        resamples: number of bootstrap samples of patients for intervals; 0 gives none.
        seed: of the resampling.

    Returns:
        One row per index, outcome, choice of codes and metric (auroc, dcorr, o_e, and o_e_later for admissions with a
        code that arose after admission): the value and the paired difference from all codes, both with intervals.

    >>> from mlci.cohort import build_cohort
    >>> from mlci.judging._changes import published
    >>> cohort = build_cohort("synthetic", 1500, later_share=0.3)
    >>> table = compare_codes(cohort, published("charlson"), resamples=0)
    >>> sorted(table["codes"].unique())
    ['all codes', 'present on admission', 'without telling codes']
    """
    parts = cohort.split("train"), cohort.split("test")
    for name, part in zip(("train", "test"), parts):
        if not len(part):
            raise InputError(
                f"the cohort has no admission in the split {name}; indices are calibrated on train and judged on test."
            )
    later = _has_later(parts[1])
    views = {choice: tuple(view(part) for part in parts) for choice, view in _choices(grade).items()}
    rows = []
    for index, make in indices.items():
        scores = {choice: make(*view) for choice, view in views.items()}
        judged = {choice: test for choice, (_, test) in scores.items()}
        orders = changes(judged, parts[1], head="codes", resamples=resamples, seed=seed)
        ratios = _ratios(scores, parts, later, resamples, seed)
        rows += [{"index": index, **row} for row in (*orders, *ratios)]
    return pd.DataFrame(rows)


def _choices(grade: str) -> dict[str, Callable[[Cohort], Cohort]]:
    return {ALL: lambda part: part, PRESENT: lambda part: part.present(), UNTOLD: lambda part: _untold(part, grade)}


def _untold(cohort: Cohort, grade: str) -> Cohort:
    """Return the cohort without the codes that reveal an outcome."""
    kept = without(cohort.admissions(), telling(grade))
    codes = pa.array(kept.values, pa.string()).take(pa.array(kept.indices))
    lists = pa.ListArray.from_arrays(pa.array(kept.offsets.astype(np.int32)), codes)
    table = cohort.table.set_column(cohort.table.column_names.index("codes"), "codes", lists).drop_columns("poa")
    return replace(cohort, table=table)


def _has_later(cohort: Cohort) -> np.ndarray:
    """Return whether each admission has a code that arose after admission."""
    before, after = (np.diff(part.admissions().offsets) for part in (cohort, cohort.present()))
    return after < before


def _ratios(
    scores: Mapping, parts: tuple[Cohort, Cohort], later: np.ndarray, resamples: int, seed: int
) -> Iterator[dict]:
    """Yield observed / expected events, for all admissions and for those with a code that arose after admission."""
    train, judged = parts
    patient = numbered(judged.column("subject_id"))
    for outcome in judged.outcomes:
        learned, y = train.labels(outcome)[:, 0], judged.labels(outcome)[:, 0]
        known = ~np.isnan(learned)
        if min(np.nansum(learned), np.nansum(1 - learned), np.nansum(y)) < LEAST:
            continue
        risks = {choice: smooth(score[known], learned[known])(test) for choice, (score, test) in scores.items()}
        for metric, rows in (("o_e", ~np.isnan(y)), ("o_e_later", ~np.isnan(y) & later)):
            observed = float(y[rows].sum())
            for choice, risk in risks.items() if observed >= LEAST else ():
                expected = float(risk[rows].sum())
                low, high = interval([observed], [expected])
                gap = _difference(y[rows], risk[rows], risks[ALL][rows], patient[rows], resamples, seed)
                yield {
                    "codes": choice,
                    "outcome": outcome,
                    "metric": metric,
                    "value": observed / expected,
                    "low": low[0],
                    "high": high[0],
                    "n": int(rows.sum()),
                    "positives": int(observed),
                    **dict(zip(CHANGE, gap)),
                }


def _difference(
    y: np.ndarray, risk: np.ndarray, first: np.ndarray, patient: np.ndarray, resamples: int, seed: int
) -> tuple[float, float, float]:
    """Return the difference of two ratios on the same admissions, with its bootstrap interval over patients."""
    sums = np.stack([np.bincount(patient, values) for values in (y, risk, first)])
    sums = sums[:, np.bincount(patient, minlength=sums.shape[1]) > 0]
    value = sums[0].sum() / sums[1].sum() - sums[0].sum() / sums[2].sum()
    if not resamples or risk is first:
        return float(value), np.nan, np.nan
    many = sums.shape[1]
    drawn = np.random.default_rng(seed).multinomial(many, np.full(many, 1 / many), size=resamples) @ sums.T
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1] - drawn[:, 0] / drawn[:, 2], [0.025, 0.975])
    return float(value), float(low), float(high)
