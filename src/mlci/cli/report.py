"""`mlci report`: a model and a cohort in, one self-contained HTML page out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlci.cli._options import check_ending, check_output, force, quiet, survey

if TYPE_CHECKING:
    from mlci.cohort import Cohort


@click.command(short_help="Write an HTML report: how good an index is, and what it means.")
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL|DIR")
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The HTML file to write.")
@click.option("--resamples", type=click.IntRange(20), default=200, show_default=True, help="Bootstrap resamples.")
@click.option(
    "--resample-training",
    type=click.IntRange(2),
    metavar="K",
    help="Refit the index K times on resampled training patients, and show how much the results vary.",
)
@click.option("--by", help="Columns of the cohort that define subgroups.  [sex,age_band if the cohort has them]")
@click.option(
    "--study",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML file of the authors' answers to the TRIPOD+AI items.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=12345, show_default=True, help="Seed of resamples and random samples."
)
@survey
@force
@quiet
def command(
    model: Path,
    cohort: Path,
    output: Path,
    resamples: int,
    resample_training: int | None,
    by: str | None,
    study: Path | None,
    seed: int,
    force: bool,
    quiet: bool,
    **drawn: str | None,
) -> None:
    """Write a report on an index: cohort, comparison with Charlson and Elixhauser, risks, cutoff, theory, codes.

    MODEL is a model file or a ready-made index; DIR is a folder with one model file. COHORT is a cohort file; the index
    is evaluated on its test split. The page contains only aggregates, needs no network and runs no script. It ends with
    the TRIPOD+AI items, answered as far as model and cohort allow.

    If a command with --resample-training is interrupted, the same command continues where it stopped. Until then its
    state is kept next to the output, in a hidden file whose name begins with a dot.
    """
    import shlex
    import sys

    from mlci.base.files import atomic
    from mlci.base.threads import threads
    from mlci.showing._elsewhere import DrawnElsewhere

    check_output(output, inputs=[model, cohort, *([study] if study else [])], force=force)
    check_ending(output, ".html")
    if not quiet:
        click.echo(f"Evaluating {model} on {cohort}.", err=True)
    command_line = shlex.join(["mlci", *sys.argv[1:]])
    columns = by.split(",") if by else None
    options = {"command": command_line, "by": columns, "resamples": resamples, "seed": seed}
    state = output.with_name(f".{output.name}.refits")
    options |= {"resample_training": resample_training or 0, "drawn": drawn}
    options |= {"refitting": {"state": state, "on_fit": None if quiet else _print_refits(resample_training)}}
    with DrawnElsewhere() as album:
        from mlci.cohort import read_cohort

        def read() -> "Cohort":
            found = read_cohort(cohort)
            found.admissions()  # cached in the cohort
            return found

        with threads(1) as pool:  # read the cohort while libraries are imported and the template is compiled
            reading = pool.submit(read)
            from mlci.index.model import load_model
            from mlci.index.ready import model_path
            from mlci.showing.report import build, read_study
            from mlci.showing.report._render import template

            index = load_model(model_path(model))
            template()
        options["study"] = read_study(study) if study else {}
        page = build(index, reading.result(), album=album, **options)
    with atomic(output) as temporary:
        temporary.write_text(page, encoding="utf-8")
    state.unlink(missing_ok=True)
    if not quiet:
        size = len(page.encode())
        shown = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
        click.echo(f"{output}: {shown}; open it in a browser.")


def _print_refits(times: int | None):
    """Return a callback that prints how many refits are done."""
    return lambda done: click.echo(f"Refitted on resampled training patients: {done} of {times}.", err=True)
