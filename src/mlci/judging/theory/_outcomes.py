"""Select complete cases and usable outcomes, and compute the direction that the outcomes share.

Turn scores, outcomes (NaN = unknown) and weights into arrays without missing values, with the reason for each outcome
that is left out.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mlci.base.errors import InputError


def complete(score, outcomes, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], dict[str, str]]:
    """Return the complete cases, the outcomes that can be used, and the reason for each outcome that is left out.

    An outcome with only one class has no centred profile. Among complete cases it may lose a class because another
    outcome is unknown exactly there (patients who died were not discharged). Such an outcome is left out, and the
    complete cases are selected again.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.

    Returns:
        The score and outcomes of complete cases, the names of the outcomes used, a reason for each one left out.

    >>> score, outcomes, names, left_out = complete([1, 2, 3], [[0, 1], [1, 1], [1, 1]], ["mortality", "long_stay"])
    >>> names, left_out
    (('mortality',), {'long_stay': 'it is always present in 3 admissions'})
    """
    score, outcomes = np.asarray(score, dtype=float), matrix(outcomes)
    if len(score) != len(outcomes):
        raise InputError(f"there are {len(score)} scores for {len(outcomes)} admissions; each needs one score.")
    kept, left_out = {}, {}
    for name, column in zip(names, outcomes.T, strict=True):
        known = column[np.isfinite(score) & ~np.isnan(column)]
        if not len(known):
            left_out[name] = "it is not known for any scored admission"
        elif known.min() == known.max():
            left_out[name] = f"it is {'always' if known[0] else 'never'} present in {len(known):,} admissions"
        else:
            kept[name] = column
    while kept:
        columns = np.column_stack(list(kept.values()))
        unknown = np.isnan(columns)[np.isfinite(score)]
        rows = np.isfinite(score) & ~np.isnan(columns).any(axis=1)
        if not rows.any():  # leave out the outcome with the most missing values
            name = list(kept)[int(unknown.sum(axis=0).argmax())]
            left_out[name] = f"it is missing for {unknown.sum(axis=0).max():,} and never known together with the others"
            del kept[name]
            continue
        single = {name: _lost(name, kept, rows) for name, y in kept.items() if len(np.unique(y[rows])) < 2}
        if not single:
            return score[rows], columns[rows], tuple(kept), left_out
        for name, why in single.items():
            del kept[name]
            left_out[name] = why
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    raise InputError(f"no outcome can be evaluated: {reasons}.")


def _lost(name: str, outcomes: Mapping[str, np.ndarray], rows: np.ndarray) -> str:
    """Return why an outcome has one class among `rows`: the other outcome that is missing where it has the second."""
    present = not outcomes[name][rows][0]
    there = outcomes[name] == present
    absent = {other: float(np.isnan(column[there]).mean()) for other, column in outcomes.items()}
    other = max(absent, key=lambda key: absent[key])
    missing = "missing wherever" if absent[other] == 1 else "often missing where"
    return (
        f"it has one class only among the {rows.sum():,} admissions where all outcomes are known "
        f"({other} is {missing} it is {'present' if present else 'absent'})"
    )


def weighted(
    score, outcomes, names: Sequence[str], weights
) -> tuple[np.ndarray, np.ndarray, dict[str, float], dict[str, str]]:
    """Return the result of `complete` with the weights of the outcomes used; outcomes of weight 0 are left out."""
    weight = dict(zip(names, as_weights(weights, len(names)).tolist(), strict=True))
    used = [name for name in names if weight[name] > 0]
    columns = matrix(outcomes)[:, [weight[name] > 0 for name in names]]
    score, outcomes, kept, left_out = complete(score, columns, used)
    left_out |= {name: "its weight is 0" for name in names if weight[name] == 0}
    return score, outcomes, {name: weight[name] for name in kept}, left_out


def singular(
    outcomes: np.ndarray, weights: np.ndarray, mass: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the singular values of W~, largest first, and its leading left vector, from the outcomes' correlations.

    `mass` holds the survey weights of the admissions, if any.
    """
    root = np.sqrt(weights)
    if mass is None:
        correlation = np.atleast_2d(np.corrcoef(outcomes, rowvar=False)) * np.outer(root, root)
    else:
        covariance = np.atleast_2d(np.cov(outcomes, rowvar=False, aweights=mass))
        spread = np.sqrt(np.diag(covariance))
        correlation = covariance / np.outer(spread, spread) * np.outer(root, root)
    values, vectors = np.linalg.eigh(correlation)
    u = vectors[:, -1]
    return np.sqrt(values[::-1].clip(0)), u if u.sum() >= 0 else -u


def matrix(outcomes) -> np.ndarray:
    outcomes = np.asarray(outcomes, dtype=float)
    return outcomes[:, None] if outcomes.ndim == 1 else outcomes


def as_weights(weights, count: int) -> np.ndarray:
    weights = np.ones(count) if weights is None else np.asarray(weights, dtype=float)
    if weights.shape != (count,) or not (weights >= 0).all() or not weights.any():
        raise InputError(f"weights: {weights.tolist()} are not allowed; pass one number of 0 or more per outcome.")
    return weights
