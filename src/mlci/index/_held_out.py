"""Performance on the validation split: the figures that a model file and its page show.

Turn scores, risks and outcomes of the validation split into plain numbers for the model's card. If the validation split
was used for early stopping, these figures are slightly optimistic; `mlci report` evaluates on a test split.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mlci.fitting._data import Split
from mlci.judging.theory import rate_of
from mlci.measures.design import Design
from mlci.measures.discrimination import auroc, auroc_influence, calibration
from mlci.measures.intervals import area
from mlci.measures.weighted import mean


def held_out(
    score: np.ndarray,
    risks: Mapping[str, np.ndarray],
    labels: np.ndarray,
    names: Sequence[str],
    *,
    least: int,
    drawn: Split | None = None,
) -> dict[str, dict[str, float | int]]:
    """Return the figures of each outcome that at least `least` admissions have and at least `least` lack.

    `auroc` is that of the score. `observed` is the event rate and `expected` the mean risk. `slope` is the calibration
    slope (1 is ideal). `_low` and `_high` bound 95% confidence intervals. `drawn` holds the survey weights and clusters
    of the admissions.
    """
    found = {}
    for name, outcome in zip(names, labels.T, strict=True):
        known = ~np.isnan(outcome)
        positives, n = int(outcome[known].sum()), int(known.sum())
        if name not in risks or min(positives, n - positives) < least:
            continue
        clusters = None if drawn is None else drawn.clusters
        weight = None if drawn is None or drawn.weight is None else drawn.weight[known]
        design = Design.of(np.arange(n) if clusters is None else clusters[known], weights=weight)
        influence = auroc_influence(score[known], outcome[known], weight=weight)
        bounds = area(auroc(score[known], outcome[known], weight=weight), influence, outcome[known], design)
        observed = rate_of(outcome[known], weight)
        slope = calibration(risks[name][known], outcome[known], weight=weight).slope
        found[name] = {
            "n": n,
            "positives": positives,
            "auroc": bounds.value,
            "auroc_low": bounds.low,
            "auroc_high": bounds.high,
            "expected": float(mean(risks[name][known], weight)),
            "observed": observed.rate,
            "observed_low": observed.low,
            "observed_high": observed.high,
            **({"slope": float(slope)} if np.isfinite(slope) else {}),
        }
    return found
