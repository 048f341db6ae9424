"""What an index says of admissions, as the JSON API answers it and the page shows it.

In come an index and lists of codes; out come `Answer`s, equal to `index.score`, `risk` and `explain` to the last digit,
with Charlson and Elixhauser beside them.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from pydantic import BaseModel, Field

from mlci.codes import icd
from mlci.codes.admissions import Admissions, as_admissions
from mlci.index._explain import effects_of
from mlci.index._people import absent
from mlci.index._reading import Reading
from mlci.index.estimator import MLCI
from mlci.index.model import Model
from mlci.index.tally import Tally
from mlci.web._clinical import Clinical, clinical


class CodeEffect(BaseModel):
    """What one recorded code did to the score."""

    code: str
    title: str | None = Field(description="official title, where the code is in the ICD table")
    known: bool = Field(description="whether the model knows the code")
    effect: float = Field(
        description="share of the score by a table, where shares add up; by a network, score minus score_without"
    )
    score_without: float = Field(description="score of the admission without the code")
    log_odds: dict[str, float] | None = Field(
        description="effect on each outcome's log-odds, likewise; null where the model has none of its own"
    )


class Answer(BaseModel):
    """One admission; everything about severity is null where too little was understood."""

    scored: bool = Field(description="false: fewer than half of the codes are understood, or there is none")
    understood: float | None = Field(description="share of the recorded codes; null without codes")
    score: float | None = Field(description="larger means more severe")
    percentile: float | None = Field(description="share (0 to 100) of the training admissions that score no higher")
    risk: dict[str, float] | None = Field(description="of each outcome")
    risk_interval: dict[str, tuple[float, float]] | None = Field(
        description="95%, of each risk that has one: how far the reference admissions determine it"
    )
    high_severity: bool | None = Field(description="whether the score lies at or above the cutoff")
    unknown: list[str] = Field(description="codes that the model does not know; they do not count")
    charlson: Clinical = Field(description="Charlson index, original weights")
    elixhauser: Clinical = Field(description="Elixhauser index, van Walraven's weights")
    effects: list[CodeEffect] | None = Field(
        description="one for each code, in order; null unless asked for and scored"
    )


def model_version(model: Model) -> int:
    """Return the ICD version that codes are of where nobody says it: the model's, or 10 if that has both or none.

    >>> from mlci.index.estimator import load
    >>> model_version(load("us2010").model_)
    10
    """
    own = [version for version in model.icd_versions if version in icd.VERSIONS]
    return own[0] if len(own) == 1 else 10


def said_version(model: Model, said: str) -> int:
    """Return the ICD version that somebody `said`, or else that of `model_version`.

    >>> from mlci.index.estimator import load
    >>> said_version(load("us2010").model_, "9")
    9
    """
    return int(said) if said in ("9", "10") else model_version(model)


def answers(
    index: MLCI,
    lists: Sequence[Sequence[str]] | Admissions,
    *,
    icd_version: int,
    explain: bool = False,
    uncounted: int = 0,
    people: np.ndarray | None = None,
) -> tuple[list[Answer], list[str]]:
    """Return an answer for each admission, and what the user should be told about their codes, a sentence each.

    Codes that the model does not understand are left out: they neither raise nor lower a score. `uncounted` is how many
    further diagnoses were recorded for each admission, of which no code is known at all; `people` are rows of age and
    sex, for risks that take them.
    """
    model, admissions = index.model_, as_admissions(lists, icd_version=icd_version)
    reading, how = model.read_strictly(admissions, people), model.understanding(admissions)
    columns, intervals = model.columns(admissions, strict=True, reading=reading), model.intervals(reading)
    how = how.diluted(np.diff(admissions.offsets), uncounted) if uncounted else how
    known, codes_of = model.known(admissions), [str(code) for code in admissions.values]
    beside = clinical(admissions)
    scored = np.flatnonzero(how.enough)
    effects = _effects(model, admissions.take(scored), known, _rows(reading, scored), icd_version)
    risks, found = [name for name in model.outcomes if f"risk_{name}" in columns], []
    for row, enough in enumerate(how.enough.tolist()):
        recorded = admissions.indices[admissions.offsets[row] : admissions.offsets[row + 1]].tolist()
        distinct = list(dict.fromkeys(recorded))
        said = {name: columns[name][row] for name in ("score", "percentile", "high_severity")} if enough else {}
        found.append(
            Answer(
                scored=enough,
                understood=how.share[row] if np.isfinite(how.share[row]) else None,
                score=said.get("score"),
                percentile=said.get("percentile"),
                risk={name: columns[f"risk_{name}"][row] for name in risks} if enough else None,
                risk_interval={name: (low[row], high[row]) for name, (low, high) in intervals.items()}
                if enough
                else None,
                high_severity=said.get("high_severity"),
                unknown=[codes_of[code] for code in distinct if not known[code]],
                effects=next(effects) if explain and enough else None,
                **beside[row],
            )
        )
    tally = Tally(model, missing=absent(model.people, people))
    return found, tally.add(admissions).warnings(strict=True)


def _rows(reading: Reading, rows: np.ndarray) -> Reading:
    """Return what was read of some admissions' codes."""
    return Reading(reading.score[rows], None if reading.log_odds is None else reading.log_odds[rows])


def _effects(
    model: Model, admissions: Admissions, known: np.ndarray, reading: Reading, icd_version: int
) -> Iterator[list[CodeEffect]]:
    """Yield what each recorded code of each admission does; one that is not understood does nothing.

    All are explained together, once the first is asked for: one by one they would look up each other's codes again.
    """
    effects = iter(effects_of(model, admissions.keep(known), reading))
    for score, (start, end) in zip(reading.score.tolist(), pairwise(admissions.offsets.tolist())):
        yield [
            CodeEffect.model_construct(**vars(next(effects)))  # our own figures need no check
            if known[code]
            else CodeEffect(
                code=(text := str(admissions.values[code])),
                title=icd.title(text, icd_version),
                known=False,
                effect=0.0,
                score_without=score,
                log_odds=None,
            )
            for code in admissions.indices[start:end].tolist()
        ]
