"""Is a score as good, and a risk as true, for everybody? Figures of each group, and tests of whether groups differ.

In come scores, risks, outcomes and what tells groups (sex, age band, any column); out come AUROC and observed/expected
events of each group with intervals, and for each column two p-values. A group in which fewer than ten admissions have
an outcome, or lack it, has no row of that outcome. So that its counts cannot be found by subtracting the other rows
from all, such groups share a row, together with the next smallest where they are fewer than ten.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from mlci.measures.design import Design, as_design
from mlci.measures.discrimination import expit, logit
from mlci.measures.distributions import chi_squared_tail
from mlci.measures.intervals import Reach
from mlci.measures.registry import METRICS, Pair

LEAST = 10  # admissions of a group with an outcome, and without it
UNKNOWN = "not known"
NOTHING = np.full(1, np.nan)


def categories(column) -> np.ndarray:
    """Return the values of a `column` as text; those that are not known are a group of their own.

    >>> categories(np.array(["F", None], dtype=object)).tolist()
    ['F', 'not known']
    """
    return pd.Series(np.asarray(column), dtype=object).fillna(UNKNOWN).astype(str).to_numpy()


def enough(y: np.ndarray) -> bool:
    """Return whether at least ten admissions have an outcome `y` and ten lack it.

    >>> enough(np.array([0, 1] * 10)), enough(np.array([0] * 20))
    (True, False)
    """
    return min(int((y == 1).sum()), int((y == 0).sum())) >= LEAST


def small(events, others) -> np.ndarray:
    """Return which groups must not be told apart: those of fewer than ten, and others until ten are hidden together.

    What the groups shown lack to the sum of all is then never less than ten of either class.

    Args:
        events: admissions of each group with the outcome.
        others: admissions of each group without it.

    >>> small([40, 30, 3], [100, 80, 50]), small([40, 8, 3], [100, 80, 50])
    (array([False,  True,  True]), array([False,  True,  True]))
    """
    counts = np.array([events, others])
    order = np.argsort(counts.min(axis=0), kind="stable")
    many = int((counts.min(axis=0) < LEAST).sum())
    while 0 < many < len(order) and counts[:, order[:many]].sum(axis=1).min() < LEAST:
        many += 1
    return np.isin(np.arange(len(order)), order[:many])


def told(column, y: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the groups of an outcome that a table may show, each with its admissions; small ones are taken together.

    Args:
        column: the group of each admission.
        y: its outcome: 0, 1 or NaN.

    >>> ward, died = np.repeat(["A", "B", "C"], [60, 50, 5]), np.tile([0, 1, 0, 0, 1], 23)
    >>> [(group, int(inside.sum())) for group, inside in told(ward, died)]
    [('A', 60), ('B or C', 55)]
    """
    return _told(_groups(column), y)


def _told(groups: list[tuple[str, np.ndarray]], y: np.ndarray) -> list[tuple[str, np.ndarray]]:
    found = [(group, inside) for group, inside in groups if (~np.isnan(y[inside])).any()]
    hidden = small(*([int((y[inside] == kind).sum()) for _, inside in found] for kind in (1, 0)))
    shown = [group for group, few in zip(found, hidden) if not few]
    few = [group for group, few in zip(found, hidden) if few]
    if few and shown:  # all groups together are no group
        together = np.any([inside for _, inside in few], axis=0)
        shown += [(" or ".join(group for group, _ in few), together)] if enough(y[together]) else []
    return shown


def by_group(
    score: np.ndarray,
    risks: Mapping[str, np.ndarray],
    outcomes: Mapping[str, np.ndarray],
    parts: Mapping[str, np.ndarray],
    *,
    patients: np.ndarray | Design,
) -> pd.DataFrame:
    """Judge a score and its risks in each group that has enough of both classes, small ones together.

    Args:
        score: one number per admission.
        risks: outcome → probability of each admission; an outcome without is left out.
        outcomes: outcome → 0, 1 or NaN of each admission.
        parts: name of a column → group of each admission.
        patients: whose admission each one is, or a `Design`.

    Returns:
        One row per column, group and outcome: n, positives, AUROC and observed / expected events with 95% intervals,
        which allow for admissions of one patient being alike.

    >>> score = np.linspace(0, 1, 100)
    >>> frame = by_group(score, {"died": score}, {"died": score > 0.6}, {"ward": ["A", "B"] * 50}, patients=range(100))
    >>> frame[["group", "positives", "ratio"]].round(1).to_dict("records")
    [{'group': 'A', 'positives': 20, 'ratio': 0.8}, {'group': 'B', 'positives': 20, 'ratio': 0.8}]
    """
    rows, design = [], as_design(patients)
    for by, column in parts.items():
        groups = _groups(column)
        for name, y in outcomes.items():
            for group, inside in _told(groups, y) if name in risks else ():
                pair = Pair(score[inside], y[inside].astype(float), risks[name][inside], patients=design.take(inside))
                figures = []
                for metric in (METRICS["auroc"], METRICS["observed_expected"]):
                    assert metric.interval is not None
                    found = metric.interval(pair, metric.of(pair), NOTHING, Reach(pair.events))
                    figures += [found.value, found.low, found.high]
                rows.append((by, group, name, pair.n, int(np.nansum(pair.y)), *figures))
    heads = ["by", "group", "outcome", "n", "positives"]
    return pd.DataFrame(rows, columns=[*heads, *_heads("auroc"), *_heads("ratio")])


