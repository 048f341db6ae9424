"""Name the three-character categories of codes in clinical words.

ICD-10-CM has names for its categories. The ICD-9-CM table has codes only, so `data/icd9_categories.csv` names its
common categories.
"""

import csv
from functools import cache

from mlci.codes.icd import DATA, title


@cache
def _ninth() -> dict[str, str]:
    with open(DATA / "icd9_categories.csv", newline="", encoding="utf-8") as file:
        return {row["category"]: row["words"] for row in csv.DictReader(file)}


def category_words(category: str, version: int) -> str | None:
    """Return the name of a category of an ICD `version`, or None if it has none.

    >>> category_words("428", 9), category_words("I50", 10), category_words("ZZZ", 10)
    ('Heart failure', 'Heart failure', None)
    """
    if version == 9 and category in _ninth():
        return _ninth()[category]
    return title(category, version) if version in (9, 10) else None
