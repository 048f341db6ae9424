"""The model card of an index: whose data, when, which outcomes, how many, how good, what it is not for, which licence.

A model comes in, Markdown goes out. A fit writes into the model file what only it knows (`about`); the rest is read off
the file. What the file does not say, the card says is not said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlci.base.names import label
from mlci.index.model import Model
from mlci.index.provenance import SOURCES, provenance

FEW = 100  # events in training below which an outcome's risks are rough
NOT_SAID = "not said"


@dataclass(frozen=True)
class Origin:
    """When the admissions of a source took place, and what their publisher allows."""

    dates: str
    licence: str


CREDENTIALED = "PhysioNet credentialed health data licence 1.5.0; the model file holds aggregates of ten or more"
ORIGINS = {
    "nhds": Origin("discharges of 2010", "public domain, for statistical use only"),
    "mimic3": Origin("2001 to 2012, dates shifted", CREDENTIALED),
    "mimic4": Origin("2008 to 2022, dates shifted", CREDENTIALED),
    "synthetic": Origin("none: computed", "free of rights of others"),
}
LIMITS = (
    "For describing and comparing groups of admissions and for adjusting for case mix; not for decisions about one "
    "patient.",
    "Codes are given after discharge and know part of the outcome.",
    "Risks and percentiles are those of the training admissions until `mlci recalibrate` fits them to others.",
)


def about(source: str) -> dict[str, Any]:
    """What a fit writes into its model file about the data of a source, beside the counts.

    >>> about("nhds")["dates"]
    'discharges of 2010'
    """
    origin = ORIGINS.get(source, Origin(NOT_SAID, NOT_SAID))
    data = SOURCES.get(source, source)
    return {"data": data, "dates": origin.dates, "licence": origin.licence, "limits": list(LIMITS)}


def model_card(model: Model, name: str = "this index") -> str:
    """Write the model card as Markdown.

    Args:
        model: of any recipe and age; what its file does not say is left open.
        name: what to call it.

    >>> from mlci.index.estimator import load
    >>> print(model_card(load("us2010").model_, "us2010").splitlines()[0])
    # Model card: us2010
    """
    card, origin = model.card, provenance(model)
    told: Mapping[str, Any] = card.get("about") or about(str(card.get("source") or ""))
    counts = ", ".join(f"{many:,} {part}" for part, many in (card.get("admissions") or {}).items() if many)
    facts = {
        "Data": f"{told['data'] or origin.where}; {origin.coding}",
        "Dates": told["dates"],
        "Admissions": counts or NOT_SAID,
        "Recipe": f"{card['recipe']}, seed {card['seed']}; {len(model.vocabulary.tokens):,} codes and their beginnings",
        "High severity": f"a score of {model.cutoff.score:.3g} or more, {model.cutoff.share:.1%} of admissions",
        "Licence of the data": told["licence"],
    }
    if again := card.get("recalibrated"):
        facts["Recalibrated"] = f"on {again['admissions']:,} admissions of {again['source']}"
    lines = [f"# Model card: {name}", "", *(f"- **{key}**: {value}." for key, value in facts.items()), ""]
    return "\n".join(
        [*lines, *_outcomes(model), "", "## Limits", "", *(f"- {limit}" for limit in _limits(model, told))]
    )


def _outcomes(model: Model) -> list[str]:
    """A table of the outcomes: rule, events in training, and how the index did on admissions kept apart."""
    card = model.card
    lines = [f"## Outcomes, judged on the {card.get('judged_on', 'validation')} split", ""]
    lines += [
        "| outcome | rule | events in training | AUROC of the score | mean risk, observed |",
        "|---|---|---|---|---|",
    ]
    for name, rule in model.outcomes.items():
        events, reached = (card.get("positives") or {}).get(name), (card.get("validation") or {}).get(name)
        area = rates = NOT_SAID
        if reached:
            area = f"{reached['auroc']:.3f} ({reached['auroc_low']:.3f} to {reached['auroc_high']:.3f})"
            rates = f"{reached['expected']:.1%}, {reached['observed']:.1%} of {reached['n']:,}"
        many = NOT_SAID if events is None else f"{events:,}"
        lines.append(f"| {label(name)} | {rule or NOT_SAID} | {many} | {area} | {rates} |")
    return lines


def _limits(model: Model, told: Mapping[str, Any]) -> list[str]:
    """Those of every index, and those that this one's own figures show."""
    found = list(told["limits"])
    if provenance(model).synthetic:
        found.append("The training admissions are computed: it is no index for patients.")
    for name, events in (model.card.get("positives") or {}).items():
        if events is not None and events < FEW:
            found.append(f"{label(name)}: only {events:,} events in training; its risks are rough.")
    if model.vocabulary.ignored:
        found.append("Codes that tell the outcome count as not recorded.")
    return found
