"""Warn about former file formats and names, which are still understood; the warning says what to do instead."""

import warnings

LAST = "0.3"  # the last version that understands them


class OutdatedWarning(FutureWarning):
    """Something is understood now, but not in versions after `LAST`."""


def outdated(thing: str, instead: str, *, stacklevel: int = 2) -> None:
    """Warn that something is outdated.

    Args:
        thing: what is outdated, in the user's words.
        instead: what to do.
        stacklevel: as in `warnings.warn`, counted from the caller.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     outdated("the recipe mlci", "it is now called deep")
    >>> str(caught[0].message)
    'the recipe mlci is outdated and understood up to version 0.3: it is now called deep.'
    """
    sentence = f"{thing} is outdated and understood up to version {LAST}: {instead}."
    warnings.warn(sentence, OutdatedWarning, stacklevel=stacklevel + 1)
