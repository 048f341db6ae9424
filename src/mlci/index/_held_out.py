"""What a model reached on admissions that had no part in its weights: the figures that its file and its page show.

In come scores, risks and outcomes of the validation split; out come plain numbers for the model's card. The validation
split may have chosen when to stop, so the figures are a little kind; `mlci report` judges on a test split.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mlci.measures._proportion import wilson
from mlci.measures.discrimination import auroc, calibration

Z = 1.959964  # of a 95% interval


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
        area = auroc(score[known], outcome[known])
        low, high = _auroc_interval(area, positives, n - positives)
        rate_low, rate_high = (float(bound) for bound in wilson(positives, n))
        slope = calibration(risks[name][known], outcome[known]).slope
        found[name] = {
            "n": n,
            "positives": positives,
            "auroc": area,
            "auroc_low": low,
            "auroc_high": high,
            "expected": float(risks[name][known].mean()),
            "observed": positives / n,
            "observed_low": rate_low,
            "observed_high": rate_high,
            **({"slope": float(slope)} if np.isfinite(slope) else {}),
        }
    return found


def _auroc_interval(area: float, positives: int, negatives: int) -> tuple[float, float]:
    """Hanley and McNeil's standard error, on the log-odds scale, where it covers with few events too.

    >>> [round(bound, 3) for bound in _auroc_interval(0.8, 50, 500)]
    [0.714, 0.865]
    """
    if not 0 < area < 1:
        return area, area
    first, second = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (positives - 1) * (first - area**2) + (negatives - 1) * (second - area**2)
    error = np.sqrt(spread / (positives * negatives)) / (area * (1 - area))
    middle = np.log(area / (1 - area))
    low, high = (1 / (1 + np.exp(-(middle + side * Z * error))) for side in (-1, 1))
    return float(low), float(high)
