"""`mlci demo`: the whole story on a synthetic hospital, ending with a report."""

from pathlib import Path

import click


@click.command(short_help="See it all on a synthetic hospital, in two minutes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Folder for what it makes.",
)
@click.option("--admissions", type=click.IntRange(1_000), default=20_000, show_default=True, help="To the hospital.")
@click.option("--seed", type=click.IntRange(0), default=11, show_default=True, help="Of hospital and fit.")
def command(output: Path, admissions: int, seed: int) -> None:
    """Make a synthetic hospital, learn an index from it, judge it on held-out patients, and write the report."""
    from mlci.cli._demo import run

    report = run(output, admissions=admissions, seed=seed, say=click.echo)
    click.echo(f"The report lies at {report}; open it in a browser.")
