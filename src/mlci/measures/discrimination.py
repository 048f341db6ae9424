"""How well a score orders admissions (AUROC, average precision, rank dCorr), and how well a risk is calibrated.

scikit-learn is used where it has the figure. Everything here follows one convention: admissions whose outcome is null
are left out, and figures that a single class leaves undefined are NaN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.measures._arrays import as_outcomes, as_scores, midranks
from mlci.measures.alignment import distance_correlation
from mlci.measures.distributions import root
from mlci.measures.weighted import mean, quantile

FAR = 100.0  # log-odds; a shift by so much makes every risk 0 or 1
FLAT = 1e-6  # mean derivative of the log-likelihood from which Newton's method has not reached its maximum


def auroc(score: Any, y: Any, *, weight: np.ndarray | None = None) -> float:
    """Return the probability that an admission with the outcome has a higher score than one without; ties count half.

    Args:
        score: one number per admission.
        y: the outcome: 0, 1, or null where not known (such admissions are left out).
        weight: sampling weight of each admission, if they differ.

    Returns:
        A number between 0 and 1; NaN where only one class is known.

    >>> auroc([1, 2, 3, 4], [0, 1, 0, 1])
    0.75
    """
    scores, labels = _valid(score, y)
    weight = None if weight is None else weight[~np.isnan(as_outcomes(y, len(weight))[:, 0])]
    parts = [_class_of(scores, labels == kind, weight) for kind in (1, 0)]
    if not all(total > 0 for *_, total in parts):
        return np.nan
    (cases, mass, _), (controls, other, _) = parts
    return float(mean(_share_below(cases, controls, other), mass))


def _class_of(scores: np.ndarray, rows: np.ndarray, weight: np.ndarray | None):
    """Return the scores of one class, their weights, and the class's total weight."""
    mass = None if weight is None else weight[rows]
    return scores[rows], mass, int(rows.sum()) if mass is None else float(mass.sum())


