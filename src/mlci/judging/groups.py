"""Subgroup analysis: AUROC and calibration of each group, and tests of whether calibration differs between groups.

Turn scores, risks, outcomes and a grouping (sex, age band, any column) into AUROC and observed/expected events of each
group with intervals, and two p-values per column. A group in which fewer than ten admissions have an outcome, or lack
it, has no row of its own. Such groups are merged into one row, together with the next smallest if they are still fewer
than ten, so that their counts cannot be derived by subtracting the other rows from the total.
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
    """Return the values of a `column` as text; missing values are a group of their own.

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
    """Return which groups to suppress: those with fewer than ten, and the next smallest until they hold ten together.

    The difference between the total and the groups shown is then at least ten of either class (secondary suppression).

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


def shown_groups(column, y: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the groups of an outcome that a table may show, each with its admissions; small groups are merged.

    Args:
        column: the group of each admission.
        y: its outcome: 0, 1 or NaN.

    >>> ward, died = np.repeat(["A", "B", "C"], [60, 50, 5]), np.tile([0, 1, 0, 0, 1], 23)
    >>> [(group, int(inside.sum())) for group, inside in shown_groups(ward, died)]
    [('A', 60), ('B or C', 55)]
    """
    return _merged(_groups(column), y)


def _merged(groups: list[tuple[str, np.ndarray]], y: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the groups with small ones merged into one, which is left out if it is still too small."""
    found = [(group, inside) for group, inside in groups if (~np.isnan(y[inside])).any()]
    hidden = small(*([int((y[inside] == kind).sum()) for _, inside in found] for kind in (1, 0)))
    shown = [group for group, few in zip(found, hidden) if not few]
    few = [group for group, few in zip(found, hidden) if few]
    if few and shown:  # if all are small, there is nothing to show
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
    """Evaluate a score and its risks in each group with enough admissions of both classes; small groups are merged.

    Args:
        score: one number per admission.
        risks: outcome → probability of each admission; outcomes without risks are left out.
        outcomes: outcome → 0, 1 or NaN of each admission.
        parts: name of a column → group of each admission.
        patients: the patient of each admission, or a `Design`.

    Returns:
        One row per column, group and outcome: whether it is of merged groups, n, positives, AUROC and observed /
        expected events with 95% intervals, clustered by patient.

    >>> score = np.linspace(0, 1, 100)
    >>> frame = by_group(score, {"died": score}, {"died": score > 0.6}, {"ward": ["A", "B"] * 50}, patients=range(100))
    >>> frame[["group", "positives", "ratio"]].round(1).to_dict("records")
    [{'group': 'A', 'positives': 20, 'ratio': 0.8}, {'group': 'B', 'positives': 20, 'ratio': 0.8}]
    """
    rows, design = [], as_design(patients)
    for by, column in parts.items():
        groups = _groups(column)
        for name, y in outcomes.items():
            for group, inside in _merged(groups, y) if name in risks else ():
                pair = Pair(score[inside], y[inside].astype(float), risks[name][inside], patients=design.take(inside))
                figures = []
                for metric in (METRICS["auroc"], METRICS["observed_expected"]):
                    assert metric.interval is not None
                    value, bounds = metric.of(pair), [np.nan, np.nan]
                    if np.isfinite(value):
                        found = metric.interval(pair, value, NOTHING, Reach(pair.events))
                        bounds = [found.low, found.high]
                    figures += [value, *bounds]
                merged = group not in dict(groups)
                rows.append((by, group, merged, name, pair.n, int(np.nansum(pair.y)), *figures))
    heads = ["by", "group", "merged", "outcome", "n", "positives"]
    return pd.DataFrame(rows, columns=[*heads, *_heads("auroc"), *_heads("ratio")])


def interactions(
    risks: Mapping[str, np.ndarray],
    outcomes: Mapping[str, np.ndarray],
    parts: Mapping[str, np.ndarray],
    *,
    patients: np.ndarray | Design,
) -> pd.DataFrame:
    """Test whether calibration differs between groups: in its intercept (`level`) and in its slope (`slope`).

    Both are score tests in a logistic regression on the risk's log-odds, with a covariance that is robust to clustering
    by patient. `level` tests the main effect of the groups; `slope` tests the interaction of groups and log-odds, given
    the main effects. Groups with too few admissions of either class are left out.

    Args:
        risks, outcomes, parts, patients: as in `by_group`.

    Returns:
        One row per column and outcome: the number of groups compared, and the p-values `level` and `slope`.

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
    """Return the groups of a column sorted by name, each with its admissions; missing values come last."""
    numbers, names = pd.factorize(categories(column))  # comparing numbers is much faster than comparing text
    order = sorted(range(len(names)), key=lambda place: (names[place] == UNKNOWN, names[place]))
    return [(names[place], numbers == place) for place in order]


def _heads(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _score_test(design: np.ndarray, extra: np.ndarray, y: np.ndarray, drawn: Design) -> float:
    """Return the p-value of adding the columns `extra` to a logistic regression on `design`, clustered by patient."""
    weights, residuals = _fit(design, y, np.ones(len(y)) if drawn.weight is None else drawn.weight)
    # Project the new columns off the old ones.
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
    """Return weights and residuals of a logistic regression by Newton's method, with a tiny ridge to keep it finite."""
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
