"""Sensitivity to missing outcomes: recompute metrics with every unknown outcome set to absent, then to present.

If the two differ much, a metric on the known outcomes relies on the assumption that missing outcomes are like known
ones.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mlci.measures.registry import METRICS, Pair
from mlci.measures.weighted import mean

FIGURES = ("auroc", "dcorr", "deviance", "observed_expected")


def bounds(
    models: Mapping[str, np.ndarray],
    outcomes: Mapping[str, np.ndarray],
    *,
    risks: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    patients: Any = None,
) -> pd.DataFrame:
    """Evaluate scores with missing outcomes left out, all set to absent, and all set to present.

    Args:
        models: name → score of each admission.
        outcomes: name → 0, 1 or NaN of each admission; outcomes without missing values are left out.
        risks: model → outcome → probability.
        patients: the patient of each admission, or a `Design` with weights.

    Returns:
        One row per model, outcome and metric: the number missing, `known`, `all_absent` and `all_present`. The metrics
        are the event rate, AUROC, dCorr, and for risks the deviance explained and observed / expected.

    >>> frame = bounds({"a": np.arange(4.0)}, {"died": np.array([0.0, np.nan, 0.0, 1.0])})
    >>> frame.set_index("figure").loc["auroc", ["known", "all_absent", "all_present"]].round(2).tolist()
    [1.0, 1.0, 0.75]
    """
    rows = []
    for model, score in models.items():
        for outcome, y in outcomes.items():
            missing = int(np.isnan(y).sum())
            if not missing:
                continue
            risk = (risks or {}).get(model, {}).get(outcome)
            pairs = [
                Pair(score, filled, risk, patients=patients)
                for filled in (y, *(np.where(np.isnan(y), value, y) for value in (0, 1)))
            ]
            rows.append((model, outcome, missing, "share", *map(_share, pairs)))
            for figure in FIGURES:
                if METRICS[figure].applies(pairs[0]):
                    values = (METRICS[figure].of(pair) for pair in pairs)
                    rows.append((model, outcome, missing, figure, *values))
    return pd.DataFrame(rows, columns=["model", "outcome", "missing", "figure", "known", "all_absent", "all_present"])


def _share(pair: Pair) -> float:
    """Return the share of admissions with a known outcome that have it."""
    known = ~np.isnan(pair.y)
    design = pair.design.take(known)
    return np.nan if design.is_empty else float(mean(pair.y[known], design.weight))
