"""How far missing outcomes could move a figure: every outcome that is not known taken as absent, then as present.

Scores, risks and outcomes come in, a table goes out. Where the two lie far apart, a figure of the known outcomes rests
on the belief that the missing ones are like them.
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
    """Judge scores with missing outcomes left out, all taken as absent, and all taken as present.

    Args:
        models: name → score of each admission.
        outcomes: name → 0, 1 or NaN of each admission; those that are known everywhere are left out.
        risks: model → outcome → probability.
        patients: whose admission each one is, or a `Design`, whose weights then count.

    Returns:
        One row per model, outcome and figure: how many are missing, `known`, `all_absent` and `all_present`. The
        figures are the share with the outcome, AUROC, dCorr, and of risks deviance explained and observed / expected.

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
    return float(mean(pair.y[known], None if pair.weight is None else pair.weight[known])) if known.any() else np.nan
