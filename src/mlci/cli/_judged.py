"""Read the admissions that a command evaluates, and tell which admissions and outcomes are not evaluated."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name the file in every `InputError` that the block raises about its contents."""
    from mlci.base.errors import InputError, name_of

    try:
        yield
    except InputError as error:
        raise InputError(f"{name_of(path)}: {error}") from error


def read_judged(path: str | Path, split: str):
    """Read the admissions of the named splits (`test`, `train,valid`, or `all`); none at all is an error."""
    from mlci.base.errors import InputError
    from mlci.cohort import read_cohort

    judged = read_cohort(path)
    if split != "all":
        with naming(path):
            judged = judged.split(*split.split(","))
    if not len(judged):
        raise InputError(f"{path}: has no admission in the split {split}; try --split all.")
    return judged


def tell_unscored(scored: int, admissions: int, split: str) -> None:
    """Print how many of the admissions have scores, if some have none."""
    import click

    if scored < admissions:
        click.echo(f"{scored:,} of the cohort's {admissions:,} admissions (split: {split}) have all scores.")


def tell_rare(outcomes: Iterable[str], table) -> None:
    """Print which outcomes a table of changes leaves out, because too few admissions have them, or do not."""
    import click

    from mlci.judging._changes import LEAST

    compared = {*table["outcome"]} if len(table) else set()
    for name in outcomes:
        if name not in compared:
            click.echo(f"{name} is left out: fewer than {LEAST} admissions have it, or do not have it.")
