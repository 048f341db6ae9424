"""Formats of numbers and lists on all pages."""

from collections.abc import Sequence

import numpy as np

from mlci.base.names import listing


def percent(share: float) -> str:
    """Return a share in percent with at most three digits; a rare event is never 0%.

    >>> [percent(share) for share in (0, 0.00004, 0.0043, 0.0312, 0.47)]
    ['0%', 'under 0.01%', '0.43%', '3.1%', '47%']
    """
    if np.isnan(share):
        return "unknown"
    value = 100 * share
    if value == 0 or value >= 99.95:
        return f"{value:.0f}%"
    if value < 0.01:
        return "under 0.01%"
    return f"{value:.{0 if value >= 19.95 else 1 if value >= 0.995 else 2}f}%"


def number(value: float, digits: int = 3) -> str:
    """Return a number with `digits` decimals; a dash if it is not finite.

    >>> number(0.87654), number(np.nan), number(-0.5, 1), number(-0.0004)
    ('0.877', '–', '−0.5', '0.000')
    """
    return f"{value:z.{digits}f}".replace("-", "−") if np.isfinite(value) else "–"


def rounded(value: float, digits: int = 4) -> str:
    """Return a number with `digits` significant digits.

    >>> rounded(-1.60512), rounded(0.13214, 3)
    ('−1.605', '0.132')
    """
    return f"{value:.{digits}g}".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """Return a change with its sign, without sign if it rounds to 0.

    >>> signed(0.1234), signed(-0.1234), signed(-0.0004)
    ('+0.123', '−0.123', '0.000')
    """
    shown = number(value, digits)
    return f"+{shown}" if shown.strip("0.") and value > 0 else shown


def spread(low: float, high: float, digits: int = 3) -> str:
    """Return an interval in words, or an empty text if it is not finite.

    >>> spread(-0.1, 0.2, 2)
    '−0.10 to 0.20'
    """
    return f"{number(low, digits)} to {number(high, digits)}" if np.isfinite([low, high]).all() else ""


def some(names: Sequence[str], most: int = 12) -> str:
    """Join names, and only count those beyond the first `most`.

    >>> some(["north", "south"]), some(["north", "east", "south", "west"], most=2)
    ('north and south', 'north, east and 2 others')
    """
    names = list(map(str, names))
    rest = len(names) - most
    return listing(names if rest < 2 else [*names[:most], f"{rest:,} others"])


def versions(numbers: Sequence[int]) -> str:
    """Return ICD versions in words.

    >>> versions([9, 10])
    'ICD-9 and ICD-10'
    """
    return (
        listing([f"ICD-{version}" if version else "ICD of no stated version" for version in numbers])
        or "no ICD version"
    )


def place(percentile: float) -> str:
    """Return a `percentile` as text; never 100, which would suggest that nothing could be more severe.

    >>> place(61.4), place(99.96)
    ('61', '99.9')
    """
    return f"{min(percentile, 99.9):.1f}" if 99 < percentile < 100 else f"{percentile:.0f}"
