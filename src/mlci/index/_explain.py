"""Attribute an admission's score to its recorded codes: exact shares for a table, leave-one-out effects for a network.

Turn a model and admissions into numbers, one row per recorded code. The shares of a table are exact and add up. The
weight of a token is split evenly among the codes that share it. A code's share of the score is its share of each
outcome's log-odds, times the mean slope of that outcome's curve between an admission without codes and this one
(integrated gradients, or Aumann-Shapley values). A network is not a sum, so each code is left out in turn and the
admission is scored again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import overload

import numpy as np

from mlci.base.names import label
from mlci.codes.admissions import Admissions
from mlci.index._reading import Reading
from mlci.index._table import TableScorer, along
from mlci.index.model import Model
from mlci.tokens import PAD, PRINCIPAL, UNK, Vocabulary, positions

NEAR = 1e-10  # if log-odds are this close to those without codes, the curve's slope is taken at that point


@dataclass(frozen=True)
class Effect:
    """The effect of one recorded code on an admission's score."""

    code: str
    title: str | None
    known: bool  # in the vocabulary
    effect: float  # for a table its share of the score, else the score minus the score without it
    score_without: float
    log_odds: Mapping[str, float] | None  # the same for each outcome's log-odds, if the index has them


@dataclass(frozen=True)
class Explanation(Sequence[Effect]):
    """The effects of an admission's codes, in recorded order; `base` is an admission without codes.

    If `additive`, the score is `base_score` plus all effects, and the log-odds of each outcome are a sum of the same
    form. Otherwise an effect is the change when the code is left out.
    """

    effects: tuple[Effect, ...]
    score: float
    base_score: float
    log_odds: Mapping[str, float] | None
    base_log_odds: Mapping[str, float] | None
    additive: bool = False
    # Log-odds of each outcome's risk, if the index has them: shift + slope * log-odds + what age and sex add.
    risk_log_odds: Mapping[str, float] | None = None
    calibration: Mapping[str, tuple[float, float]] | None = None  # shift and slope
    people: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # band of age, sex -> what it adds

    @overload
    def __getitem__(self, index: int) -> Effect: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Effect, ...]: ...
    def __getitem__(self, index: int | slice) -> Effect | tuple[Effect, ...]:
        return self.effects[index]

    def __len__(self) -> int:
        return len(self.effects)

    def _repr_html_(self) -> str:
        """Return a table for a notebook: a bar for each effect, and the log-odds of each outcome."""
        names = list(self.log_odds or ())
        widest = max((abs(effect.effect) for effect in self), default=0) or 1.0
        head = ["Code", "", "Score", "", *(f"{label(name)} (log-odds)" for name in names)]
        rows = [_row("", "No codes", self.base_score, 0, [(self.base_log_odds or {})[name] for name in names])]
        for effect in self:
            title = (effect.title or "") if effect.known else "unknown to the model"
            parts = [(effect.log_odds or {})[name] for name in names]
            rows.append(_row(effect.code, title, effect.effect, effect.effect / widest, parts))
        rows.append(_row("", "This admission", self.score, 0, [(self.log_odds or {})[name] for name in names]))
        for text, added in self.people.items():
            rows.append(_row("", f"{text}, in the risks", 0.0, 0, [added[name] for name in names]))
        note = "Rows add up." if self.additive else "Each code is left out in turn; effects overlap and do not add up."
        cells = "".join(f"<th>{escape(text)}</th>" for text in head)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table><p>{note}</p>"


def _row(code: str, title: str, value: float, bar: float, parts: list[float]) -> str:
    colour = "#D55E00" if bar > 0 else "#0072B2"
    drawn = f'<div style="width:{60 * abs(bar):.0f}px;height:0.8em;background:{colour}"></div>'
    texts = [escape(code), escape(title), f"{value:+z.3f}", drawn, *(f"{part:+z.3f}" for part in parts)]
    return f"<tr>{''.join(f'<td>{text}</td>' for text in texts)}</tr>"


def shares(model: Model, admissions: Admissions, reading: Reading, *, without: Reading | None = None) -> Reading:
    """Return the effect of each recorded code on its admission's score and log-odds.

    Args:
        model: an index.
        admissions: normalised codes.
        reading: the model's reading of the admissions.
        without: the result of `without_each`, if it has been computed already; only networks need it.

    Returns:
        One row per recorded code, in the order of `Admissions.indices`.
    """
    if isinstance(model.scorer, TableScorer):
        return _split(model.scorer, admissions, reading)
    without = without_each(model, admissions, reading) if without is None else without
    whole = _repeated(reading, admissions.counts)
    if whole.log_odds is None or without.log_odds is None:
        return Reading(whole.score - without.score)
    return Reading(whole.score - without.score, whole.log_odds - without.log_odds)


def effects_of(model: Model, admissions: Admissions, reading: Reading) -> tuple[Effect, ...]:
    """Return an `Effect` for each recorded code, in the order of `Admissions.indices`.

    Args:
        model: an index.
        admissions: normalised codes.
        reading: the model's reading of the admissions.
    """
    without = without_each(model, admissions, reading)
    found = shares(model, admissions, reading, without=without)
    titles, known = titles_of(model, admissions), model.known(admissions)
    effects = zip(
        admissions.indices.tolist(),
        found.score.tolist(),
        without.score.tolist(),
        by_outcome(model, found.log_odds, len(found.score)),
    )
    return tuple(
        Effect(str(admissions.values[code]), titles[code], bool(known[code]), effect, score, log_odds)
        for code, effect, score, log_odds in effects
    )


