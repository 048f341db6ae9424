"""The admissions that a command judges: a cohort file and a word for its splits in, a smaller cohort out."""

from pathlib import Path


def read_judged(path: str | Path, split: str):
    """Read the admissions of the splits named (`test`, `train,valid`, or `all`); there must be one at least."""
    from mlci.base.errors import InputError
    from mlci.cohort import read_cohort

    judged = read_cohort(path)
    if split != "all":
        judged = judged.split(*split.split(","))
    if not len(judged):
        raise InputError(f"{path}: has no admission in the split {split}; try --split all.")
    return judged
