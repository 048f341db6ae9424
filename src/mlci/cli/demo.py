"""`mlci demo`: every step on a synthetic hospital, from cohort to report."""

from pathlib import Path

import click


@click.command(short_help="Try every step on a synthetic hospital; takes under a minute.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Folder for the files it makes.",
)
@click.option(
    "--admissions", type=click.IntRange(1_000), default=20_000, show_default=True, help="Number of admissions to make."
)
@click.option("--seed", type=click.IntRange(0), default=11, show_default=True, help="Seed of the hospital and the fit.")
def command(output: Path, admissions: int, seed: int) -> None:
    """Make a synthetic hospital, learn an index from it, evaluate it on held-out patients, and write the report.

    If the command is interrupted, run it again: finished steps are kept.
    """
    from mlci.cli._demo import run

    report = run(output, admissions=admissions, seed=seed, say=click.echo)
    click.echo(f"Open {report} in a browser to see the report.")
