"""Keep pandas out of commands that meet files alone.

pyarrow imports pandas at its first conversion, whether or not there is a frame to recognise: a quarter of a second,
half of what a small file takes. Where pandas cannot be found, pyarrow does without. For processes of their own only:
what was not found once stays so.
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
    """Hide pandas from this process if the command that these words name needs no frame."""
    if words[:1] and words[0] in COMMANDS and not any(text in word for word in words for text in NEEDED):
        hide("pandas")
