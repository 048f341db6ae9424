"""The sentences and tables of a card, the same for the page and for paper."""

from dataclasses import astuple, fields

import pandas as pd

from mlci.base.names import label, listing
from mlci.judging.kept import Rate
from mlci.showing._words import number, percent, spread, versions
from mlci.showing.card._compute import Card, Line

CELL = 10  # admissions behind every rate


def rule(card: Card) -> str:
    """Return how to use the card."""
    personal = f", and those of {listing(_personal(card))}" if _personal(card) else ""
    return (
        f"Add the points of every group of which the admission has a code{personal}; each group counts once. "
        "More points mean a more severe admission."
    )


def _personal(card: Card) -> list[str]:
    """Return which of age and sex have points."""
    return [name for name, points in (("age", ages(card)), ("sex", sexes(card))) if points]


def about(card: Card) -> str:
    """Return how the card was made."""
    left_out = " Codes that reveal an outcome, such as cardiac arrest, have no points." if card.ignored else ""
    return (
        f"Made on {card.made.isoformat()} for {versions(card.icd_versions)} codes. The points were fitted on "
        f"{card.trained:,} admissions of the cohort “{card.source}”, to the score of an index (recipe “{card.recipe}”) "
        f"and to its outcomes, and evaluated on {card.judged:,} others ({card.split} split).{left_out}"
    )


def _rate(rate: Rate) -> str:
    if rate.n < CELL:
        return "few"
    return f"{percent(rate.rate)} ({percent(rate.low).rstrip('%')} to {percent(rate.high).rstrip('%')})"


def example(card: Card) -> str:
    """Return the sum of an admission with two or three codes and, if age and sex have points, one of each."""
    added = [(f"{code} ({line.title or line.category})", line.points) for line, code in card.example]
    added += [rows[len(rows) // 2] for rows in (ages(card), sexes(card)) if rows]
    parts = " + ".join(f"{words}: {points}" for words, points in added)
    return f"{parts} = {sum(points for _, points in added)} points"


def ages(card: Card) -> list[tuple[str, int]]:
    """Return age bands in words, with their points, without bands of 0 points."""
    ends = [start - 1 for start, _ in card.age[1:]]
    bands = [f"Age {start} to {end}" for (start, _), end in zip(card.age, ends)]
    if card.age:
        bands.append(f"Age {card.age[-1][0]} and over")
    return [(words, points) for words, (_, points) in zip(bands, card.age) if points]


def sexes(card: Card) -> list[tuple[str, int]]:
    """Return the sex that has points, in words."""
    return [({"F": "Female", "M": "Male"}[sex], points) for sex, points in card.sex if points]


def age_and_sex(card: Card) -> str:
    """Return the points of age and sex in one line, for print; an empty text if they have none."""
    rows = ages(card) + sexes(card)
    return "; ".join(f"{words}: {points} point{'' if points == 1 else 's'}" for words, points in rows)


def lines(card: Card) -> list[tuple[str, str, str]]:
    """Return points, category and title of each line, with its ICD version if the card has several."""
    several = len(card.icd_versions) > 1
    return [
        (str(line.points), line.category, f"{line.title} (ICD-{line.version})" if several else line.title)
        for line in card.lines
    ]


def table(card: Card) -> pd.DataFrame:
    """Return all points as a table: those of code groups, then those of age and sex, which have no ICD version."""
    personal = [("age", *row) for row in ages(card)] + [("sex", *row) for row in sexes(card)]
    rows = [*map(astuple, card.lines), *((None, *row, None) for row in personal)]
    frame = pd.DataFrame(rows, columns=[field.name for field in fields(Line)])
    return frame.astype(dict.fromkeys(("version", "points", "admissions"), "Int64"))


def band(low: int, high: int | None) -> str:
    """Return the range of points of a band.

    >>> band(0, 0), band(3, 5), band(9, None)
    ('0', '3 to 5', '9 or more')
    """
    if high is None:
        return f"{low} or more"
    return f"{low}" if high == low else f"{low} to {high}"


def meaning(card: Card) -> list[list[str]]:
    """Return a table of points, admissions and the rate of each outcome; heads first, sides of the cutoff last."""
    rows = [["Points", "Admissions", *map(label, card.outcomes)]]
    rows += [
        [band(interval.low, interval.high), f"{interval.admissions:,}", *map(_rate, interval.rates)]
        for interval in card.bands
    ]
    low = sum(interval.admissions for interval in card.bands if interval.low < card.cutoff)
    rows.append([f"all below {card.cutoff}", f"{low:,}", *(_rate(contrast.below) for contrast in card.contrasts)])
    rows.append(
        [f"all from {card.cutoff}", f"{card.judged - low:,}", *(_rate(contrast.above) for contrast in card.contrasts)]
    )
    return rows


def loss(card: Card) -> list[list[str]]:
    """Return a table of the AUROC of the card and of other indices, heads first."""
    frame = card.aurocs
    names = list(frame["outcome"].unique())
    cells = {(row.model, row.outcome): row for row in frame.itertuples()}
    rows = [["AUROC", *map(label, names)]]
    for model in frame["model"].unique():
        found = [cells.get((model, name)) for name in names]
        texts = [
            "–" if interval is None else f"{number(interval.value)} ({spread(interval.low, interval.high)})"
            for interval in found
        ]
        rows.append([str(model), *(text.replace(" ()", "") for text in texts)])
    return rows


def limits(card: Card) -> list[str]:
    """Return the limits of use of the card."""
    used = ["codes", *_personal(card)]
    found = [
        "Codes are assigned at or after discharge. The card is for risk adjustment and retrospective analysis, not for "
        "decisions at admission or about a single patient.",
        f"It uses {listing(used) if len(used) > 1 else 'only codes'}, but no laboratory values, vital signs or notes. "
        "Other hospitals code differently; evaluate it on local admissions before use.",
    ]
    if card.without:
        found.append(
            f"The risks of the underlying index also use {' and '.join(card.without)}, which have no points here: they "
            "were not requested, or the cohort does not have them."
        )
    if "synthetic" in card.source.lower():
        found.insert(0, "Made from synthetic admissions: a demonstration, not for patients.")
    return found
