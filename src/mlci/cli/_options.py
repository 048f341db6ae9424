"""Options that several commands share, with one name, one wording and one meaning."""

from collections.abc import Callable

import click

quiet = click.option("-q", "--quiet", is_flag=True, help="Print nothing but warnings and errors.")


def columns(command: Callable) -> Callable:
    """Which columns of a file of admissions hold what, where their names do not speak for themselves."""
    for option in (
        click.option("--restore-zeros", is_flag=True, help="The file lost leading zeros: 38.9 is 038.9, 8 is 008."),
        click.option("--icd-version", metavar="9|10|COLUMN", help="Of all codes, or the column that says it."),
        click.option("--codes", metavar="COLUMNS", help="Columns of codes: 'DX*', or names with commas.  [guessed]"),
        click.option("--id", metavar="COLUMN", help="The column that tells admissions.  [guessed]"),
    ):
        command = option(command)
    return command
