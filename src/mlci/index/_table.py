"""Score with a table: each token that an admission has adds its weight to every outcome's log-odds, once.

In come the arrays of a table (weights, intercepts, calibration, curves) and flat tokens; out come log-odds, risks and
the score: the sum over outcomes of a piecewise-linear curve of their log-odds. Needs NumPy alone.

Sums are taken of whole numbers, so neither the order of the codes nor the company of an admission changes a bit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import ge

import numpy as np

from mlci.base.ordered import sort_runs
from mlci.codes.admissions import Admissions
from mlci.fitting._families import HIGHEST, KINDS
from mlci.fitting._people import ROWS as PEOPLE
from mlci.fitting._people import People
from mlci.index._reading import Reading, in_blocks
from mlci.index._whole import in_pairs, in_steps
from mlci.tokens import Tokens, Vocabulary

ROWS = 16_384  # admissions worked on at once: what a core's cache holds
FEW = 64  # numbers that are looked up among the knots one by one
COUNTED = KINDS.index("poisson")
STATE = ("calibration", "heights", "intercepts", "knots", "weights")


@dataclass(frozen=True)
class TableScorer:
    """The arrays of a table by name, and the vocabulary whose tokens are the rows of `weights`.

    `weights` (tokens, outcomes) and `intercepts` make the log-odds; `calibration` (outcomes, 2) makes of these a risk:
    expit(a + b * log-odds), and `people`, if there, one that knows age and sex; `knots` and `heights` (outcomes,
    points) are the curves whose sum is the score. Where `kinds` is there, the last outcomes are numbers: their mean is
    exp(a + b * predictor) of a count, a + b * predictor of a measured one.
    """

    state: Mapping[str, np.ndarray]
    vocabulary: Vocabulary

    @cached_property
    def risky(self) -> int:
        """How many outcomes have a risk; those that are numbers come after them."""
        kinds = self.state.get("kinds")
        return len(self.state["intercepts"]) if kinds is None else int((kinds == 0).sum())

    def encode(self, admissions: Admissions) -> Tokens:
        """Return the deepest token of each code; it stands for its beginnings too."""
        return self.vocabulary.deepest(admissions)

    def read(self, tokens: Tokens) -> Reading:
        """Return scores and log-odds; a token brings its beginnings with it, whether or not they are among `tokens`."""
        log_odds = np.empty((len(self.state["intercepts"]), len(tokens)))
        score = np.empty(len(tokens))
        _ = self._sums, self._behind  # made once, before threads need them

        def work(start: int) -> None:
            part = slice(start, start + ROWS)
            for row, total in zip(log_odds, self._totals(tokens, start)):  # the pair of a last odd one is empty
                np.multiply(total, self._sums[1], out=row[part])
            log_odds[:, part] += self.state["intercepts"][:, None]
            score[part] = self.score(log_odds[:, part].T)

        in_blocks(work, len(tokens), ROWS)
        return Reading(score, log_odds.T)

    def score(self, log_odds: np.ndarray) -> np.ndarray:
        """Return the score at these log-odds, a column per outcome."""
        columns = zip(log_odds.T, self.pieces)
        return sum((along(column, *pieces) for column, pieces in columns), np.zeros(len(log_odds)))

    @cached_property
    def pieces(self) -> list[tuple[np.ndarray, ...]]:
        """Of each outcome's curve, as `along` takes them."""
        return [_pieces(*points) for points in zip(self.state["knots"], self.state["heights"])]

    def risks(self, reading: Reading) -> np.ndarray:
        """Return the risk of each outcome, a column each."""
        risk = self.risk_log_odds(reading)
        np.negative(risk, out=risk)
        with np.errstate(over="ignore"):  # a risk of 0, as near as a number can come to it
            np.exp(risk, out=risk)
        risk += 1
        return np.reciprocal(risk, out=risk)

    def risk_log_odds(self, reading: Reading) -> np.ndarray:
        """Return the log-odds of each risk: by codes, and by age and sex where these are known and count."""
        assert reading.log_odds is not None
        by_codes, calibration = reading.log_odds[:, : self.risky], self.state["calibration"][: self.risky]
        found = by_codes * calibration[:, 1]
        found += calibration[:, 0]
        if reading.people is not None:
            more = People(self.state["people"]).log_odds(by_codes, reading.people)
            np.copyto(found, more, where=~np.isnan(more))
        return found

    def means(self, reading: Reading) -> np.ndarray:
        """Return the expected value of each outcome that is a number, a column each, in its own unit."""
        assert reading.log_odds is not None
        shift, slope = self.state["calibration"][self.risky :].T
        found = shift + slope * reading.log_odds[:, self.risky :]
        counts = self.state["kinds"][self.risky :] == COUNTED if "kinds" in self.state else np.zeros(0, bool)
        found[:, counts] = np.exp(np.minimum(found[:, counts], HIGHEST))
        return found

    def check(self, outcomes: int) -> None:
        """Refuse arrays that do not fit together, of a file that somebody made by hand."""
        state, names = self.state, list(zip(self.vocabulary.versions, self.vocabulary.tokens))
        named = tuple(sorted({*state} - {"people", "kinds"}))
        if named != STATE or not all(values.dtype == np.float64 for values in state.values()):
            raise ValueError(f"tensors {sorted(state)}; wanted are {', '.join(STATE)} of 64-bit numbers")
        learned, points = state["weights"].shape[1], state["knots"].shape[-1]
        wanted = {
            "weights": (len(self.vocabulary), learned),
            "intercepts": (learned,),
            "calibration": (learned, 2),
            "knots": (learned, points),
            "heights": (learned, points),
            **({"people": (2 + len(PEOPLE), self.risky)} if "people" in state else {}),
            **({"kinds": (learned,)} if "kinds" in state else {}),
        }
        if {name: values.shape for name, values in state.items()} != wanted or not 0 < self.risky <= outcomes:
            raise ValueError(f"tensors of other shapes than {wanted}")
        if not all(np.isfinite(values).all() for values in state.values()):
            raise ValueError("weights that are not finite")
        if points < 2 or (np.diff(state["knots"]) <= 0).any() or any(map(ge, names, names[1:])):
            raise ValueError("knots or tokens that are not in order")
        kinds = state.get("kinds", np.zeros(0))
        if not np.isin(kinds, range(len(KINDS))).all() or kinds[: self.risky].any():
            raise ValueError("kinds of outcomes that are not in order")

    @cached_property
    def _sums(self) -> tuple[np.ndarray, float]:
        """What a token and its beginnings add together, outcomes in pairs, in multiples of a step (given too)."""
        whole, step = in_steps(self.state["weights"], self.vocabulary.longest)
        return in_pairs(whole[self.vocabulary.beginnings].sum(axis=1)), step

    @cached_property
    def _behind(self) -> np.ndarray:
        """How far each token stands behind its shortest beginning: between them are tokens of this family alone."""
        beginnings = self.vocabulary.beginnings
        own = np.arange(len(beginnings))
        return (own - beginnings[own, (beginnings > 0).argmax(axis=1)]).astype(np.uint32)

    def _totals(self, tokens: Tokens, start: int) -> Iterator[np.ndarray]:
        """Yield what the tokens of up to `ROWS` admissions add to each outcome's log-odds, each token once."""
        offsets = tokens.offsets[start : start + ROWS + 1]
        counts = np.diff(offsets)
        own, again, common = self._ordered(tokens.ids[offsets[0] : offsets[-1]], counts)
        filled, added = np.flatnonzero(counts), np.empty(len(own), dtype=np.complex128)
        for pair in self._sums[0]:
            pair.take(own, out=added, mode="clip")  # which spares a copy
            added[again] -= pair.take(common)
            total = np.zeros(len(counts), dtype=pair.dtype)
            if len(filled):
                total[filled] = np.add.reduceat(added, offsets[filled] - offsets[0])
            yield from (total.real, total.imag)

    def _ordered(self, ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the tokens of each admission in order; which of them share something with the one before, and what.

        Tokens that share a beginning are neighbours then, and what a token has in common with its left neighbour was
        counted there.
        """
        bits = int(len(self.vocabulary) - 1).bit_length()
        kind = np.uint32 if ROWS << bits <= 1 << 32 else np.uint64
        keys = np.repeat(np.arange(len(counts), dtype=kind) << kind(bits), counts)
        keys |= ids.astype(kind, copy=False)
        keys = sort_runs(keys, int(counts.max(initial=0)))
        own = (keys & kind((1 << bits) - 1)).astype(np.intp)
        family = keys - self._behind.take(own).astype(kind, copy=False)  # of the same admission
        left = np.flatnonzero(keys[:-1] >= family[1:])
        return own, left + 1, self._common(own[left], own[left + 1])

    def _common(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the deepest token that two tokens both bring."""
        common = np.zeros(len(left), dtype=np.int32)
        for of_depth in self.vocabulary.beginnings.T:
            own = of_depth[left]
            np.copyto(common, own, where=(own == of_depth[right]) & (own > 0))
        return common


def curve(x: np.ndarray, knots: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return piecewise linear through the knots; beyond the ends, the last slopes go on.

    >>> curve(np.array([-1.0, 0.5, 3.0]), np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 3.0]))
    array([-1. ,  0.5,  5. ])
    """
    return along(x, *_pieces(knots, heights))


def _pieces(knots: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the knots, and of each piece between and beyond them: where it starts, how high and how steep it is."""
    slopes = np.diff(heights) / np.diff(knots)
    return knots, np.insert(knots, 0, knots[0]), np.insert(heights, 0, heights[0]), slopes[[0, *range(len(slopes)), -1]]


def along(x: np.ndarray, knots: np.ndarray, starts: np.ndarray, heights: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return piecewise linear, from what `_pieces` gives."""
    if len(x) < FEW:
        place = np.searchsorted(knots, x, side="right")
    else:  # knots are so few that counting is faster than searching
        passed = np.zeros(len(x), dtype=np.min_scalar_type(len(knots)))
        for knot in knots:
            passed += (x >= knot).view(np.uint8)
        place = passed.astype(np.intp)
    found = x - starts.take(place)
    found *= slopes.take(place)
    found += heights.take(place)
    return found
