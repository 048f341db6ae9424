"""Codes that add information about an outcome to a score, on the terminal."""

import click

ROWS, WIDTH = 10, 28  # of each outcome; characters of a name, so that a row fits a terminal


def missed_codes(models, judged, *, wanted: bool, quiet: bool):
    """Return the table of codes that scores miss, empty unless `wanted`; print the rows of the first score."""
    from mlci.cli._tables import show
    from mlci.judging.missed import COLUMNS, LEAST, missed

    if not wanted:
        import pandas as pd

        return pd.DataFrame(columns=COLUMNS)
    table = missed(models, judged)
    first = table[table["model"] == next(iter(models))]
    first = first[first["inside"] != True] if first["inside"].notna().any() else first  # noqa: E712
    for outcome in () if quiet else judged.outcomes:
        if outcome not in {*first["outcome"]}:
            click.echo(
                f"Missed codes for {outcome} are not shown: fewer than {LEAST} admissions have it, or do not have it."
            )
    for outcome, part in first.groupby("outcome", sort=False) if not quiet else ():
        rows = [
            [
                f"{row.category} {row.title}"[:WIDTH],
                f"{row.admissions:,}",
                f"{row.log_odds:+z.2f}",
                f"{row.deviance:.0f} ({row.deviance_low:.0f} to {row.deviance_high:.0f})",
                f"{row.share:.1%}",
            ]
            for row in part.head(ROWS).itertuples()
        ]
        heads = ["category", "admissions", "log-odds", "deviance", "share"]
        show(f"Code categories that {first['model'].iloc[0]} misses for {outcome}", heads, rows)
    return table
