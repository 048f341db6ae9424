"""The model card of an index: whose data, when, which outcomes, how many, how good, what it is not for, which licence.

A model comes in; facts and limits go out, which the page, the report and the points card show, and all of it as
Markdown. A fit writes into the model file what only it knows (`about`); the rest is read off the file. Where the file
says nothing, the card says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlci.base.errors import InputError
from mlci.base.names import label
from mlci.codes.poa import ONLY
from mlci.index._looking import days_of
from mlci.index._survey import told as drawn_words
from mlci.index.model import Model
from mlci.index.provenance import SOURCES, provenance

FEW = 100  # events in training below which an outcome's risks are rough
NOT_SAID = "not said"
SAID, MOST = ("data", "dates", "licence"), 1_000  # what the maker of an index may say about it, in how many characters


@dataclass(frozen=True)
class Origin:
    """When the admissions of a source took place, and what their publisher allows."""

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
OWN = "of each outcome by itself, beside the score"
ALONG = "read from a curve along the score"
LIMITS = (
    "For describing and comparing groups of admissions and for adjusting for case mix; not for decisions about one "
    "patient.",
    "Codes are given after discharge and know part of the outcome.",
    "Risks and percentiles are those of the training admissions until `mlci recalibrate` fits them to others.",
)


def about(source: str) -> dict[str, Any]:
    """Return what a fit writes into its model file about the data of a `source`, beside the counts.

    >>> about("nhds")["dates"]
    'discharges of 2010'
    """
    origin = ORIGINS.get(source, Origin(NOT_SAID, NOT_SAID))
    data = SOURCES.get(source, source)
    return {"data": data, "dates": origin.dates, "licence": origin.licence, "limits": list(LIMITS)}


def described(model: Model, told: Mapping[str, str]) -> Model:
    """Return a model with its maker's own words about the data.

    Args:
        model: an index.
        told: `data`, `dates` and `licence`, any of them.

    >>> from mlci.index.estimator import load
    >>> facts(described(load("us2010").model_, {"dates": "the year 2010"}))["Dates"]
    'the year 2010'
    """
    for name, words in told.items():
        if name not in SAID:
            raise InputError(f"about: {name} is none of {', '.join(SAID)}.")
        if not isinstance(words, str) or not words.strip() or len(words) > MOST:
            raise InputError(f"about: {name} takes 1 to {MOST} characters.")
    return replace(model, card={**model.card, "about": {**_told(model), **told}})


def _told(model: Model) -> Mapping[str, Any]:
    """Return what the file says about its data, or else what is known of its source."""
    return model.card.get("about") or about(str(model.card.get("source") or ""))


def facts(model: Model) -> dict[str, str]:
    """Return what a `model` file says about itself beside outcomes and limits, in words, by what they are about.

    >>> from mlci.index.estimator import load
    >>> facts(load("us2010").model_)["Licence of the data"]
    'public domain, for statistical use only'
    """
    card, origin, told = model.card, provenance(model), _told(model)
    counts = ", ".join(f"{many:,} {part}" for part, many in (card.get("admissions") or {}).items() if many)
    cutoff = f"{model.cutoff.score:.3g}".replace("-", "−")
    found = {
        "Data": f"{told['data'] or origin.where}; {origin.coding}",
        "Dates": told["dates"],
        "Admissions": counts or NOT_SAID,
        "Recipe": f"{card['recipe']}, seed {card['seed']}; {len(model.vocabulary.tokens):,} codes and their beginnings",
        "Risks": OWN if model.scorer.risky else ALONG,
        "High severity": f"a score of {cutoff} or more, {model.cutoff.share:.1%} of admissions",
        "Licence of the data": told["licence"],
    }
    days = days_of(model)
    if counted := [
        *["present on admission alone"] * (model.vocabulary.poa == ONLY),
        *[f"of the last {days:g} days too"] * bool(days),
    ]:
        found["Codes that count"] = ", ".join(counted)
    if again := card.get("recalibrated"):
        found["Recalibrated"] = f"on {again['admissions']:,} admissions of {again['source']}"
    if model.numbers:
        told_numbers = ", ".join(f"{name} ({kind})" for name, kind in model.numbers.items())
        found["Numbers learned from"] = (
            f"{told_numbers}; `mlci score` gives their expected values, other pages risks alone"
        )
    if said := drawn_words(card):
        found["Survey"] = said
    return found


def model_card(model: Model, name: str = "this index") -> str:
    """Return the model card as Markdown.

    Args:
        model: of any recipe and age; what its file does not say is left open.
        name: what to call it.

    >>> from mlci.index.estimator import load
    >>> print(model_card(load("us2010").model_, "us2010").splitlines()[0])
    # Model card: us2010
    """
    lines = [f"# Model card: {name}", "", *(f"- **{key}**: {value}." for key, value in facts(model).items()), ""]
    lines += [*_outcomes(model), "", "## Limits", "", *(f"- {limit}" for limit in limits(model))]
    return "\n".join(lines) + "\n"


def _outcomes(model: Model) -> list[str]:
    """Return a table of the outcomes: rule, events in training, and how the index did on admissions kept apart."""
    card, positives = model.card, model.card.get("positives") or {}
    lines = [f"## Outcomes, judged on the {card.get('judged_on', 'validation')} split", ""]
    lines += [
        "| outcome | rule | events in training | AUROC of the score | mean risk, observed |",
        "|---|---|---|---|---|",
    ]
    for name, rule in model.outcomes.items():
        reached = (card.get("validation") or {}).get(name)
        area = rates = "too few to tell" if "validation" in card else NOT_SAID
        if reached:
            area = f"{reached['auroc']:.3f} ({reached['auroc_low']:.3f} to {reached['auroc_high']:.3f})"
            rates = f"{reached['expected']:.1%}, {reached['observed']:.1%} of {reached['n']:,}"
        many = _counted(positives[name]) if name in positives else NOT_SAID
        lines.append(f"| {label(name)} | {rule or NOT_SAID} | {many} | {area} | {rates} |")
    return lines


def _counted(events: int | None) -> str:
    """Return a number of events; one that the file keeps back because it is small has its bound."""
    return "fewer than 10" if events is None else f"{events:,}"


def limits(model: Model) -> list[str]:
    """Return what a `model` is not for: limits of every index, and those that its own figures show.

    >>> from mlci.index.estimator import load
    >>> limits(load("us2010").model_)[1]
    'Codes are given after discharge and know part of the outcome.'
    """
    found = list(_told(model)["limits"])
    if provenance(model).synthetic:
        found.append("The training admissions are computed: it is no index for patients.")
    for name, events in (model.card.get("positives") or {}).items():
        if events is None or events < FEW:
            found.append(f"{label(name)}: {_counted(events)} events in training; its risks are rough.")
    if model.vocabulary.ignored:
        found.append("Codes that tell the outcome count as not recorded.")
    return found
