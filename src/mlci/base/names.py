"""The registry of outcomes: how a column of the cohort is named in headings, in sentences, and after a percentage.

An outcome in `OUTCOMES` has words of its own; the words of any other column are made from its name, so that a user's
own outcomes read well too. The names of the recipes are here as well, for code that needs them without their settings
(`mlci.config`). The registry of metrics is `mlci.measures.registry`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

RECIPES = ("table", "deep", "paper")
FORMER_RECIPES = {"mlci": "deep"}  # name in version 0.1 -> present name


@dataclass(frozen=True)
class Outcome:
    """The words of one outcome.

    `name` is its column in the cohort, `label` its heading, and `phrase` completes a percentage of admissions: "12%
    died in hospital".
    """

    name: str
    label: str
    phrase: str


OUTCOMES = {
    outcome.name: outcome
    for outcome in (
        Outcome("mortality", "In-hospital mortality", "died in hospital"),
        Outcome("mortality_30d", "30-day mortality", "died within 30 days"),
        Outcome("died", "Death", "died"),
        Outcome("long_stay", "Long stay", "stayed long"),
        Outcome("icu_transfer", "ICU transfer", "were transferred to intensive care"),
        Outcome("critical_care", "Critical care", "needed critical care"),
        Outcome("non_home_discharge", "Non-home discharge", "were not discharged home"),
        Outcome("readmission_30d", "30-day readmission", "were readmitted within 30 days"),
    )
}


def outcome(name: str) -> Outcome:
    """Return the words of the outcome `name`; if it is not registered, they are made from the name.

    >>> outcome("readmission_30d").phrase
    'were readmitted within 30 days'
    >>> outcome("hospital_sepsis")
    Outcome(name='hospital_sepsis', label='Hospital sepsis', phrase='had hospital sepsis')
    >>> outcome("ventilated").phrase
    'were ventilated'
    """
    if name in OUTCOMES:
        return OUTCOMES[name]
    text = name.replace("_", " ").strip()
    verb = "were" if text.split(" ")[0].endswith("ed") else "had"
    return Outcome(name, text[:1].upper() + text[1:], f"{verb} {text}")


def label(name: str) -> str:
    """Return a column's name as a heading.

    >>> label("mortality_30d"), label("age_band")
    ('30-day mortality', 'Age band')
    """
    return outcome(name).label


def words(name: str) -> str:
    """Return a column's name for the middle of a sentence, in small letters except for abbreviations.

    >>> words("mortality"), words("icu_transfer")
    ('in-hospital mortality', 'ICU transfer')
    """
    text = label(name)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def phrase(name: str) -> str:
    """Return the words for the outcome `name` that complete a percentage of admissions.

    >>> f"12% {phrase('mortality')}"
    '12% died in hospital'
    """
    return outcome(name).phrase


def cell(value: str | int | float | None) -> str:
    """Return the `value` of a table's cell as text: whole numbers with commas, others with 4 digits, None as a dash.

    >>> cell(12345), cell(0.123456), cell(None)
    ('12,345', '0.1235', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return f"{value:,}".replace("-", "−") if isinstance(value, int) else value


def listing(items: Sequence[str]) -> str:
    """Return `items` joined as in "a, b and c".

    >>> listing(["death", "long stay", "ICU"])
    'death, long stay and ICU'
    """
    items = list(items)
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
