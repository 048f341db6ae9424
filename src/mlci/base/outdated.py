"""Former file formats and names, still understood for a while: a warning of one sentence says what to do instead."""

import warnings

LAST = "0.3"  # the version that understands all of it


class OutdatedWarning(FutureWarning):
    """Something is understood today and will not be after `LAST`."""


def outdated(thing: str, instead: str, *, stacklevel: int = 2) -> None:
    """Warn that something will not be understood for ever.

    Args:
        thing: as the person knows it.
        instead: what to do.
        stacklevel: as `warnings.warn` takes it, counted from the caller.

    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     outdated("the recipe mlci", "it is now called deep")
    >>> str(told[0].message)
    'the recipe mlci is outdated and understood up to version 0.3: it is now called deep.'
    """
    sentence = f"{thing} is outdated and understood up to version {LAST}: {instead}."
    warnings.warn(sentence, OutdatedWarning, stacklevel=stacklevel + 1)
