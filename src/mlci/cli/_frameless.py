"""Keep pandas from being imported by commands that only read and write files.

pyarrow imports pandas at its first conversion, even if there is no data frame. That takes a quarter of a second, half
of the time for a small file. If pandas cannot be found, pyarrow works without it. Once hidden, pandas stays hidden, so
this is only for a process that runs a single command.
"""

from mlci.base.hidden import hide

COMMANDS = ("cohort", "indices", "score")
NEEDED = (
    "--meds",  # reads a cohort as `mlci evaluate` does
    "--look-back",
    "--describe",
    "://",  # drivers of databases
)


def without_pandas(words: list[str]) -> None:
    """Hide pandas from this process if the command line `words` needs no data frame."""
    if words[:1] and words[0] in COMMANDS and not any(text in word for word in words for text in NEEDED):
        hide("pandas")
