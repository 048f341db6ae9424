"""Evaluate scores by every metric of the benchmark for each outcome.

All scores are evaluated in the same way: those of runs, of regressions on comorbidity flags, and of the user's files.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.special import expit

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.judging import rivals
from mlci.judging.scores import match, read_scores
from mlci.judging.smooth import smooth
from mlci.measures.registry import Pair, benchmarked

SKILLS = ("deviance", "nagelkerke", "brier_skill")  # of risks


def measure(
    score: np.ndarray, judged: Cohort, *, learned: tuple[np.ndarray, Cohort] | None = None
) -> dict[str, dict[str, float | None]]:
    """Evaluate a score by each metric of the benchmark, on the admissions whose outcome is known.

    Args:
        score: one number per admission.
        judged: the admissions.
        learned: scores of other admissions, and these admissions. A smooth risk curve fitted to them turns the score
            into the risks that some metrics need.

    Returns:
        Metric → outcome → value; None if it is undefined.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["C78.0"], ["E11.9"]] * 30, "died": [1, 0] * 30})
    >>> cohort = Cohort.from_frame(visits, icd_version=10)
    >>> measure(np.arange(60.0) % 3, cohort)["auroc"]["mortality"]
    0.5
    """
    risks = {} if learned is None else _risks(score, *learned)
    columns = dict(zip(judged.outcomes, judged.labels().T))
    return _values({name: Pair(score, y, risks.get(name)) for name, y in columns.items()})


def _risks(score: np.ndarray, known: np.ndarray, others: Cohort) -> dict[str, np.ndarray]:
    columns = dict(zip(others.outcomes, others.labels().T))
    return {name: smooth(known, y)(score) for name, y in columns.items() if (~np.isnan(y)).any()}


def _values(pairs: Mapping[str, Pair]) -> dict[str, dict[str, float | None]]:
    found = {}
    for metric in benchmarked().values():
        values = {name: metric.value(pair) if metric.applies(pair) else np.nan for name, pair in pairs.items()}
        found[metric.name] = {name: float(value) if np.isfinite(value) else None for name, value in values.items()}
    return found


def rival_metrics(cohort: Cohort) -> dict[str, dict]:
    """Evaluate regressions on age, sex and comorbidity flags, fitted to the training split for each outcome.

    Args:
        cohort: with columns `age` and `sex`; the evaluation is on its test split.

    Returns:
        Name of the regression → metric (AUROC and skills) → outcome → value.

    >>> from mlci.cohort import build_cohort
    >>> round(rival_metrics(build_cohort("synthetic", 200))["Age and sex"]["auroc"]["long_stay"], 2)
    0.61
    """
    test = cohort.split("test")
    labels = dict(zip(cohort.outcomes, test.labels().T))
    found = {}
    for rival, columns in rivals.refitted(cohort.split("train"), test, list(labels)).items():
        pairs = {name: Pair(odds, labels[name], expit(odds)) for name, odds in columns.items()}
        values = _values(pairs)
        found[rival] = {metric: values[metric] for metric in ("auroc", *SKILLS)}
    return found


def own_metrics(name: str, path: str | Path, cohort: Cohort) -> dict[str, dict]:
    """Evaluate the scores of the user's own file on the test split.

    Args:
        name: of the score.
        path: the file; it must cover the test split.
        cohort: the admissions and their outcomes.

    Returns:
        Name of each column (`name` if there is only one) → metric → outcome → value.

    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["C78.0"], ["E11.9"]] * 30, "died": [1, 0] * 30})
    >>> with TemporaryDirectory() as folder:
    ...     points = pd.DataFrame({"admission_id": range(60), "points": np.arange(60) % 3})
    ...     points.to_csv(Path(folder, "own.csv"), index=False)
    ...     own_metrics("ward", Path(folder, "own.csv"), Cohort.from_frame(visits, icd_version=10))["ward"]["auroc"]
    {'mortality': 0.4609375}
    """
    test = cohort.split("test")
    scores, found = match(read_scores(path), test, where=str(path))
    if len(found) < len(test):
        lacking = len(test) - len(found)
        raise InputError(f"{path}: lacks {lacking:,} of {len(test):,} test admissions; the comparison needs all.")
    names = [name] if scores.shape[1] == 1 else [f"{name}.{column}" for column in scores]
    return {name: measure(scores[column].to_numpy(), test) for name, column in zip(names, scores)}