def by_outcome(model: Model, log_odds: np.ndarray | None, rows: int) -> list[dict[str, float] | None]:
    """Return each row of log-odds as a dictionary by outcome; None if there are no log-odds."""
    return [None] * rows if log_odds is None else [dict(zip(model.learned, row)) for row in log_odds.tolist()]


def titles_of(model: Model, admissions: Admissions) -> list[str | None]:
    """Return the title of each code; a code without a version is read in the model's version if that has only one."""
    from mlci.codes.icd import VERSIONS, titles

    alone = model.icd_versions[0] if len(model.icd_versions) == 1 else 0
    versions = np.where(np.isin(admissions.versions, VERSIONS), admissions.versions, alone)
    found = np.full(len(versions), None)
    for version in VERSIONS:
        rows = versions == version
        if rows.any():
            found[rows] = titles(admissions.values[rows], version)
    return found.tolist()


def _repeated(reading: Reading, counts: np.ndarray) -> Reading:
    """Return a row for each recorded code."""
    score, log_odds = reading.score, reading.log_odds
    return Reading(np.repeat(score, counts), None if log_odds is None else np.repeat(log_odds, counts, axis=0))


def _split(scorer: TableScorer, admissions: Admissions, reading: Reading) -> Reading:
    """Return each recorded code's exact share of its admission's score and log-odds."""
    weights, counts = scorer.state["weights"], admissions.counts
    row = np.repeat(np.arange(len(counts)), counts)
    brought = _tokens(scorer.vocabulary, admissions, row)
    code, place = np.nonzero(brought)
    tokens = brought[code, place]
    _, pair, sharing = np.unique(row[code] * np.int64(len(weights)) + tokens, return_inverse=True, return_counts=True)
    parts = weights[tokens] / sharing[pair][:, None]
    columns = [np.bincount(code, part, minlength=len(row)) for part in parts.T]
    log_odds = np.column_stack(columns).astype(np.float64, copy=False)  # without codes, bincount returns integers
    slopes = _mean_slopes(scorer, reading.log_odds)
    return Reading((log_odds * slopes[row]).sum(axis=1), log_odds)


def _tokens(vocabulary: Vocabulary, admissions: Admissions, row: np.ndarray) -> np.ndarray:
    """Return the tokens of each recorded code, padded with PAD; a code that does not count has none."""
    leaf = vocabulary.leaves(admissions)[admissions.indices]
    counting = np.cumsum(leaf != PAD)
    before = np.concatenate([[0], counting])[admissions.offsets[:-1]]
    place = counting - before[row]  # 1 for the first code that counts
    leaf[place > vocabulary.max_codes] = PAD
    brought = vocabulary.prefixes[leaf]
    if vocabulary.number_of_codes:  # a token that all codes of the admission share
        many = vocabulary.number_tokens(np.bincount(row, leaf != PAD, minlength=len(admissions)).astype(np.int64))
        brought = np.hstack([brought, np.where(leaf != PAD, many[row], PAD)[:, None]])
    if not vocabulary.primary:
        return brought
    marked = vocabulary.leaves(admissions, mark=PRINCIPAL)[admissions.indices]
    marked[(place != 1) | (leaf == PAD) | (marked == UNK)] = PAD
    return np.hstack([brought, vocabulary.prefixes[marked]])


def _mean_slopes(scorer: TableScorer, log_odds: np.ndarray | None) -> np.ndarray:
    """Return the mean slope of each outcome's curve, between an admission and one without codes."""
    assert log_odds is not None
    columns = []
    for here, base, pieces in zip(log_odds.T, scorer.state["intercepts"], scorer.pieces):
        away = np.where(np.abs(here - base) < NEAR, NEAR, here - base)
        columns.append((along(base + away, *pieces) - along(np.array([base]), *pieces)) / away)
    return np.column_stack(columns)


def without_each(model: Model, admissions: Admissions, reading: Reading) -> Reading:
    """Return the score and log-odds of admissions without each of their codes in turn.

    Codes beyond the first `max_codes` do not count. When an earlier one is left out, the first of these moves up.

    Args:
        model: an index.
        admissions: normalised codes.
        reading: the model's reading of the admissions.
    """
    without = _repeated(reading, admissions.counts)
    for variants, recorded in _variants(admissions, model.vocabulary.max_codes):
        found = model.read(variants)
        without.score[recorded] = found.score
        if without.log_odds is not None:
            without.log_odds[recorded] = found.log_odds
    return without


def _variants(
    admissions: Admissions, limit: int, *, budget: int = 4_000_000
) -> Iterator[tuple[Admissions, np.ndarray]]:
    """Yield admissions with one code left out, and which recorded code that was; about `budget` codes at a time."""
    counts = admissions.counts
    kept, left_out = np.minimum(counts, limit + 1), np.minimum(counts, limit)
    batch = np.cumsum(kept * left_out) // budget
    for rows in np.split(np.arange(len(counts)), np.flatnonzero(np.diff(batch)) + 1):
        recorded, _ = positions(admissions.offsets[rows], left_out[rows])
        row = np.repeat(rows, left_out[rows])
        flat, _ = positions(admissions.offsets[row], kept[row])
        flat = flat[flat != np.repeat(recorded, kept[row])]
        offsets = np.concatenate([[0], np.cumsum(kept[row] - 1)])
        yield replace(admissions, ids=row, indices=admissions.indices[flat], offsets=offsets), recorded