def _share_below(values: np.ndarray, others: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the share of the others that lie below each value; ties count half."""
    order, found = None if weight is None else np.argsort(others), np.argsort(values)
    others, values = np.sort(others) if order is None else others[order], values[found]
    # Sorted queries are much faster.
    first, last = (np.searchsorted(others, values, side=side) for side in ("left", "right"))
    below = np.empty(len(values))
    if weight is None:
        below[found] = first + last
        return below / (2 * len(others))
    reached = np.concatenate([[0.0], np.cumsum(weight[order])])
    below[found] = reached[first] + reached[last]
    return below / (2 * reached[-1])


def area(
    score: np.ndarray, y: np.ndarray, *, weight: np.ndarray | None = None, order: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return AUROC together with `auroc_influence`, which both follow from DeLong's placements.

    Args:
        score: one number per admission.
        y: the outcome, 0 or 1.
        weight: sampling weight of each admission.
        order: the order that sorts the scores, if it is known already; not used with weights.

    >>> import numpy as np
    >>> area(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 1]))
    (0.75, array([ 0.125, -0.125, -0.125,  0.125]))
    """
    influence = np.zeros(len(score))
    case, control = y == 1, y == 0
    (cases, mass, many), (controls, other, rest) = (_class_of(score, rows, weight) for rows in (case, control))
    if not many or not rest:
        return np.nan, np.full(len(score), np.nan)
    if weight is None:
        above, below = _placements(score, case, control, np.argsort(score) if order is None else order)
    else:
        above = _share_below(cases, controls, other)  # share of controls below each case
        below = 1 - _share_below(controls, cases, mass)  # share of cases above each control
    value = mean(above, mass)
    influence[case] = (above - value) / many
    influence[control] = (below - mean(below, other)) / rest
    return float(value), influence if weight is None else influence * weight


def _placements(
    score: np.ndarray, case: np.ndarray, control: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of controls below each case and that of cases above each control; ties count half."""
    order = order[(case | control)[order]]
    # Counts as floats, so that the division needs no conversion.
    values, cases = score[order], np.cumsum(case[order].astype(float))
    controls = np.arange(1.0, len(order) + 1) - cases
    ends = np.append(values[1:] != values[:-1], True)  # the end of each run of equal scores
    tied = None if ends.all() else np.cumsum(ends) - ends
    twice, found = np.empty(len(score)), []  # number of the other class below, plus the number at or below
    for counts, members in ((controls, case), (cases, control)):
        reached = counts if tied is None else counts[ends]
        below = reached.copy()
        below[1:] += reached[:-1]
        twice[order] = below if tied is None else below[tied]
        found.append(twice[members] / (2 * counts[-1]))
    return found[0], 1 - found[1]


def auroc_influence(score: np.ndarray, y: np.ndarray, *, weight: np.ndarray | None = None) -> np.ndarray:
    """Return each admission's influence on AUROC: DeLong's placements, centred and divided by the size of the class.

    The influences sum to 0, and their squares sum to DeLong's variance of AUROC; summed by patient first, they give the
    variance with correlated admissions of a patient. With weights they are the linearised influences of survey
    statistics.

    Args:
        score: one number per admission.
        y: the outcome: 0, 1, or NaN where not known.
        weight: sampling weight of each admission, if they differ.

    Returns:
        One number per admission: 0 where the outcome is not known, NaN everywhere where it has a single class.

    >>> import numpy as np
    >>> auroc_influence(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 1]))
    array([ 0.125, -0.125, -0.125,  0.125])
    """
    return area(score, y, weight=weight)[1]


def average_precision(score: Any, y: Any) -> float:
    """Return the average precision: the mean over cases of the precision at their scores, as scikit-learn has it.

    Args:
        score: one number per admission.
        y: the outcome: 0, 1, or null where not known.

    Returns:
        A number between the outcome's rate and 1; NaN where only one class is known.

    >>> round(average_precision([1, 2, 3, 4], [0, 1, 0, 1]), 3)
    0.833
    """
    from sklearn.metrics import average_precision_score

    scores, labels = _valid(score, y)
    return float(average_precision_score(labels, scores)) if len(set(labels)) == 2 else np.nan


def rank_distance_correlation(score: Any, y: Any) -> float:
    """Return the distance correlation of the score's mid-ranks with the outcome, which depends on the order alone.

    Args:
        score: one number per admission.
        y: the outcome, 0 or 1.

    >>> round(rank_distance_correlation([1, 2, 3, 400], [0, 0, 1, 1]), 3)
    0.912
    """
    scores, labels = _valid(score, y)
    return float(distance_correlation(midranks(scores), labels)) if len(scores) else 0.0


@dataclass(frozen=True)
class Calibration:
    """How well a risk is calibrated.

    Attributes:
        observed_expected: events over the sum of risks (1 is right, above 1 the risks are too low).
        brier: mean squared error of the risk.
        slope: slope of the logistic regression of the outcome on the risk's logit (1 is right, below 1 the risks are
            too extreme).
        intercept: intercept of that regression with the slope fixed at 1, in logits (0 is right, above 0 the risks are
            too low).
        error: root mean squared observed − predicted over ten groups of equal size by risk, corrected for chance.
        brier_skill: 1 − Brier score / Brier score of the rate alone.
        deviance: 1 − deviance / deviance of the rate alone (the deviance is twice the log-loss).
        nagelkerke: Nagelkerke's R².

    Slope and intercept are NaN where no finite ones fit; the last three are NaN where the outcome has a single class.
    """

    observed_expected: float
    brier: float
    slope: float
    intercept: float
    error: float
    brier_skill: float
    deviance: float
    nagelkerke: float


def calibration(risk: Any, y: Any, *, weight: np.ndarray | None = None) -> Calibration:
    """Return the calibration of a risk, on the admissions whose outcome is known.

    Args:
        risk: a probability per admission.
        y: the outcome: 0, 1, or null where not known.
        weight: sampling weight of each admission, if they differ.

    >>> calibration([0.1, 0.2, 0.6, 0.7], [0, 0, 1, 0]).brier
    0.175
    """
    risks, labels = _valid(risk, y, "risk")
    if len(labels) == 0:
        return Calibration(*[np.nan] * 8)
    check_risk(risks)
    weight = None if weight is None else weight[~np.isnan(as_outcomes(y, len(weight))[:, 0])]
    if weight is not None and not weight.any():
        return Calibration(*[np.nan] * 8)
    slope = calibration_line(risks, labels, weight=weight)[1]
    intercept = calibration_line(risks, labels, slope=1.0, weight=weight)[0]
    gaps, variances, shares = calibration_gaps(risks, labels, weight=weight)
    error = np.sqrt(max(shares @ (gaps**2 - variances), 0.0))
    brier = mean((labels - risks) ** 2, weight)
    skills = skill(brier, mean(log_losses(risks, labels), weight), mean(labels, weight))
    ratio = observed_expected(risks, labels, weight=weight)
    return Calibration(*map(float, (ratio, brier, slope, intercept, error, *skills)))


def observed_expected(risk: Any, y: Any, *, weight: np.ndarray | None = None) -> float:
    """Return the number of events over the sum of risks, of the admissions whose outcome is known.

    Args:
        risk: a probability per admission.
        y: the outcome: 0, 1, or null where not known.
        weight: sampling weight of each admission, if they differ.

    >>> round(observed_expected([0.1, 0.2, 0.6, 0.7], [0, 0, 1, 0]), 3)
    0.625
    """
    risks, labels = _valid(risk, y, "risk")
    if not len(labels):
        return np.nan
    check_risk(risks)
    weight = None if weight is None else weight[~np.isnan(as_outcomes(y, len(weight))[:, 0])]
    if weight is not None and not weight.any():
        return np.nan
    events, expected = (float(column.sum() if weight is None else weight @ column) for column in (labels, risks))
    return events / expected if expected > 0 else np.nan


def log_losses(risks: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return −log of the probability that the `risks` give to the observed outcomes `y` (0 or 1).

    >>> import numpy as np
    >>> log_losses(np.array([0.5, 0.75]), np.array([1, 1])).round(3)
    array([0.693, 0.288])
    """
    odds = logit(risks)
    return np.logaddexp(0, odds) - y * odds


