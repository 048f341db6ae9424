"""TRIPOD+AI as an appendix: its 27 items, each answered from what model and cohort know, or left to the authors.

In come findings and, from `--study`, the authors' own answers; out come items with text. The guideline is Collins et
al., BMJ 2024;385:e078378; its items are given here in short words of our own (`tripod.csv`), to be read beside it.
"""

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from mlci.base.errors import InputError
from mlci.base.names import label, words
from mlci.showing._words import listing, percent, versions
from mlci.showing.report import _say as say
from mlci.showing.report._findings import Findings, Judgement


@dataclass(frozen=True)
class Item:
    """One item of the guideline, answered as far as can be."""

    number: int
    key: str  # of the authors' answers
    section: str
    asks: str
    said: str  # from the metadata of model and cohort
    given: str  # by the authors
    wanted: str  # what only the authors can say; empty where they have, or where nothing is missing


@cache
def _table() -> tuple[dict[str, str], ...]:
    text = files("mlci.showing.report").joinpath("tripod.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def read_study(path: str | Path) -> dict[str, str]:
    """Read the authors' answers to items of TRIPOD+AI.

    Args:
        path: a TOML file of texts, by the keys of the items.

    Returns:
        The texts; an item that is not known is an `InputError`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "study.toml").write_text('ethics = "waived"')
    ...     read_study(Path(folder, "study.toml"))
    {'ethics': 'waived'}
    """
    try:
        with open(path, "rb") as file:
            answers = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not text in UTF-8.") from error
    keys = [row["key"] for row in _table()]
    for key, value in answers.items():
        if key not in keys:
            raise InputError(f"{path}: {key} is no item; allowed are {', '.join(keys)}.")
        if not isinstance(value, str):
            raise InputError(f"{path}: {key} is not a text; write it in quotation marks.")
    return answers


def items(findings: Findings, answers: Mapping[str, str]) -> tuple[Item, ...]:
    """Return all items in order."""
    known = FIXED | _about_people(findings) | _about_index(findings)
    if findings.judgement is not None:
        known |= _results(findings.judgement, findings)
    result = []
    for number, row in enumerate(_table(), start=1):
        key = row["key"]
        given = answers.get(key, "").strip()
        result.append(
            Item(number, key, row["section"], row["asks"], known.get(key, ""), given, "" if given else row["authors"])
        )
    return tuple(result)


FIXED = {  # said of every index and cohort
    "imbalance": "Classes were neither over- nor undersampled; risks are those of the admissions as they came.",
    "output": (
        "A score (larger is graver), its percentile, a risk of each outcome, and a flag of high severity from a cutoff "
        "chosen on training and validation admissions."
    ),
    "openness": (
        "The program is open source (mlci); the command that made this page stands under “How this was made”."
    ),
    "flow": "Under “What was asked, and of whom”: each step with its number, and the cohort by split.",
    "updating": "The index was evaluated as it is, without updating.",
    "limitations": "Under “Limits of use”.",
    "usability": (
        "A code that the index does not know is said and not weighed; an admission of which it knows fewer than half "
        "of the codes is not scored. For risk adjustment and retrospective stratification, by people who know the "
        "coding of their hospital; not for decisions about a single patient."
    ),
}


def _about_people(findings: Findings) -> dict[str, str]:
    """Return what the cohort says of itself."""
    people = findings.people
    rules = "; ".join(f"{label(name)}: {rule or 'no rule stated'}" for name, rule in people.rules.items())
    steps = [f"{step.rule} ({step.left:,} left)" for step in people.attrition]
    gone = [f"{label(name)} {cells[0]}" for name, cells in _not_known(findings).items()]
    without_codes = people.table_one.get("admissions without codes", ["0"])[0]
    return {
        "title": f"A machine-learned comorbidity index: evaluation on the cohort “{people.source}”.",
        "objectives": (
            f"One number from an admission's diagnosis codes that orders admissions for {len(people.rules)} "
            f"outcome{'s' * (len(people.rules) != 1)}: {listing([words(name) for name in people.rules])}. "
            "This page evaluates it."
        ),
        "participants": f"Eligible, in steps: {'; '.join(steps)}." if steps else "",
        "preparation": (
            "Codes are kept as letters and digits in capitals, in recorded order. "
            f"{people.unknown:,} of {people.codes:,} recorded codes are unknown to the index."
        ),
        "outcomes": f"{rules}.",
        "sample_size": f"All {people.admissions:,} eligible admissions of the evaluated split.",
        "missing": (
            (f"Outcome not known, left out for that outcome alone: {listing(gone)}. " if gone else "")
            + f"Admissions without codes ({without_codes}) are scored as such."
            + (
                f" {people.unscored:,} with fewer than half of their codes understood are left out."
                * bool(people.unscored)
            )
        ),
    }


def _about_index(findings: Findings) -> dict[str, str]:
    """Return how the index was made and is judged."""
    people, made = findings.people, findings.made
    trained, weights = made.get("admissions", {}), made.get("weights", {})
    learned = f"The index was learned from the cohort “{made.get('source', 'not stated')}”"
    if trained:
        learned += f": {trained['train']:,} admissions to fit, {trained['valid']:,} to tune"
    return {
        "data": f"Evaluated on the cohort “{people.source}”. {learned}. {' '.join(people.notes)}".strip(),
        "predictors": (
            f"Diagnosis codes ({versions(people.icd_versions)}), assigned at or after discharge; the index knows "
            f"{findings.vocabulary:,} codes and beginnings of codes ({versions(findings.model_versions)})"
            + (f" and ignores {findings.ignored} that tell an outcome." if findings.ignored else ".")
        ),
        "analysis": (
            f"Recipe “{made['recipe']}”, seed {made['seed']}. Order by AUROC (DeLong) and distance correlation, risks "
            f"by slope, intercept, Brier score and a local regression; {findings.resamples} resamples"
            f"{' of patients' if people.patients else ''}. Rivals: Charlson, Elixhauser and logistic regressions "
            "refitted on the training split."
        ),
        "differences": (
            "Fitted and evaluated on splits of one cohort."
            if made.get("source") == people.source
            else f"Fitted on “{made.get('source', 'not stated')}”, evaluated on “{people.source}”."
        ),
        "specification": (
            "The model file holds all weights and every setting; `mlci score` and `mlci.load` predict with it."
            + (f" Outcome weights: {listing([f'{words(k)} {v:.2f}' for k, v in weights.items()])}." if weights else "")
        ),
    }


def _results(judgement: Judgement, findings: Findings) -> dict[str, str]:
    """Return what the evaluation adds."""
    events = [f"{words(outcome.name)} {outcome.positives:,} of {outcome.n:,}" for outcome in judgement.outcomes]
    rarest = min(judgement.outcomes, key=lambda outcome: min(outcome.positives, outcome.n - outcome.positives))
    own = judgement.aurocs[judgement.aurocs["model"] == "MLCI"]
    aurocs = [f"{words(row.outcome)} {row.value:.3f} ({row.low:.3f} to {row.high:.3f})" for row in own.itertuples()]
    groups = [words(str(by)) for by in judgement.groups["by"].unique()]
    trained = findings.made.get("positives", {})
    learned = [f"{words(name)} {many:,}" for name, many in trained.items()]
    return {
        "sample_size": (
            f"All {findings.people.admissions:,} admissions of the evaluated split; the rarest outcome, "
            f"{words(rarest.name)}, "
            f"has {rarest.positives:,} events ({percent(rarest.rate)})."
        ),
        "fairness": (
            f"AUROC and observed / expected events are given by {listing(groups)}; no term of the model mentions them."
            if groups
            else "The cohort names neither sex nor age, so no groups are compared."
        ),
        "development": (f"Events to fit: {listing(learned)}. " if learned else "") + f"Evaluated: {listing(events)}.",
        "performance": f"AUROC: {listing(aurocs)}. Intervals, calibration and groups stand above." if aurocs else "",
        "interpretation": " ".join(say.headline(judgement)),
    }


def _not_known(findings: Findings) -> dict[str, list[str]]:
    """Return outcome → how many are not known, in all and by split; those known everywhere are left out."""
    lines = {name: findings.people.table_one.get(f"{name}: not known", ["0"]) for name in findings.people.rules}
    return {name: cells for name, cells in lines.items() if cells[0] != "0"}