def interactions(
    risks: Mapping[str, np.ndarray],
    outcomes: Mapping[str, np.ndarray],
    parts: Mapping[str, np.ndarray],
    *,
    patients: np.ndarray | Design,
) -> pd.DataFrame:
    """Test whether groups differ: in level (observed beyond expected), and in how far the outcome rises with the risk.

    Score tests of a logistic regression on the risk's log-odds, with the admissions of a patient taken together: of the
    groups beside it, and of its products with the groups beside the groups themselves. Groups that have too few of
    either class take no part.

    Args:
        risks, outcomes, parts, patients: as in `by_group`.

    Returns:
        One row per column and outcome: how many groups were compared, `level` and `slope`, the two p-values.

    >>> rng = np.random.default_rng(0)
    >>> risk, ward = rng.random(2000), np.array(["A", "B"] * 1000)
    >>> died = rng.random(2000) < np.where(ward == "A", risk, risk / 2)
    >>> [row] = interactions({"died": risk}, {"died": died}, {"ward": ward}, patients=range(2000)).to_dict("records")
    >>> row["level"] < 1e-6
    True
    """
    rows, design = [], as_design(patients)
    for by, column in parts.items():
        groups = _groups(column)
        for name, y in outcomes.items():
            if name not in risks:
                continue
            y = y.astype(float)
            kept = [inside & ~np.isnan(y) for _, inside in groups if enough(y[inside])]
            if len(kept) < 2:
                continue
            rows_of = np.any(kept, axis=0)
            dummies = np.column_stack([group[rows_of] for group in kept[1:]]).astype(float)
            x = logit(risks[name][rows_of])[:, None]
            plain = np.hstack([np.ones_like(x), x])
            drawn = design.take(rows_of)
            level = _score_test(plain, dummies, y[rows_of], drawn)
            slope = _score_test(np.hstack([plain, dummies]), x * dummies, y[rows_of], drawn)
            rows.append((by, name, len(kept), level, slope))
    return pd.DataFrame(rows, columns=["by", "outcome", "groups", "level", "slope"])


def _groups(column) -> list[tuple[str, np.ndarray]]:
    """Return the groups of a column by name, each with its admissions; those of whom nothing is known come last."""
    numbers, names = pd.factorize(categories(column))  # comparing numbers is many times faster than text
    order = sorted(range(len(names)), key=lambda place: (names[place] == UNKNOWN, names[place]))
    return [(names[place], numbers == place) for place in order]


def _heads(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _score_test(design: np.ndarray, extra: np.ndarray, y: np.ndarray, drawn: Design) -> float:
    """Return the p-value of the columns `extra` beside a logistic regression on `design`, clustered by patient."""
    weights, residuals = _fit(design, y, np.ones(len(y)) if drawn.weight is None else drawn.weight)
    # What is left of the new columns once the old ones have had their say.
    along = np.linalg.lstsq((design * weights[:, None]).T @ design, (design * weights[:, None]).T @ extra, rcond=None)[
        0
    ]
    moved = (extra - design @ along) * residuals[:, None]
    by_patient = np.column_stack([np.bincount(drawn.cluster, column) for column in moved.T])
    total, covariance = by_patient.sum(axis=0), by_patient.T @ by_patient
    statistic = float(total @ np.linalg.pinv(covariance) @ total)
    rank = np.linalg.matrix_rank(covariance)
    return chi_squared_tail(rank, statistic) if rank else np.nan


def _fit(design: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and residuals of a logistic regression, by Newton's method; a whiff of ridge keeps it finite."""
    at, ridge = np.zeros(design.shape[1]), 1e-6 * np.eye(design.shape[1])
    fitted = np.full(len(y), 0.5)
    for _ in range(50):
        fitted = expit(design @ at)
        hessian = (design * (weight * fitted * (1 - fitted))[:, None]).T @ design + ridge
        step = np.linalg.solve(hessian, design.T @ (weight * (y - fitted)) - ridge @ at)
        at = at + step / max(1.0, float(np.abs(step).max()) / 5)
        if np.abs(step).max() < 1e-9:
            break
    return weight * fitted * (1 - fitted), weight * (y - fitted)
