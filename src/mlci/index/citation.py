"""How to cite the method and the software, and how to describe a model in a methods section.

Every number in the description comes from the model file; what the file does not hold is left out.
"""

import mlci
from mlci.base.names import words
from mlci.index._look_back import days_of
from mlci.index.model import Model
from mlci.index.modelcard import NOT_SAID, facts
from mlci.index.provenance import refitted

BIBTEX = """\
@inproceedings{{baloch2026mlci,
  title     = {{A Machine-Learned Comorbidity Index}},
  author    = {{Baloch, Suleman and Jha, Kishlay and Segre, Alberto M. and Polgreen, Philip M. and Adhikari, Bijaya}},
  booktitle = {{Proceedings of the International Conference on Machine Learning (ICML)}},
  year      = {{2026}},
}}

@software{{mlci,
  title   = {{mlci: a machine-learned comorbidity index}},
  author  = {{{{The mlci developers}}}},
  version = {{{version}}},
  license = {{Apache-2.0}},
}}"""
RECIPES = {
    "table": "A penalised logistic regression gives each diagnosis code a weight for each outcome; the severity score "
    "is the sum of one monotone curve per outcome over the summed weights, fitted by distance-correlation alignment.",
    "deep": "An ensemble of set encoders learns the risk of each outcome from the diagnosis codes; the risks are "
    "collapsed to one severity score by distance-correlation alignment, and one set encoder reproduces score and risks "
    "from codes.",
    "paper": "A set encoder maps the diagnosis codes to one severity score; it is trained in two stages to maximise "
    "normalised HSIC with all outcomes.",
}


def bibtex() -> str:
    """Return the BibTeX entries of the paper and of this version of the software.

    >>> print(bibtex().splitlines()[0])
    @inproceedings{baloch2026mlci,
    """
    return BIBTEX.format(version=mlci.__version__)


def methods(model: Model) -> str:
    """Describe a model in the style of a methods section.

    Args:
        model: of any recipe.

    Returns:
        One paragraph: software and recipe, training data with dates and counts, ICD versions of the codes, outcomes
        with their rules and events, and the AUROC on held-out admissions.

    >>> from mlci.index.estimator import load
    >>> "recipe table, seed 2010." in methods(load("us2010").model_)
    True
    """
    card = model.card
    counts = {part: f"{number:,}" for part, number in card.get("admissions", {}).items()}
    data = f"It was fitted on {counts.get('train', 'an unstated number of')} admissions"
    chosen = counts.get("valid", "0")
    data += f", with {chosen} more for validation" if chosen != "0" else ""
    data += _of_what(model)
    versions = " and ".join(f"ICD-{version}" for version in sorted(model.icd_versions) if version)
    outcomes = [_outcome(name, rule, card.get("positives", {}).get(name)) for name, rule in model.outcomes.items()]
    looked = days_of(model)
    sentences = (
        f"Severity was scored with mlci {mlci.__version__}, recipe {card['recipe']}, seed {card['seed']}.",
        RECIPES[card["recipe"]],
        data,
        f"Codes were {versions}." if versions else "",
        "Only codes present on admission count." if model.vocabulary.poa == "only" else "",
        f"Codes of the patient's earlier admissions in the last {looked:g} days count too." if looked else "",
        f"Outcomes: {'; '.join(outcomes)}.",
        refitted(model),
        _reached(model),
        f"Admissions with a score of {model.cutoff.score:.3g} or more were classified as high severity.",
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _of_what(model: Model) -> str:
    """Return the source and dates of the admissions, as far as the file states them."""
    known = facts(model)
    whose, dates = known["Data"].rpartition("; ")[0], known["Dates"]
    when = "" if dates == NOT_SAID else f"; {dates}"
    return f" ({whose}{when})." if model.card.get("source") or model.card.get("about") else "."


def _reached(model: Model) -> str:
    """Return the AUROC of the score on held-out admissions, by outcome."""
    card, found = model.card, model.card.get("validation") or {}
    areas = [
        f"{words(name)} {facts['auroc']:.3f} (95% interval {facts['auroc_low']:.3f} to {facts['auroc_high']:.3f})"
        for name, facts in found.items()
    ]
    split = f"{'their' if 'recalibrated' in card else 'the'} {card.get('judged_on', 'validation')} split"
    return f"AUROC of the score on {split}: {'; '.join(areas)}." if areas else ""


def _outcome(name: str, rule: str, events: int | None) -> str:
    details = [rule] if rule else []
    details += [f"{events:,} events in training"] if events is not None else []
    return f"{words(name)} ({', '.join(details)})" if details else words(name)