def skill(brier: Any, loss: Any, rate: Any) -> tuple[Any, Any, Any]:
    """Return Brier skill and explained deviance, relative to the rate alone, and Nagelkerke's R².

    With R² of Cox and Snell 1 − exp(2 (loss − loss of the rate)), Nagelkerke's divides it by its maximum.

    Args:
        brier: Brier score of the risk.
        loss: mean log-loss of the risk.
        rate: rate of the outcome; if it is 0 or 1, the results are NaN.

    >>> [round(float(share), 3) for share in skill(0.125, 0.4, 0.5)]
    [0.5, 0.423, 0.591]
    """
    rate = np.where((rate > 0) & (rate < 1), rate, np.nan)
    bare = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    return 1 - brier / (rate * (1 - rate)), 1 - loss / bare, np.expm1(2 * (loss - bare)) / np.expm1(-2 * bare)


def calibration_gaps(
    risks: np.ndarray, y: np.ndarray, *, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observed − predicted in ten groups of equal size by risk, its variance by chance, and each group's share.

    Args:
        risks: a probability per admission.
        y: the outcome, 0 or 1.
        weight: sampling weight of each admission.

    >>> import numpy as np
    >>> gaps, variances, shares = calibration_gaps(np.array([0.2, 0.2, 0.6]), np.array([0, 1, 1]))
    >>> gaps.round(2), variances.round(2), shares.round(2)
    (array([0.3, 0.4]), array([0.08, 0.24]), array([0.67, 0.33]))
    """
    groups = risk_groups(risks, weight=weight)
    mass = np.ones(len(y)) if weight is None else weight
    n = np.bincount(groups, mass)
    kept = n > 0
    gaps, variances = np.bincount(groups, mass * (y - risks)), np.bincount(groups, mass**2 * risks * (1 - risks))
    return gaps[kept] / n[kept], variances[kept] / n[kept] ** 2, n[kept] / mass.sum()


def check_risk(risks: np.ndarray, name: str = "risk") -> None:
    """Raise an error for `risks` that are not probabilities; the message calls them `name`.

    >>> import numpy as np
    >>> check_risk(np.array([0.2, 1.5]))
    Traceback (most recent call last):
    mlci.base.errors.InputError: risk[1]: 1.5 is not between 0 and 1.
    """
    bad = (risks < 0) | (risks > 1)
    if bad.any():
        raise InputError(f"{name}[{int(bad.argmax())}]: {risks[bad][0]:g} is not between 0 and 1.")


def logit(risks: np.ndarray) -> np.ndarray:
    """Return the log-odds of risks, clipped to [1e-9, 1 − 1e-9].

    >>> import numpy as np
    >>> logit(np.array([0.5, 0.75])).round(3)
    array([0.   , 1.099])
    """
    risks = np.clip(risks, 1e-9, 1 - 1e-9)
    return np.log(risks / (1 - risks))


def expit(log_odds: np.ndarray) -> np.ndarray:
    """Return the risks of `log_odds`.

    >>> import numpy as np
    >>> expit(np.array([0.0, 1.0986])).round(3)
    array([0.5 , 0.75])
    """
    return 0.5 * (1 + np.tanh(log_odds / 2))  # no overflow


def risk_groups(risks: np.ndarray, groups: int = 10, *, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the group of each admission: groups of equal size by risk; equal risks are in the same group.

    Args:
        risks: a probability per admission.
        groups: the number of groups.
        weight: sampling weight of each admission.

    >>> import numpy as np
    >>> risk_groups(np.array([0.1, 0.2, 0.3, 0.4]), groups=2)
    array([0, 0, 1, 1])
    """
    edges = quantile(risks, np.arange(1, groups) / groups, weight)
    return np.searchsorted(edges, risks, side="left")


def calibration_line(
    risks: np.ndarray, y: np.ndarray, *, slope: float | None = None, weight: np.ndarray | None = None
) -> tuple[float, float]:
    """Fit the logistic regression of the outcome on the risk's log-odds, by Newton's method.

    Args:
        risks: a probability per admission.
        y: the outcome, 0 or 1.
        slope: a fixed slope; by default it is fitted too.
        weight: sampling weight of each admission, if they differ.

    Returns:
        Intercept and slope; both NaN where no finite line fits.

    >>> import numpy as np
    >>> intercept, slope = calibration_line(np.array([0.2, 0.2, 0.8, 0.8]), np.array([0, 1, 0, 1]))
    >>> abs(slope) < 1e-9
    True
    """
    if weight is not None:
        risks, y, weight = risks[weight > 0], y[weight > 0], weight[weight > 0]
    x = logit(risks)
    if not len(y) or np.ptp(y) == 0 or (slope is None and _is_separated(x[y == 1], x[y == 0])):
        return np.nan, np.nan if slope is None else slope
    design, free = np.column_stack([np.ones_like(x), x]), slice(0, 2 if slope is None else 1)
    at, likelihood = _climb(design, np.array([0.0, 1.0 if slope is None else slope]), free, y, weight)
    left = mean(design * (y - expit(design @ at))[:, None], weight)[free]
    if np.abs(left).max() > FLAT:  # risks so extreme and wrong that the likelihood is flat there: start elsewhere
        level = root(lambda shift: float(mean(y - expit(shift + (slope or 0.0) * x), weight)), -FAR, FAR)
        at, likelihood = _climb(design, np.array([level, slope or 0.0]), free, y, weight)
    admissions = len(y) if weight is None else weight.sum()
    if likelihood > -1e-6 * admissions:  # risks of 0 and 1 that are right fit any line
        return np.nan, np.nan
    return float(at[0]), float(at[1])


def _climb(
    design: np.ndarray, at: np.ndarray, free: slice, y: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """Return the most likely line by Newton's method, and its log-likelihood."""
    likelihood, step = -np.inf, np.zeros(2)
    for _ in range(100):
        gradient, hessian, now = _newton(design, design @ at, y, weight)
        if now < likelihood - 1e-12 * abs(likelihood):  # the step was too long
            step /= 2
            at = at - step
            continue
        likelihood = now
        step[free] = np.linalg.lstsq(hessian[free, free], gradient[free], rcond=None)[0]
        at = at + step
        if np.abs(step).max() < 1e-10 * max(1, np.abs(at).max()):
            break
    return at, likelihood


def _is_separated(cases: np.ndarray, controls: np.ndarray) -> bool:
    """Return whether cases and controls share at most one value, so that the slope of a logistic line diverges."""
    return bool(cases.min() >= controls.max() or cases.max() <= controls.min())


def _newton(
    design: np.ndarray, margin: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return gradient, negative Hessian and value of the log-likelihood."""
    fitted = expit(margin)
    mass = 1.0 if weight is None else weight
    hessian = (design * (mass * fitted * (1 - fitted))[:, None]).T @ design
    return design.T @ (mass * (y - fitted)), hessian, float(np.sum(mass * (y * margin - np.logaddexp(0, margin))))


def _valid(score: Any, y: Any, name: str = "score") -> tuple[np.ndarray, np.ndarray]:
    scores = as_scores(score, name)
    labels = as_outcomes(y, len(scores))[:, 0]
    return scores[~np.isnan(labels)], labels[~np.isnan(labels)]
