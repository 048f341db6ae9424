"""The answers of an index about admissions, for the JSON API and the pages.

Turn lists of codes into `Answer`s: the same numbers as `index.score`, `risk` and `explain`, to the last digit, together
with Charlson and Elixhauser.
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
    """The effect of one recorded code on the score."""

    code: str
    title: str | None = Field(description="official title, if the code is in the ICD table")
    known: bool = Field(description="whether the model knows the code")
    effect: float = Field(
        description="contribution to the score; contributions add up for a table; for a network, it is score minus "
        "score_without"
    )
    score_without: float = Field(description="score of the admission without the code")
    log_odds: dict[str, float] | None = Field(
        description="effect on the log-odds of each outcome; null if the model has no log-odds of its own"
    )


class Answer(BaseModel):
    """One admission; everything about severity is null if fewer than half of its codes are understood."""

    scored: bool = Field(description="false if fewer than half of the codes are understood, or there are none")
    understood: float | None = Field(description="share of the recorded codes that are understood; null without codes")
    score: float | None = Field(description="a higher score is more severe")
    percentile: float | None = Field(
        description="share (0 to 100) of the training admissions with the same or a lower score"
    )
    risk: dict[str, float] | None = Field(description="risk of each outcome")
    risk_interval: dict[str, tuple[float, float]] | None = Field(
        description="95% interval of each risk that has one: the uncertainty of the estimate"
    )
    high_severity: bool | None = Field(description="whether the score is at or above the cutoff")
    unknown: list[str] = Field(description="codes that the model does not know; they do not count")
    charlson: Clinical = Field(description="Charlson index, original weights")
    elixhauser: Clinical = Field(description="Elixhauser index, van Walraven's weights")
    effects: list[CodeEffect] | None = Field(
        description="one for each code, in order; null unless requested and scored"
    )


def model_version(model: Model) -> int:
    """Return the default ICD version of codes: that of the model, or 10 if it has both or none.

    >>> from mlci.index.estimator import load
    >>> model_version(load("us2010").model_)
    10
    """
    own = [version for version in model.icd_versions if version in icd.VERSIONS]
    return own[0] if len(own) == 1 else 10


def chosen_version(model: Model, field: str) -> int:
    """Return the ICD version in a form `field`, or the default if it is not 9 or 10.

    >>> from mlci.index.estimator import load
    >>> chosen_version(load("us2010").model_, "9")
    9
    """
    return int(field) if field in ("9", "10") else model_version(model)


def answers(
    index: MLCI,
    lists: Sequence[Sequence[str]] | Admissions,
    *,
    icd_version: int,
    explain: bool = False,
    uncounted: int = 0,
    people: np.ndarray | None = None,
) -> tuple[list[Answer], list[str]]:
    """Return an answer for each admission, and warnings about their codes.

    Codes that the model does not know are left out: they neither raise nor lower a score. `uncounted` is the number of
    further diagnoses of each admission whose code is not known; `people` are rows of age and sex, for risks that use
    them.
    """
    model, admissions = index.model_, as_admissions(lists, icd_version=icd_version)
    reading, how = model.read_strictly(admissions, people), model.understanding(admissions)
    columns, intervals = model.columns(admissions, strict=True, reading=reading), model.intervals(reading)
    how = how.diluted(np.diff(admissions.offsets), uncounted) if uncounted else how
    known, codes_of = model.known(admissions), [str(code) for code in admissions.values]
    published = clinical(admissions)
    scored = np.flatnonzero(how.enough)
    effects = _effects(model, admissions.take(scored), known, _rows(reading, scored), icd_version)
    risks, found = [name for name in model.outcomes if f"risk_{name}" in columns], []
    for row, enough in enumerate(how.enough.tolist()):
        recorded = admissions.indices[admissions.offsets[row] : admissions.offsets[row + 1]].tolist()
        distinct = list(dict.fromkeys(recorded))
        severity = {name: columns[name][row] for name in ("score", "percentile", "high_severity")} if enough else {}
        found.append(
            Answer(
                scored=enough,
                understood=how.share[row] if np.isfinite(how.share[row]) else None,
                score=severity.get("score"),
                percentile=severity.get("percentile"),
                risk={name: columns[f"risk_{name}"][row] for name in risks} if enough else None,
                risk_interval={name: (low[row], high[row]) for name, (low, high) in intervals.items()}
                if enough
                else None,
                high_severity=severity.get("high_severity"),
                unknown=[codes_of[code] for code in distinct if not known[code]],
                effects=next(effects) if explain and enough else None,
                **published[row],
            )
        )
    tally = Tally(model, missing=absent(model.people, people))
    return found, tally.add(admissions).warnings(strict=True)


def _rows(reading: Reading, rows: np.ndarray) -> Reading:
    """Return the reading of some admissions."""
    return Reading(reading.score[rows], None if reading.log_odds is None else reading.log_odds[rows])


def _effects(
    model: Model, admissions: Admissions, known: np.ndarray, reading: Reading, icd_version: int
) -> Iterator[list[CodeEffect]]:
    """Yield the effects of the recorded codes of each admission; a code that is not known has none.

    All admissions are explained together when the first is requested, so that each code is looked up only once.
    """
    effects = iter(effects_of(model, admissions.keep(known), reading))
    for score, (start, end) in zip(reading.score.tolist(), pairwise(admissions.offsets.tolist())):
        yield [
            CodeEffect.model_construct(**vars(next(effects)))  # computed here, so not validated
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
