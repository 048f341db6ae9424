"""The page of one admission: its scores and risks, the effect of each code, and what-if changes of the codes.

Turn the fields of the form into a `Case`, which holds all that the template needs. A case is the recorded codes; a
what-if leaves some of them out (`off`) or adds others (`plus`). Text that is not understood is shown with suggestions,
and does not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlci.base.errors import InputError
from mlci.codes import icd
from mlci.codes.admissions import Admissions
from mlci.codes.parse import Missed, Parsed, Understood
from mlci.index._typed import typed as parsed
from mlci.index.estimator import MLCI
from mlci.tokens import UNK
from mlci.web._answers import Answer, answers

MOST_CODES, MOST_TEXT = 500, 20_000
NEGLIGIBLE = 0.005  # change of the score that does not show in two decimals


@dataclass(frozen=True)
class Row:
    """One code of the case, and its effect."""

    code: str
    title: str | None
    state: Literal["recorded", "off", "plus"]
    again: bool  # recorded before
    effect: float | None  # None if the code does not count
    words: str


@dataclass(frozen=True)
class Case:
    """An admission as typed, and its answers."""

    codes: list[str]  # recorded and understood, normalised
    off: list[str]
    plus: list[str]
    missed: list[Missed]  # typed as recorded, not understood
    missed_plus: list[Missed]  # added in a what-if, not understood
    recorded: Answer
    now: Answer  # with the what-if; equal to `recorded` without one
    rows: list[Row]
    doubts: list[str]

    @property
    def changed(self) -> bool:
        return bool(self.off or self.plus)

    @property
    def counted(self) -> list[str]:
        return [code for code in self.codes if code not in self.off] + self.plus

    @property
    def uncounted(self) -> int:
        """Number of diagnoses that were not understood."""
        return sum(missed.counts for missed in self.missed)


def typed(index: MLCI, text: str, version: int) -> Parsed:
    """Return what the page makes of a text, within its limits.

    >>> from mlci.index.estimator import load
    >>> [code.code for code in typed(load("us2010"), "I50.9; acute kidney failure N17.9", 10).codes]
    ['I509', 'N179']
    """
    if len(text) > MOST_TEXT:
        raise InputError(f"The text is too long: {len(text):,} characters; the page accepts {MOST_TEXT:,}.")
    reading = parsed(index.model_, text, version)
    many = len(reading.codes) + sum(missed.counts for missed in reading.missed)
    if many > MOST_CODES:
        raise InputError(
            f"There are too many codes: {many:,}; the page accepts {MOST_CODES}. To score many "
            "admissions, upload a file."
        )
    return reading


def read_case(
    index: MLCI,
    text: str,
    *,
    off: Sequence[str] = (),
    plus: Sequence[str] = (),
    version: int,
    people: np.ndarray | None = None,
) -> Case | None:
    """Return the case, or None if the text has neither codes nor words; `people` is the row of its age and sex."""
    reading, added = typed(index, text, version), typed(index, "\n".join(plus), version)
    codes, left_out = [understood.code for understood in reading.codes], {icd.normalise(code) for code in off}
    off = [code for code in dict.fromkeys(codes) if code in left_out]
    plus = [code for code in dict.fromkeys(understood.code for understood in added.codes) if code not in codes]
    if not (codes or plus or reading.missed or added.missed):
        return None
    uncounted = sum(missed.counts for missed in reading.missed)
    counted = [code for code in codes if code not in off] + plus
    options = {"icd_version": version, "uncounted": uncounted, "people": people}
    admissions = Admissions.from_lists([counted], icd_version=version)
    (now,), doubts = answers(index, admissions, explain=True, **options)
    recorded = answers(index, [codes], **options)[0][0] if off or plus else now
    known = {understood.code: understood for understood in (*reading.codes, *added.codes)}
    return Case(
        codes=codes,
        off=off,
        plus=plus,
        missed=list(reading.missed),
        missed_plus=list(added.missed),
        recorded=recorded,
        now=now,
        rows=list(_rows(index, codes, off, plus, now, admissions, known)) if now.scored else [],
        doubts=doubts if now.scored else [],
    )


def _rows(
    index: MLCI,
    codes: list[str],
    off: list[str],
    plus: list[str],
    now: Answer,
    admissions: Admissions,
    known: dict[str, Understood],
) -> Iterator[Row]:
    """Yield a row for each recorded code and each added one."""
    counted, version = [str(code) for code in admissions.values[admissions.indices]], int(admissions.versions[0])
    back = answers(index, [[*counted, code] for code in off], icd_version=version)[0] if off else []
    returned = {code: answer.score for code, answer in zip(off, back)}
    limit, effects, place = index.model_.vocabulary.max_codes, iter(now.effects or []), 0
    read_as, seen = _read_as(index, admissions), set()
    listed: list[tuple[str, Literal["recorded", "plus"]]] = [(code, "recorded") for code in codes]
    for code, state in listed + [(code, "plus") for code in plus]:
        again, title = code in seen, known[code].title
        seen.add(code)
        if code in returned:
            change = _change(now.score, returned[code])
            yield Row(code, title, "off", again, None, f"left out; putting it back {change}")
            continue
        effect = next(effects)
        place += effect.known
        if not effect.known:
            yield Row(code, title, state, again, None, _uncounted(code, version, index))
        elif place > limit:
            yield Row(code, title, state, again, None, f"does not count: the model uses only the first {limit} codes")
        else:
            words = _change(effect.score_without, now.score)
            if read_as[code] != code:
                words += f"; read as {icd.dotted(read_as[code], version)}"
            if not known[code].exact:
                words += f"; not a valid ICD-{version}-CM code, read as its category"
            yield Row(code, title, state, again, effect.effect, words)


def _uncounted(code: str, version: int, index: MLCI) -> str:
    """Return why a code does not count."""
    prefixes = [text.split(":")[1] for text in index.model_.vocabulary.ignored if text.startswith(f"{version}:")]
    if code.startswith(tuple(prefixes)):
        return "does not count: it reveals an outcome, and the model ignores such codes"
    return "does not count: the model knows neither this code nor one with the same beginning"


def _read_as(index: MLCI, admissions: Admissions) -> dict[str, str]:
    """Return what the model reads each code as: its longest prefix in the vocabulary."""
    vocabulary = index.model_.vocabulary
    names = {
        str(value): vocabulary.tokens[leaf - 2] if leaf > UNK else ""
        for value, leaf in zip(admissions.values, vocabulary.leaves(admissions).tolist())
    }
    deepest = max(vocabulary.depths)
    return {code: code if len(names[code]) >= min(len(code), deepest) else names[code] for code in names}


def _change(before: float | None, after: float | None) -> str:
    """Return the change from one score to another, in words."""
    if before is None or after is None:
        return "makes a score possible" if before is None else "leaves too few codes for a score"
    if before == after:
        return "does not change the score"
    old, new = f"{before:z.2f}", f"{after:z.2f}"
    if abs(after - before) < NEGLIGIBLE or old == new:
        return f"hardly changes the score (by {after - before:+z.4f})".replace("-", "−")
    return f"{'raises' if after > before else 'lowers'} the score from {old} to {new}".replace("-", "−")
