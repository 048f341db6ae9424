"""Which outcomes take part in a fit, and the paper's weights of Stage 2. Needs no torch."""

from collections.abc import Sequence

import numpy as np

from mlci.base.errors import InputError
from mlci.config import WeightConfig
from mlci.fitting._data import Split


def stage2_weights(strength: Sequence[float] | np.ndarray, config: WeightConfig) -> np.ndarray:
    """Return the paper's Stage-2 weights of outcomes with these validation strengths h_t, scaled to mean 1.

    They are (h_max / max(h_t, epsilon)) ** gamma, clipped to [1 / clip, clip] (paper, Two-stage weighting; appendix
    Optimization and training protocol), so that outcomes with a weak signal are not drowned.

    >>> stage2_weights([0.4, 0.1], WeightConfig()).round(3)
    array([0.828, 1.172])
    """
    floored = np.maximum(strength, config.epsilon)
    weights = np.clip((floored.max() / floored) ** config.gamma, 1 / config.clip, config.clip)
    return weights / weights.mean()


def check_values(split: Split, where: str) -> None:
    """Raise an error for a split without admissions, or outcomes other than 0, 1 and NaN; `where` names the split."""
    if not len(split):
        raise InputError(f"The {where} split has no admissions; a fit needs some.")
    wrong = split.outcomes[~np.isnan(split.outcomes) & (split.outcomes != 0) & (split.outcomes != 1)]
    if len(wrong):
        raise InputError(f"An outcome of the {where} split has the value {wrong[0]:g}; allowed is 0, 1 and null.")


def with_classes(train: Split, *, omit: bool = False) -> list[str]:
    """Return the outcomes with both classes in the training split; others raise an error unless `omit` drops them."""
    found = []
    for name, column in zip(train.names, train.outcomes.T):
        classes = np.unique(column[~np.isnan(column)])
        if len(classes) == 2:
            found.append(name)
        elif not omit:
            fault = f"is {classes[0]:g} wherever it is known" if len(classes) else "is never known"
            raise InputError(f"Outcome {name} {fault} in the training split; both classes are needed (leave it out).")
    if not found:
        raise InputError("No outcome has both classes in the training split; a fit needs one that has.")
    return found


def check_outcomes(
    train: Split, valid: Split, *, anchor: str | None = None, together: bool = False, omit: bool = False
) -> list[str]:
    """Return the outcomes that take part; raise an error for data that would make a fit meaningless.

    Args:
        train: the split to learn from.
        valid: the validation split.
        anchor: an outcome that must have both classes in both splits, if one is needed.
        together: only admissions with all outcomes known count (the paper's intersection validity).
        omit: drop outcomes without both classes, instead of raising an error.
    """
    splits = {"training": train, "validation": valid}
    for name, split in splits.items():
        check_values(split, name)
    active = with_classes(train, omit=omit)
    if anchor is not None and anchor not in active:
        raise InputError(f"The anchor '{anchor}' is not among the outcomes {', '.join(active)}; name one of these.")
    if together:
        for name, split in splits.items():
            _check_together(split.only(active), name, [anchor] if name == "validation" else active)
    elif anchor is not None and len(np.unique(valid.outcomes[:, valid.names.index(anchor)])[:2]) < 2:
        raise InputError(f"The anchor {anchor} has one class in the validation split; both are needed.")
    return active


def _check_together(split: Split, where: str, wanted: Sequence[str | None]) -> None:
    """Raise an error if an outcome loses a class because only admissions with all outcomes known count."""
    known = ~np.isnan(split.outcomes)
    for name, column in zip(split.names, split.outcomes.T):
        for value in (0, 1):
            rows = known[column == value]
            if name not in wanted or rows.all(1).any():
                continue
            if not len(rows):
                raise InputError(f"The anchor {name} is never {value} in the {where} split; both are needed.")
            other = split.names[int(rows.mean(0).argmin())]
            raise InputError(
                f"Outcome {name} loses every admission where it is {value} in the {where} split, because a fit "
                f"counts admissions with all outcomes known and {other} is then missing; leave {other} out or "
                "set objective.validity to 'outcome'."
            )
