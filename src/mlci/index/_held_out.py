"""What a model reached on admissions that had no part in its weights: the figures that its file and its page show.

In come scores, risks and outcomes of the validation split; out come plain numbers for the model's card. The validation
split may have chosen when to stop, so the figures are a little kind; `mlci report` judges on a test split.
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
    """Return the figures of each outcome of which `least` admissions or more had it, and as many did not.

    `auroc` is the score's; `observed` is the share with the outcome and `expected` the mean risk; `slope` is that of
    the outcome on the risk's log-odds (1 is right). `_low` and `_high` bound 95% intervals. `drawn` says which
    admissions count more than others, and which clusters belong together.
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
