"""Compare look-back windows: how well each index does with the codes of different periods before admission.

The cohort must have the dates of admission. Each index is computed from the codes of each window and evaluated on the
same admissions; differences from the first window are paired. A window longer than a patient was observed adds nothing,
so the table also states the share of admissions observed for as long, and the share with any code from the past.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.judging._changes import Scores, changes


def compare_windows(
    cohort: Cohort,
    indices: Mapping[str, Scores],
    windows: Sequence[float],
    *,
    carry: str | Path | None = None,
    split: Sequence[str] = ("test",),
    resamples: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare each index with the first window to the same index with the other windows.

    Args:
        cohort: with the column `days_observed`, and without a look-back period of its own.
        indices: name → a function that returns scores from the training and the evaluated admissions of one window.
        windows: days to look back; 0 means an admission's own codes only.
        carry: which codes of the past count, as in `Cohort.looking_back`.
        split: the splits to evaluate; earlier admissions count whatever their split.
        resamples: number of bootstrap samples of patients for intervals; 0 gives none.
        seed: of the resampling.

    Returns:
        One row per index, window (`days`), outcome and metric (auroc, dcorr): the value and the paired difference from
        the first window, both with intervals, the share of admissions observed for as long, and the share with any
        code from the past. Outcomes that fewer than ten admissions have, or lack, are left out. `attrs["notes"]` holds
        notes from the look-back, one sentence each.

    >>> from mlci.cohort import build_cohort
    >>> from mlci.judging._changes import published
    >>> cohort = build_cohort("synthetic", 1500)
    >>> table = compare_windows(cohort, published("charlson"), [0, 365], resamples=0)
    >>> table["days"].unique().tolist()
    [0, 365]
    """
    if len({*windows}) < len(windows) or len(windows) < 2 or min(windows) < 0:
        listed = ",".join(f"{days:g}" for days in windows)
        raise InputError(f"look_back: {listed} is not allowed; allowed are two or more different numbers of days.")
    looked = {f"{days:g}": cohort.looking_back(days, carry=carry) for days in windows}
    parts = {days: (part.split("train"), part.split(*split)) for days, part in looked.items()}
    judged = cohort.split(*split)
    if not len(judged):
        raise InputError(f"the cohort has no admission in the split {','.join(split)}.")
    own, observed = _codes(judged), judged.column("days_observed")
    known = {
        days: {
            "days": float(days) if "." in days else int(days),
            "observed": float(np.mean(observed >= float(days))),
            "carrying": float(np.mean(_codes(part) > own)),
        }
        for days, (_, part) in parts.items()
    }
    rows = []
    for index, make in indices.items():
        scores = {days: make(*views)[1] for days, views in parts.items()}
        for row in changes(scores, judged, head="days", resamples=resamples, seed=seed):
            rows.append({"index": index, **row, **known[row["days"]]})
    table = pd.DataFrame(rows)
    table.attrs["notes"] = [note for part in looked.values() for note in part.notes[len(cohort.notes) :]]
    return table


def _codes(cohort: Cohort) -> np.ndarray:
    return pc.list_value_length(cohort.table["codes"]).to_numpy()
