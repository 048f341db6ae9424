"""`mlci report`: a model and a cohort in, one self-contained HTML page out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlci.cli._options import check_output, force, quiet, survey

if TYPE_CHECKING:
    from mlci.cohort import Cohort


@click.command(short_help="One HTML page: how good an index is, and what it means.")
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL|DIR")
@click.argument("cohort", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="HTML file to write.")
@click.option("--resamples", type=click.IntRange(20), default=200, show_default=True, help="Bootstrap resamples.")
@click.option(
    "--resample-training",
    type=click.IntRange(2),
    metavar="K",
    help="Fit the index K times more, on resampled training patients, and show how far the new ones lie apart.",
)
@click.option("--by", help="Subgroups by these columns of the cohort.  [sex,age_band where it has them]")
@click.option(
    "--study",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML of the authors' answers to TRIPOD+AI.",
)
@click.option("--seed", type=int, default=12345, show_default=True, help="Of resamples and draws.")
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
    """Write a report on an index: on whom, how good beside Charlson and Elixhauser, risk, cutoff, theory, codes.

    MODEL is a model file, a ready-made index, or DIR a folder with one model file in it; COHORT is a cohort file,
    judged on its test split. The page holds aggregates only, needs no network and runs no script. It ends in the items
    of TRIPOD+AI, answered as far as model and cohort can. With --resample-training an interrupted command goes on where
    it stopped; until then what is done lies beside the output, in a file that begins with a dot.
    """
    import shlex
    import sys

    from mlci.base.files import atomic
    from mlci.base.threads import threads
    from mlci.showing._elsewhere import DrawnElsewhere

    check_output(output, inputs=[model, cohort, *([study] if study else [])], force=force)
    if not quiet:
        click.echo(f"Judging {model} on {cohort}.", err=True)
    words = shlex.join(["mlci", *sys.argv[1:]])
    columns = by.split(",") if by else None
    options = {"command": words, "by": columns, "resamples": resamples, "seed": seed}
    state = output.with_name(f".{output.name}.refits")
    options |= {"resample_training": resample_training or 0, "drawn": drawn}
    options |= {"refitting": {"state": state, "on_fit": None if quiet else _told(resample_training)}}
    with DrawnElsewhere() as album:
        from mlci.cohort import read_cohort

        def read() -> "Cohort":
            found = read_cohort(cohort)
            found.admissions()  # which it keeps
            return found

        with threads(1) as pool:  # the cohort is read while libraries are imported and the page's template is compiled
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
        click.echo(f"{output}: {len(page.encode()) / 1e6:.1f} MB; open it in a browser.")


def _told(times: int | None):
    """Return what says after each new fit how many are done."""
    return lambda done: click.echo(f"Fitted again on resampled training admissions: {done} of {times}.", err=True)
