"""Prevent spreadsheets from running text that looks like a formula."""

from typing import Any

FORMULA = "=+-@\t\r"


def defused(values: Any) -> Any:
    """Return the `values` with an apostrophe before each text that a spreadsheet would run as a formula.

    >>> list(defused(["=HYPERLINK(A1)", "-5", "I50.9", 17]))
    ["'=HYPERLINK(A1)", "'-5", 'I50.9', 17]
    """
    return [f"'{value}" if isinstance(value, str) and value[:1] and value[0] in FORMULA else value for value in values]
