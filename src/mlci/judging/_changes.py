"""Compare several versions of one index, computed from different codes: AUROC and dCorr, and paired differences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from mlci.base.errors import InputError
from mlci.codes.comorbidity import Coder
from mlci.codes.family import chosen, score_columns
from mlci.cohort import Cohort
from mlci.judging.evaluate import judge

METRICS = ("auroc", "dcorr")
CHANGE = ("change", "change_low", "change_high")
LEAST = 10  # admissions with an outcome, and without it, that a row needs
Scores = Callable[[Cohort, Cohort], tuple[np.ndarray, ...]]  # of the training and the evaluated admissions


def published(names: str | Sequence[str]) -> dict[str, Scores]:
    """Return functions that score admissions by indices with published weights.

    Args:
        names: of indices, from `mlci indices --list`.

    Returns:
        Column → a function of the training and the evaluated admissions.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": [1, 2], "codes": [["I50.9"], ["J18.9"]], "died": [1, 0]})
    >>> cohort = Cohort.from_frame(visits, icd_version=10)
    >>> {name: scores(cohort, cohort)[1].tolist() for name, scores in published("charlson,elixhauser").items()}
    {'cci_charlson': [1.0, 0.0], 'eci_vw': [7.0, 0.0]}
    """
    return {column: partial(_points, name, column) for name in chosen(names) for column in score_columns([], [name])}


def _points(name: str, column: str, *parts: Cohort) -> tuple[np.ndarray, ...]:
    coder = Coder([name])
    found = [coder.scores(part.admissions(), [column]) for part in parts]
    for sentence in coder.unlisted():
        raise InputError(sentence)
    return tuple(points[column].astype(float) for points in found)


def changes(
    scores: Mapping[str, np.ndarray], judged: Cohort, *, head: str, resamples: int, seed: int
) -> Iterator[dict]:
    """Evaluate each score, and its difference from the first.

    Args:
        scores: name → one number per admission.
        judged: the admissions.
        head: name of the column that holds the names.
        resamples: number of bootstrap samples of patients; 0 gives no intervals.
        seed: of the resampling.

    Returns:
        An iterator over rows: metrics and differences, with their intervals.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(40), "codes": [["I50.9"]] * 40, "died": [0, 1] * 20})
    >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"})
    >>> scores = {"plain": np.arange(40.0), "better": np.arange(40.0) % 2}
    >>> rows = [*changes(scores, cohort, head="codes", resamples=0, seed=0)]
    >>> [round(row["change"], 3) for row in rows if (row["codes"], row["metric"]) == ("better", "auroc")]
    [0.475]
    """
    found = judge(scores, judged, metrics=METRICS, resamples=resamples, seed=seed)
    gaps = found.differences.set_index(["model", "outcome", "metric"])[["value", "low", "high"]]
    gaps.columns = CHANGE
    for row in found.table.to_dict("records"):
        if min(row["positives"], row["n"] - row["positives"]) < LEAST:
            continue
        key = (row["model"], row["outcome"], row["metric"])
        gap = gaps.loc[key].to_dict() if key in gaps.index else dict(zip(CHANGE, (0.0, np.nan, np.nan)))
        yield {head: row.pop("model"), **row, **gap}
