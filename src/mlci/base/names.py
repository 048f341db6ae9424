"""The registry of outcomes: what a column of the cohort is called in headings, in sentences, and after a percentage.

The names of the recipes are here too, for code that needs them without their settings (`mlci.config`).

A name comes in, words go out. An outcome that stands in `OUTCOMES` has words of its own; any other column is shown by
its name, so that a person's own outcomes read well too. (Metrics have their registry in `mlci.measures.registry`.)
"""

from dataclasses import dataclass

RECIPES = ("table", "deep", "paper")
FORMER_RECIPES = {"mlci": "deep"}  # names that 0.1 gave them


@dataclass(frozen=True)
class Outcome:
    """The words of one outcome.

    `name` is its column in the cohort, `label` its heading, `phrase` what happened to the admissions that have it, as
    read after a percentage: "12% died in hospital".
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
    """Return the words of the outcome `name`; where it is not registered, they are made from the name.

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
    """Return a column's name as it stands inside a sentence: an abbreviation keeps its capitals, others begin small.

    >>> words("mortality"), words("icu_transfer")
    ('in-hospital mortality', 'ICU transfer')
    """
    text = label(name)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def phrase(name: str) -> str:
    """Return what happened to the admissions with the outcome `name`, to be read after a percentage.

    >>> f"12% {phrase('mortality')}"
    '12% died in hospital'
    """
    return outcome(name).phrase


def cell(value: str | int | float | None) -> str:
    """Return the `value` of a table's cell as text: whole numbers with commas, others with 4 digits, a dash for None.

    >>> cell(12345), cell(0.123456), cell(None)
    ('12,345', '0.1235', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return f"{value:,}".replace("-", "−") if isinstance(value, int) else value
