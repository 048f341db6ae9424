"""How well a score orders admissions (AUROC, average precision, rank dCorr), and how true a risk is (calibration).

scikit-learn computes what it has; what is added is the order-only twin of distance correlation, the calibration line
and error, and one convention: a null outcome is left out, and what a single class leaves undefined is NaN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.measures._arrays import as_outcomes, as_scores
from mlci.measures.alignment import distance_correlation


def auroc(score: Any, y: Any) -> float:
    """Probability that a random admission with the outcome has a higher score than one without; ties count half."""
    from sklearn.metrics import roc_auc_score

    scores, labels = _valid(score, y)
    return float(roc_auc_score(labels, scores)) if len(set(labels)) == 2 else np.nan


def auroc_influence(score: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How far each admission moves AUROC from its mean: DeLong's placements, centred and divided by their class.

    Their sum is 0 and the sum of their squares is AUROC's variance; summed by patient first, it allows for admissions
    of one patient being alike. 0 where the outcome is null, NaN everywhere where it has one class.
    """
    influence = np.zeros(len(score))
    case, control = y == 1, y == 0
    many, rest = int(case.sum()), int(control.sum())
    if not many or not rest:
        return np.full(len(score), np.nan)
    known = case | control
    together = np.empty(len(score))
    together[known] = ranks(score[known])
    above = (together[case] - ranks(score[case])) / rest  # share of controls below each case
    below = 1 - (together[control] - ranks(score[control])) / many  # share of cases above each control
    influence[case] = (above - above.mean()) / many
    influence[control] = (below - below.mean()) / rest
    return influence


def average_precision(score: Any, y: Any) -> float:
    from sklearn.metrics import average_precision_score

    scores, labels = _valid(score, y)
    return float(average_precision_score(labels, scores)) if len(set(labels)) == 2 else np.nan


def rank_distance_correlation(score: Any, y: Any) -> float:
    """Distance correlation of the score's mid-ranks: what remains of dCorr when only the order is kept."""
    scores, labels = _valid(score, y)
    return float(distance_correlation(ranks(scores), labels)) if len(scores) else 0.0


def ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks from 1, equal scores sharing their mean."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


@dataclass(frozen=True)
class Calibration:
    """`brier`: mean squared error of the risk. `slope`: of the outcome's logit on the risk's (1 is right, below 1 too
    spread). `intercept`: of that line with slope 1, in logits (0 is right, above 0 the risks are too low). `ece`: mean
    |observed − predicted| over ten groups of equal size by risk. Slope and intercept are NaN where no finite ones fit.
    """

    brier: float
    slope: float
    intercept: float
    ece: float


def calibration(risk: Any, y: Any) -> Calibration:
    """How true a risk is, on the admissions whose outcome is known."""
    from sklearn.metrics import brier_score_loss

    risks, labels = _valid(risk, y, "risk")
    if len(labels) == 0:
        return Calibration(np.nan, np.nan, np.nan, np.nan)
    check_risk(risks)
    slope, intercept = calibration_line(risks, labels)[1], calibration_line(risks, labels, slope=1.0)[0]
    groups = risk_groups(risks)
    error = np.abs(np.bincount(groups, labels - risks)).sum() / len(labels)
    return Calibration(
        float(brier_score_loss(labels, risks, pos_label=1)), float(slope), float(intercept), float(error)
    )


def check_risk(risks: np.ndarray, name: str = "risk") -> None:
    bad = (risks < 0) | (risks > 1)
    if bad.any():
        raise InputError(f"{name}[{int(bad.argmax())}]: {risks[bad][0]:g} is not between 0 and 1.")


def logit(risks: np.ndarray) -> np.ndarray:
    """Log-odds; a risk of 0 or 1 is taken as 1e-9 from it."""
    risks = np.clip(risks, 1e-9, 1 - 1e-9)
    return np.log(risks / (1 - risks))


def risk_groups(risks: np.ndarray, groups: int = 10) -> np.ndarray:
    """The group of each admission: equal shares by risk, equal risks together."""
    edges = np.quantile(risks, np.arange(1, groups) / groups)
    return np.searchsorted(edges, risks, side="left")


def calibration_line(risks: np.ndarray, y: np.ndarray, *, slope: float | None = None) -> tuple[float, float]:
    """(intercept, slope) of the logistic regression of the outcome on the risk's logit, by Newton's method."""
    x = logit(risks)
    if np.ptp(y) == 0 or (slope is None and np.ptp(x) == 0):
        return np.nan, np.nan if slope is None else slope
    at = np.array([0.0, 1.0 if slope is None else slope])
    free = slice(0, 2 if slope is None else 1)
    design = np.column_stack([np.ones_like(x), x])
    likelihood, step = -np.inf, np.zeros(2)
    for _ in range(100):
        gradient, hessian, now = _newton(design, design @ at, y)
        if now < likelihood - 1e-12 * abs(likelihood):  # overshot
            step /= 2
            at = at - step
            continue
        likelihood = now
        step[free] = np.linalg.lstsq(hessian[free, free], gradient[free], rcond=None)[0]
        at = at + step
        if np.abs(step).max() < 1e-10 * max(1, np.abs(at).max()):
            break
    if likelihood > -1e-6 * len(y):  # the classes are separated: no finite line fits
        return np.nan, np.nan
    return float(at[0]), float(at[1])


def _newton(design: np.ndarray, margin: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    fitted = 0.5 * (1 + np.tanh(margin / 2))
    hessian = (design * (fitted * (1 - fitted))[:, None]).T @ design
    return design.T @ (y - fitted), hessian, float(np.sum(y * margin - np.logaddexp(0, margin)))


def _valid(score: Any, y: Any, name: str = "score") -> tuple[np.ndarray, np.ndarray]:
    scores = as_scores(score, name)
    labels = as_outcomes(y, len(scores))[:, 0]
    return scores[~np.isnan(labels)], labels[~np.isnan(labels)]
