"""Options that several commands share, each with one name, one wording and one meaning."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click

force = click.option("--force", is_flag=True, help="Overwrite the output even if it is a cohort file.")
quiet = click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")


def published(default: str) -> Callable:
    """Return the option that chooses published indices."""
    text = "Published indices, separated by commas; `mlci indices --list` names them."
    return click.option("--index", default=default, show_default=True, metavar="NAMES", help=text)


def columns(command: Callable) -> Callable:
    """Add the options that name the columns of a file, for files whose column names are not recognised."""
    for option in (
        click.option(
            "--restore-zeros",
            is_flag=True,
            help="Restore leading zeros that the file has lost: 38.9 becomes 038.9, 8 becomes 008.",
        ),
        click.option(
            "--icd-version",
            metavar="9|10|COLUMN",
            help="ICD version of codes for which the file states none, or the column that holds it.  [guessed]",
        ),
        click.option(
            "--codes", metavar="COLUMNS", help="Code columns: 'DX*', or names separated by commas.  [guessed]"
        ),
        click.option("--id", metavar="COLUMN", help="The column that identifies admissions.  [guessed]"),
    ):
        command = option(command)
    return command


weights = click.option(
    "--weights", metavar="COLUMN", help="Survey weights: how many admissions of the population each one represents."
)
cluster = click.option(
    "--cluster", metavar="COLUMN", help="Clusters, kept together in intervals and folds.  [the patient]"
)
strata = click.option("--strata", metavar="COLUMN", help="Strata from which the clusters were drawn, for intervals.")


def survey(command: Callable) -> Callable:
    """Add the options that name the columns of a survey's design."""
    return weights(cluster(strata(command)))


def display_name(path: str | Path) -> str:
    """Return the name of an input in messages."""
    return "standard input" if str(path) == "-" else str(path)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    >>> counted(1, "admission"), counted(1_234, "code")
    ('1 admission', '1,234 codes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def check_output(
    path: str | Path, *, inputs: Iterable[str | Path] = (), force: bool = False, standard: bool = False
) -> None:
    """Raise an error before any work begins if an output cannot be written, is an input, or would replace a cohort.

    A command that writes to standard output, which `-` names, says `standard`.
    """
    from mlci.base.errors import InputError
    from mlci.base.files import check_writable

    if str(path) == "-":
        if not standard:
            raise InputError("-: this command cannot write to standard output; name a file.")
        return
    target = check_writable(path, inputs=[name for name in inputs if str(name) != "-" and "://" not in str(name)])
    if not force and target.exists() and _is_cohort(target):
        raise InputError(f"{path}: is a cohort file and would be overwritten; name another output, or use --force.")


def check_outputs(
    paths: Iterable[str | Path | None], *, inputs: Iterable[str | Path], force: bool = False, standard: bool = False
) -> None:
    """Check the files that a command will write, as `check_output` does; each needs a name of its own."""
    from mlci.base.errors import InputError

    sources, seen = list(inputs), set()
    for path in filter(None, paths):
        check_output(path, inputs=sources, force=force, standard=standard)
        target = os.path.realpath(path)
        if target in seen:
            raise InputError(f"{path}: two outputs of this command have this name; each needs its own.")
        seen.add(target)


def check_ending(path: str | Path | None, ending: str) -> None:
    """Raise an error if the name of an output does not end as its kind of file does; `-` and None pass."""
    from mlci.base.errors import InputError

    if path is not None and str(path) != "-" and Path(path).suffix.lower() != ending:
        raise InputError(f"{path}: the name must end in {ending}.")


def check_folder(path: str | Path, names: Iterable[str], *, inputs: Iterable[str | Path], force: bool = False) -> None:
    """Check every file that a command will write to a folder, as `check_output` does; the folder need not exist."""
    from mlci.base.errors import InputError

    folder, sources = Path(path), list(inputs)
    if not folder.parent.is_dir():
        raise InputError(f"{path}: the folder {folder.parent} does not exist.")
    if folder.exists():
        for name in names:
            check_output(folder / name, inputs=sources, force=force)


def _is_cohort(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return False
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return b"mlci" in (parquet.read_schema(path).metadata or {})
    except (pa.ArrowInvalid, OSError):  # damaged: nothing to lose
        return False
