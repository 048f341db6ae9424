"""Options that several commands share, with one name, one wording and one meaning."""

from collections.abc import Callable, Iterable
from pathlib import Path

import click

force = click.option("--force", is_flag=True, help="Overwrite even a cohort file.")
quiet = click.option("-q", "--quiet", is_flag=True, help="Print nothing but warnings and errors.")


def published(default: str) -> Callable:
    """Return the option that chooses published indices."""
    words = "Published indices, as `mlci indices --list` has them, with commas between."
    return click.option("--index", default=default, show_default=True, metavar="NAMES", help=words)


def columns(command: Callable) -> Callable:
    """Add the options that say which columns of a file hold what, where their names do not speak for themselves."""
    for option in (
        click.option("--restore-zeros", is_flag=True, help="The file lost leading zeros: 38.9 is 038.9, 8 is 008."),
        click.option("--icd-version", metavar="9|10|COLUMN", help="Of all codes, or the column that says it."),
        click.option("--codes", metavar="COLUMNS", help="Columns of codes: 'DX*', or names with commas.  [guessed]"),
        click.option("--id", metavar="COLUMN", help="The column that tells admissions.  [guessed]"),
    ):
        command = option(command)
    return command


weights = click.option("--weights", metavar="COLUMN", help="How many admissions of the population each stands for.")
cluster = click.option(
    "--cluster", metavar="COLUMN", help="What belongs together in intervals and folds.  [the patient]"
)
strata = click.option("--strata", metavar="COLUMN", help="What clusters were drawn from; intervals respect it.")


def survey(command: Callable) -> Callable:
    """Columns of the cohort that say how its admissions were drawn."""
    return weights(cluster(strata(command)))


def shown(path: str | Path) -> str:
    """Return what messages call an input."""
    return "standard input" if str(path) == "-" else str(path)


def check_output(path: str | Path, *, inputs: Iterable[str | Path] = (), force: bool = False) -> None:
    """Say before any work begins that an output cannot be written, is an input, or is a cohort that would be lost."""
    from mlci.base.errors import InputError
    from mlci.base.files import check_writable

    if str(path) == "-":
        return
    target = check_writable(path, inputs=[name for name in inputs if str(name) != "-" and "://" not in str(name)])
    if not force and target.exists() and _is_cohort(target):
        raise InputError(f"{path}: is a cohort file that would be overwritten; name another output, or say --force.")


def check_folder(path: str | Path, names: Iterable[str], *, inputs: Iterable[str | Path], force: bool = False) -> None:
    """Say before any work begins that one of the files in a folder cannot be written, as above; it need not exist."""
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
