"""The model card of an index: training data, dates, licence, outcomes, performance and limits.

Turn a model into facts and limits for the page, the report and the points card, or into the whole card as Markdown. A
fit writes into the model file what only it knows (`about`); the rest follows from the file. What the file does not
state, the card shows as not said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlci.base.errors import InputError
from mlci.base.names import label, listing, words
from mlci.codes.poa import ONLY
from mlci.index._look_back import days_of
from mlci.index._survey import survey_words
from mlci.index.model import Model
from mlci.index.provenance import SOURCES, provenance

FEW = 100  # training events below which an outcome's risks are imprecise
NOT_SAID = "not said"
HIDDEN = "fewer than 10 (or all but so few)"  # a count that the file suppresses
FIELDS, MOST = ("data", "dates", "licence"), 1_000  # what the user may state about an index, and its length


@dataclass(frozen=True)
class Origin:
    """The dates of the admissions of a source, and their licence."""

    dates: str
    licence: str


PHYSIONET = (
    "PhysioNet Credentialed Health Data License 1.5.0, or for the open demo the Open Database License 1.0: which of "
    "them is not recorded; PhysioNet asks that models of its credentialed data be shared under its agreement"
)
ORIGINS = {
    "nhds": Origin("discharges of 2010", "public domain, for statistical use only"),
    "mimic3": Origin("2001 to 2012, every patient's dates shifted", PHYSIONET),
    "mimic4": Origin("2008 to 2019, from version 3.0 on to 2022, every patient's dates shifted", PHYSIONET),
    "synthetic": Origin("none: computed", "free of rights of others"),
}
OWN = "of each outcome by itself, in addition to the score"
ALONG = "from a risk curve over the score"
LIMITS = (
    "For describing and comparing groups of admissions and for adjusting for case mix; not for decisions about one "
    "patient.",
    "Codes are assigned after discharge and contain information about the outcome.",
    "Risks and percentiles are those of the training admissions until `mlci recalibrate` fits them to others.",
)


def about(source: str) -> dict[str, Any]:
    """Return what a fit writes into its model file about the data of a `source`, apart from the counts.

    >>> about("nhds")["dates"]
    'discharges of 2010'
    """
    origin = ORIGINS.get(source, Origin(NOT_SAID, NOT_SAID))
    data = SOURCES.get(source, source)
    return {"data": data, "dates": origin.dates, "licence": origin.licence, "limits": list(LIMITS)}


def described(model: Model, stated: Mapping[str, str]) -> Model:
    """Return a model with the user's own description of the data.

    Args:
        model: an index.
        stated: any of `data`, `dates` and `licence`.

    >>> from mlci.index.estimator import load
    >>> facts(described(load("us2010").model_, {"dates": "the year 2010"}))["Dates"]
    'the year 2010'
    """
    check_about(stated)
    return replace(model, card={**model.card, "about": {**_about(model), **stated}})


def check_about(stated: Mapping[str, str]) -> None:
    """Raise an `InputError` for a description that `described` does not take.

    Args:
        stated: any of `data`, `dates` and `licence`, each of up to 1,000 characters.

    >>> check_about({"dates": "the year 2010"})
    """
    for name, text in stated.items():
        if name not in FIELDS:
            raise InputError(f"about: {name!r} is not allowed; allowed are {', '.join(FIELDS)}.")
        if not isinstance(text, str) or not text.strip() or len(text) > MOST:
            raise InputError(f"about: {name} must have 1 to {MOST} characters.")


def _about(model: Model) -> Mapping[str, Any]:
    """Return what the file states about its data, or else what is known of its source."""
    return model.card.get("about") or about(str(model.card.get("source") or ""))


def facts(model: Model) -> dict[str, str]:
    """Return the facts that a `model` file states about itself, by heading, without outcomes and limits.

    >>> from mlci.index.estimator import load
    >>> facts(load("us2010").model_)["Licence of the data"]
    'public domain, for statistical use only'
    """
    card, origin, stated = model.card, provenance(model), _about(model)
    counts = ", ".join(f"{many:,} {part}" for part, many in (card.get("admissions") or {}).items() if many)
    cutoff = f"{model.cutoff.score:.3g}".replace("-", "−")
    found = {
        "Data": f"{stated['data'] or origin.where}; {origin.coding}",
        "Dates": stated["dates"],
        "Admissions": counts or NOT_SAID,
        "Recipe": f"{card['recipe']}, seed {card['seed']}; {len(model.vocabulary.tokens):,} codes and code prefixes",
        "Risks": _risks(model)
        + (f"; they also depend on {listing(model.people)}, where known" if model.people else ""),
        "High severity": f"a score of {cutoff} or more, {model.cutoff.share:.1%} of admissions",
        "Licence of the data": stated["licence"],
    }
    days = days_of(model)
    if counted := [
        *["only those present on admission"] * (model.vocabulary.poa == ONLY),
        *[f"also those of the last {days:g} days"] * bool(days),
    ]:
        found["Codes that count"] = ", ".join(counted)
    if origin.recalibrated:
        without = f", except the risks of {origin.unchanged}" if origin.unchanged else ""
        found["Recalibrated"] = f"on {origin.recalibrated}{without}; how good it is was judged there"
    if model.numbers:
        names = ", ".join(f"{name} ({kind})" for name, kind in model.numbers.items())
        found["Numeric outcomes"] = f"{names}; `mlci score` writes their expected values, other pages show risks only"
    if design := survey_words(card):
        found["Survey"] = design
    return found


def _risks(model: Model) -> str:
    """Return how the risks come about; an outcome that `mlci recalibrate` added has a curve over the score."""
    along = list(model.outcomes)[model.scorer.risky :]
    if not model.scorer.risky or not along:
        return ALONG if along else OWN
    return f"{OWN}; of {listing([*map(words, along)])} {ALONG}"


def model_card(model: Model, name: str = "this index") -> str:
    """Return the model card as Markdown.

    Args:
        model: of any recipe and file format.
        name: of the index, for the heading.

    >>> from mlci.index.estimator import load
    >>> print(model_card(load("us2010").model_, "us2010").splitlines()[0])
    # Model card: us2010
    """
    lines = [f"# Model card: {name}", "", *(f"- **{key}**: {value}." for key, value in facts(model).items()), ""]
    lines += [*_outcomes(model), "", "## Limits", "", *(f"- {limit}" for limit in limits(model))]
    return "\n".join(lines) + "\n"


def _outcomes(model: Model) -> list[str]:
    """Return a table of the outcomes: rule, training events, and performance on held-out admissions."""
    card = model.card
    lines = [f"## Outcomes, judged on the {card.get('judged_on', 'validation')} split", ""]
    lines += [
        "| outcome | rule | events in training | AUROC of the score | mean risk, observed |",
        "|---|---|---|---|---|",
    ]
    for name, rule in model.outcomes.items():
        reached = (card.get("validation") or {}).get(name)
        judged = "validation" in card and "recalibrated" not in card  # a cohort may lack outcomes of the model
        area = rates = "too few events" if judged else NOT_SAID
        if reached:
            area = f"{reached['auroc']:.3f} ({reached['auroc_low']:.3f} to {reached['auroc_high']:.3f})"
            rates = f"{reached['expected']:.1%}, {reached['observed']:.1%} of {reached['n']:,}"
        many = training_events(card, name) or NOT_SAID
        lines.append(f"| {label(name)} | {rule or NOT_SAID} | {many} | {area} | {rates} |")
    return lines


def training_events(card: Mapping[str, Any], name: str) -> str:
    """Return the number of training events of an outcome in words; a file suppresses it if few have or lack it.

    Args:
        card: of the model.
        name: of the outcome.

    Returns:
        The words; nothing if the model was not trained on the outcome, or does not say so.

    >>> training_events({"positives": {"mortality": 2100}, "weights": {"mortality": 1, "a fall": 1}}, "a fall")
    'fewer than 10 (or all but so few)'
    """
    positives = card.get("positives") or {}
    if positives.get(name) is not None:
        return f"{positives[name]:,}"
    return HIDDEN if name in positives or ("positives" in card and name in (card.get("weights") or {})) else ""


def limits(model: Model) -> list[str]:
    """Return the limits of a `model`: those of every index, and those that follow from its own figures.

    >>> from mlci.index.estimator import load
    >>> limits(load("us2010").model_)[2]
    'Risks and percentiles are those of the training admissions until `mlci recalibrate` fits them to others.'
    """
    recalibrated = bool(provenance(model).recalibrated)
    found = [limit for limit in _about(model)["limits"] if not (recalibrated and limit == LIMITS[2])]
    if provenance(model).synthetic:
        found.append("It was fitted to synthetic admissions: the index is not for real patients.")
    for name in model.outcomes:
        many, events = training_events(model.card, name), (model.card.get("positives") or {}).get(name)
        if many and (events is None or events < FEW):
            found.append(f"{label(name)}: {many} events in training; its risks are imprecise.")
    if model.vocabulary.ignored:
        found.append("Codes that reveal the outcome are ignored.")
    return found
