"""What a model reached on admissions that had no part in its weights: the figures that its file and its page show.

In come scores, risks and outcomes of the validation split; out come plain numbers for the model's card. The validation
split may have chosen when to stop, so the figures are a little kind; `mlci report` judges on a test split.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mlci.measures._proportion import wilson
from mlci.measures.discrimination import auroc, auroc_influence, calibration
from mlci.measures.intervals import area


def held_out(
    score: np.ndarray, risks: Mapping[str, np.ndarray], labels: np.ndarray, names: Sequence[str], *, least: int
) -> dict[str, dict[str, float | int]]:
    """The figures of each outcome of which `least` admissions or more had it, and as many did not.

    `auroc` is the score's; `observed` is the share with the outcome and `expected` the mean risk; `slope` is that of
    the outcome on the risk's log-odds (1 is right). `_low` and `_high` bound 95% intervals.
    """
    found = {}
    for name, outcome in zip(names, labels.T, strict=True):
        known = ~np.isnan(outcome)
        positives, n = int(outcome[known].sum()), int(known.sum())
        if name not in risks or min(positives, n - positives) < least:
            continue
        influence = auroc_influence(score[known], outcome[known])
        bounds = area(auroc(score[known], outcome[known]), influence, outcome[known], np.arange(n))
        rate_low, rate_high = (float(bound) for bound in wilson(positives, n))
        slope = calibration(risks[name][known], outcome[known]).slope
        found[name] = {
            "n": n,
            "positives": positives,
            "auroc": bounds.value,
            "auroc_low": bounds.low,
            "auroc_high": bounds.high,
            "expected": float(risks[name][known].mean()),
            "observed": positives / n,
            "observed_low": rate_low,
            "observed_high": rate_high,
            **({"slope": float(slope)} if np.isfinite(slope) else {}),
        }
    return found
