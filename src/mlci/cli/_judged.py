"""Read the admissions that a command evaluates: those of the chosen splits of a cohort file."""

from pathlib import Path


def read_judged(path: str | Path, split: str):
    """Read the admissions of the named splits (`test`, `train,valid`, or `all`); none at all is an error."""
    from mlci.base.errors import InputError
    from mlci.cohort import read_cohort

    judged = read_cohort(path)
    if split != "all":
        judged = judged.split(*split.split(","))
    if not len(judged):
        raise InputError(f"{path}: has no admission in the split {split}; try --split all.")
    return judged
