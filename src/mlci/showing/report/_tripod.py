"""TRIPOD+AI as an appendix: its 27 items, each answered from the model file and the cohort, or left to the authors.

Turn findings, and the authors' answers from `--study`, into items with text. The guideline is Collins et al., BMJ
2024;385:e078378. Its items are paraphrased briefly in `tripod.csv`; read them together with the guideline.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from mlci.base.errors import InputError
from mlci.base.names import label, listing, words
from mlci.base.toml import read_toml
from mlci.showing._words import percent, versions
from mlci.showing.report import _say as say
from mlci.showing.report._findings import Findings, Judgement


@dataclass(frozen=True)
class Item:
    """One item of the guideline, answered as far as possible."""

    number: int
    key: str  # of the authors' answers
    section: str
    asks: str
    known: str  # answer from the metadata of model and cohort
    given: str  # answer of the authors
    wanted: str  # what only the authors can answer; empty if they have, or if nothing is missing


@cache
def _table() -> tuple[dict[str, str], ...]:
    text = files("mlci.showing.report").joinpath("tripod.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def read_study(path: str | Path) -> dict[str, str]:
    """Read the authors' answers to items of TRIPOD+AI.

    Args:
        path: a TOML file of texts, with the keys of the items.

    Returns:
        The texts by key; an unknown key is an `InputError`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "study.toml").write_text('ethics = "waived"')
    ...     read_study(Path(folder, "study.toml"))
    {'ethics': 'waived'}
    """
    answers = read_toml(path)
    keys = [row["key"] for row in _table()]
    for key, value in answers.items():
        if key not in keys:
            raise InputError(f"{path}: {key} is not an item; allowed are {', '.join(keys)}.")
        if not isinstance(value, str):
            raise InputError(f"{path}: {key} is not a text; put it in quotation marks.")
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


FIXED = {  # the same for every index and cohort
    "openness": "The software is open source (mlci); the command that made this page is under “How this was made”.",
    "flow": "See “Question and cohort”: each exclusion step with its count, and the cohort by split.",
    "limitations": "See “Limits of use”.",
    "usability": (
        "Codes that the index does not know are reported and do not count; an admission with fewer than half of its "
        "codes known has no score here, on the page, or with `mlci score --strict`. The index is meant for risk "
        "adjustment and retrospective stratification, by people who know the coding of their hospital; it is not meant "
        "for decisions about a single patient."
    ),
}


def _about_people(findings: Findings) -> dict[str, str]:
    """Return the answers that describe the cohort."""
    people = findings.people
    rules = "; ".join(f"{label(name)}: {rule or 'no rule stated'}" for name, rule in people.rules.items())
    steps = [f"{step.rule} ({step.left:,} left)" for step in people.attrition]
    unknown = [f"{words(name)} {cells[0]}" for name, cells in _not_known(findings).items()]
    without_codes = people.table_one.get("admissions without codes", ["0"])[0]
    return {
        "title": f"A machine-learned comorbidity index: evaluation on the cohort “{people.source}”.",
        "objectives": (
            f"To evaluate a single score, computed from the diagnosis codes of an admission, that ranks admissions for "
            f"{len(people.rules)} outcome{'s' * (len(people.rules) != 1)}: "
            f"{listing([words(name) for name in people.rules])}."
        ),
        "participants": f"Eligibility, in steps: {'; '.join(steps)}." if steps else "",
        "preparation": (
            "Codes are stored as capital letters and digits, in recorded order. "
            f"{people.unknown:,} of {people.codes:,} recorded codes are unknown to the index."
        ),
        "outcomes": f"{rules}.",
        "sample_size": f"All {people.admissions:,} eligible admissions of the evaluated split.",
        "missing": (
            (
                f"Admissions with an unknown outcome are left out for that outcome: {listing(unknown)}. "
                if unknown
                else ""
            )
            + f"Admissions without codes ({without_codes}) are scored as having none."
            + (
                f" {people.unscored:,} admissions with fewer than half of their codes understood are left out."
                * bool(people.unscored)
            )
        ),
    }


def _about_index(findings: Findings) -> dict[str, str]:
    """Return the answers that describe how the index was made and evaluated."""
    people, made, again = findings.people, findings.made, ""
    if findings.refitted:
        again = f" The index was updated: {findings.refitted[0].lower()}{findings.refitted[1:]}"
    trained, weights = made.get("admissions", {}), made.get("weights", {})
    learned = f"The index was learned from the cohort “{made.get('source', 'not stated')}”"
    if trained:
        learned += f": {trained['train']:,} training and {trained['valid']:,} tuning admissions"
    return {
        "data": f"Evaluated on the cohort “{people.source}”. {learned}.{again} {' '.join(people.notes)}".strip(),
        "predictors": (
            f"Diagnosis codes ({versions(people.icd_versions)}), assigned at or after discharge; the index knows "
            f"{findings.vocabulary:,} codes and code prefixes ({versions(findings.model_versions)})"
            + (f" and ignores {findings.ignored} that reveal an outcome." if findings.ignored else ".")
        ),
        "analysis": (
            f"Recipe “{made['recipe']}”, seed {made['seed']}. The order of admissions is evaluated by AUROC (DeLong) "
            f"and distance correlation, risks by calibration slope, intercept, Brier score and a local regression; "
            f"{findings.resamples} bootstrap resamples{' of patients' if people.patients else ''}. Compared with "
            "Charlson, Elixhauser and logistic regressions refitted on the training split."
        ),
        "differences": (
            "Fitted and evaluated on splits of one cohort."
            if made.get("source") == people.source
            else f"Fitted on “{made.get('source', 'not stated')}”, evaluated on “{people.source}”."
        )
        + again,
        "imbalance": "Classes were neither over- nor undersampled; risks refer to the admissions as recorded." + again,
        "output": (
            "A score (higher is more severe), its percentile, a risk of each outcome, and a flag of high severity from "
            f"a cutoff chosen on {made.get('fitted_on', 'training and validation admissions')}."
        ),
        "updating": again.lstrip() or "The index was evaluated as it is, without updating.",
        "specification": (
            "The model file holds all weights and every setting; `mlci score` and `mlci.load` predict with it."
            + (f" Outcome weights: {listing([f'{words(k)} {v:.2f}' for k, v in weights.items()])}." if weights else "")
        ),
    }


def _results(judgement: Judgement, findings: Findings) -> dict[str, str]:
    """Return the answers that report the results of the evaluation."""
    events = [f"{words(outcome.name)} {outcome.positives:,} of {outcome.n:,}" for outcome in judgement.outcomes]
    rarest = min(judgement.outcomes, key=lambda outcome: min(outcome.positives, outcome.n - outcome.positives))
    own = judgement.aurocs[judgement.aurocs["model"] == "MLCI"]
    aurocs = [f"{words(row.outcome)} {row.value:.3f} ({row.low:.3f} to {row.high:.3f})" for row in own.itertuples()]
    groups = [words(str(by)) for by in judgement.groups["by"].unique()]
    trained = findings.made.get("positives", {})
    learned = [f"{words(name)} {many:,}" for name, many in trained.items() if many is not None]
    return {
        "sample_size": (
            f"All {findings.people.admissions:,} admissions of the evaluated split; the rarest outcome, "
            f"{words(rarest.name)}, "
            f"has {rarest.positives:,} events ({percent(rarest.rate)})."
        ),
        "fairness": (
            f"AUROC and observed / expected events are given by {listing(groups)}; the score does not use them."
            if groups
            else f"The groups by {listing([words(by) for by in findings.by])} are too small to be compared."
            if findings.by
            else "The cohort has neither sex nor age, so no groups are compared."
        ),
        "development": (f"Events for fitting: {listing(learned)}. " if learned else "")
        + f"For evaluation: {listing(events)}.",
        "performance": f"AUROC: {listing(aurocs)}. Calibration and groups are shown above." if aurocs else "",
        "interpretation": " ".join(say.headline(judgement)),
    }


def _not_known(findings: Findings) -> dict[str, list[str]]:
    """Return the number of unknown values of each outcome that has any, in total and by split."""
    lines = {name: findings.people.table_one.get(f"{name}: not known", ["0"]) for name in findings.people.rules}
    return {name: cells for name, cells in lines.items() if cells[0] != "0"}
