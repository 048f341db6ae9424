"""The page of one admission: what was typed, what follows from it, and what would follow if a code came or went.

In come the fields of the form; out comes a `Case`, all that the template needs. A case is the recorded codes; a
"what if" leaves some of them out (`off`) or adds others (`plus`).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mlci.base.errors import InputError
from mlci.codes import icd
from mlci.codes.admissions import NO_CODE
from mlci.index.estimator import MLCI
from mlci.web._answers import Answer, answers

MOST_CODES, MOST_TEXT = 500, 20_000


@dataclass(frozen=True)
class Row:
    """One code of the case and what it does."""

    code: str
    title: str | None
    state: Literal["recorded", "off", "plus"]
    again: bool  # recorded before
    effect: float | None  # None where the code does not count
    words: str


@dataclass(frozen=True)
class Case:
    codes: list[str]  # recorded, normalised
    off: list[str]
    plus: list[str]
    nonsense: list[str]  # typed, but no code could be written so
    recorded: Answer
    now: Answer  # the same unless something is left out or added
    rows: list[Row]
    unknown: dict[str, str]  # code the model does not know -> what it may be
    doubts: list[str]

    @property
    def changed(self) -> bool:
        return bool(self.off or self.plus)

    @property
    def counted(self) -> list[str]:
        return [code for code in self.codes if code not in self.off] + self.plus


def typed(text: str) -> tuple[list[str], list[str]]:
    """Codes in whatever way they are separated, normalised, and words that cannot be codes."""
    if len(text) > MOST_TEXT:
        raise InputError(f"That is too much text: {len(text):,} characters; the page takes {MOST_TEXT:,}.")
    words = re.split(r"[^\w.\-]+", text)
    codes = [code for code in map(icd.normalise, words) if code not in NO_CODE]
    if len(codes) > MOST_CODES:
        raise InputError(
            f"Those are {len(codes):,} codes; the page takes {MOST_CODES} at once. Send many admissions as a file."
        )
    return codes, [word for word in words if re.search(r"\w", word) and icd.normalise(word) in NO_CODE]


def read_case(index: MLCI, text: str, *, off: Sequence[str], plus: Sequence[str], version: int) -> Case | None:
    """The case, or None if no code was typed."""
    codes, nonsense = typed(text)
    added, more = typed(" ".join(plus))
    left_out = {icd.normalise(code) for code in off}
    off = [code for code in dict.fromkeys(codes) if code in left_out]
    plus = [code for code in dict.fromkeys(added) if code not in codes]
    if not codes and not plus:
        return None
    counted = [code for code in codes if code not in off] + plus
    (now,), doubts = answers(index, [counted], icd_version=version, explain=True)
    recorded = answers(index, [codes], icd_version=version)[0][0] if off or plus else now
    return Case(
        codes=codes,
        off=off,
        plus=plus,
        nonsense=nonsense + more,
        recorded=recorded,
        now=now,
        rows=list(_rows(index, codes, off, plus, now, version)),
        unknown={code: _what(code, version) for code in now.unknown},
        doubts=doubts,
    )


def _rows(index: MLCI, codes: list[str], off: list[str], plus: list[str], now: Answer, version: int) -> Iterator[Row]:
    counted = [code for code in codes if code not in off] + plus
    back = answers(index, [[*counted, code] for code in off], icd_version=version)[0] if off else []
    returned = {code: answer.score for code, answer in zip(off, back)}
    limit, effects, seen = index.model_.vocabulary.max_codes, enumerate(now.effects or []), set()
    listed: list[tuple[str, Literal["recorded", "plus"]]] = [(code, "recorded") for code in codes]
    for code, state in listed + [(code, "plus") for code in plus]:
        again, title = code in seen, icd.title(code, version)
        seen.add(code)
        if code in returned:
            words = f"left out; putting it back {_change(now.score, returned[code])}"
            yield Row(code, title, "off", again, None, words)
            continue
        place, effect = next(effects)
        words = _change(effect.score_without, now.score)
        if place >= limit:
            words = f"does not count: the model takes the first {limit} codes"
        elif not effect.known:
            words = f"unknown to the model; as an unknown code it {words}"
        yield Row(code, title, state, again, effect.effect, words)


def _change(before: float, after: float) -> str:
    """From one score to another, in words."""
    if before == after:
        return "does not change the score"
    if abs(after - before) < 0.005:
        return f"hardly changes the score (by {after - before:+.4f})".replace("-", "−")
    verb = "raises" if after > before else "lowers"
    return f"{verb} the score from {before:.2f} to {after:.2f}".replace("-", "−")


def _what(code: str, version: int) -> str:
    """What a code is that the model does not know."""
    other = 19 - version
    if icd.title(code, version):
        return f"an ICD-{version} code that was not among the training admissions"
    if icd.title(code, other):
        return f"not in the ICD-{version} table, but in that of ICD-{other}"
    return f"not in the ICD-{version} table and perhaps mistyped"
