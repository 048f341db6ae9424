"""Score with a table: each distinct token of an admission adds its weight to the log-odds of every outcome.

Turn the arrays of a table (weights, intercepts, calibration, curves) and flat tokens into log-odds, risks and the
score. The score is the sum over outcomes of a piecewise-linear curve of their log-odds. Only NumPy is needed.

Sums are exact integer sums, so the result depends neither on the order of codes nor on the other admissions in a batch.
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

ROWS = 16_384  # admissions per block, so that a block fits in a core's cache
FEW = 64  # below this length, knots are found by binary search
COUNTED = KINDS.index("poisson")
STATE = ("calibration", "heights", "intercepts", "knots", "weights")


@dataclass(frozen=True)
class TableScorer:
    """The arrays of a table by name, and the vocabulary whose tokens are the rows of `weights`.

    - `weights` (tokens, outcomes) and `intercepts` give the log-odds.
    - `calibration` (outcomes, 2) turns these into risks: expit(a + b * log-odds).
    - `people`, if present, turns them into risks that depend on age and sex too.
    - `knots` and `heights` (outcomes, points) are the curves whose sum is the score.
    - `kinds`, if present, marks numeric outcomes, which come last. Their mean is exp(a + b * predictor) for a Poisson
      outcome and a + b * predictor for a Gaussian one.
    """

    state: Mapping[str, np.ndarray]
    vocabulary: Vocabulary

    @cached_property
    def risky(self) -> int:
        """The number of outcomes with a risk; numeric outcomes come after them."""
        kinds = self.state.get("kinds")
        return len(self.state["intercepts"]) if kinds is None else int((kinds == 0).sum())

    def encode(self, admissions: Admissions) -> Tokens:
        """Return the deepest token of each code, which represents its prefixes too."""
        return self.vocabulary.deepest(admissions)

    def read(self, tokens: Tokens) -> Reading:
        """Return scores and log-odds; a token counts together with its prefixes, even if they are not in `tokens`."""
        log_odds = np.empty((len(self.state["intercepts"]), len(tokens)))
        score = np.empty(len(tokens))
        _ = self._sums, self._behind  # computed once, before threads use them

        def work(start: int) -> None:
            part = slice(start, start + ROWS)
            for row, total in zip(log_odds, self._totals(tokens, start)):  # an odd last column is paired with zeros
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
        """The pieces of each outcome's curve, as arguments of `along`."""
        return [_pieces(*points) for points in zip(self.state["knots"], self.state["heights"])]

    def risks(self, reading: Reading) -> np.ndarray:
        """Return the risk of each outcome, a column each."""
        risk = self.risk_log_odds(reading)
        np.negative(risk, out=risk)
        with np.errstate(over="ignore"):  # the risk is then 0
            np.exp(risk, out=risk)
        risk += 1
        return np.reciprocal(risk, out=risk)

    def risk_log_odds(self, reading: Reading) -> np.ndarray:
        """Return the log-odds of each risk: by codes, and by age and sex if the model uses them and they are known."""
        assert reading.log_odds is not None
        by_codes, calibration = reading.log_odds[:, : self.risky], self.state["calibration"][: self.risky]
        found = by_codes * calibration[:, 1]
        found += calibration[:, 0]
        if reading.people is not None:
            more = People(self.state["people"]).log_odds(by_codes, reading.people)
            np.copyto(found, more, where=~np.isnan(more))
        return found

    def means(self, reading: Reading) -> np.ndarray:
        """Return the expected value of each numeric outcome, one column each, in its own unit."""
        assert reading.log_odds is not None
        shift, slope = self.state["calibration"][self.risky :].T
        found = shift + slope * reading.log_odds[:, self.risky :]
        counts = self.state["kinds"][self.risky :] == COUNTED if "kinds" in self.state else np.zeros(0, bool)
        found[:, counts] = np.exp(np.minimum(found[:, counts], HIGHEST))
        return found

    def check(self, outcomes: int) -> None:
        """Raise ValueError if the arrays are inconsistent, as in a handmade file."""
        state, names = self.state, list(zip(self.vocabulary.versions, self.vocabulary.tokens))
        named = tuple(sorted({*state} - {"people", "kinds"}))
        if named != STATE or not all(values.dtype == np.float64 for values in state.values()):
            raise ValueError(f"tensors {sorted(state)}; expected {', '.join(STATE)} of 64-bit numbers")
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
            raise ValueError(f"tensors whose shapes are not {wanted}")
        if not all(np.isfinite(values).all() for values in state.values()):
            raise ValueError("weights that are not finite")
        if points < 2 or (np.diff(state["knots"]) <= 0).any() or any(map(ge, names, names[1:])):
            raise ValueError("knots or tokens that are not in order")
        kinds = state.get("kinds", np.zeros(0))
        if not np.isin(kinds, range(len(KINDS))).all() or kinds[: self.risky].any():
            raise ValueError("kinds of outcomes that are not in order")

    @cached_property
    def _sums(self) -> tuple[np.ndarray, float]:
        """The summed weights of a token and its prefixes, outcomes in pairs, as multiples of a step; and the step."""
        whole, step = in_steps(self.state["weights"], self.vocabulary.longest)
        return in_pairs(whole[self.vocabulary.prefixes].sum(axis=1)), step

    @cached_property
    def _behind(self) -> np.ndarray:
        """The distance of each token from its shortest prefix in sort order; only tokens of this family lie between."""
        prefixes = self.vocabulary.prefixes
        own = np.arange(len(prefixes))
        return (own - prefixes[own, (prefixes > 0).argmax(axis=1)]).astype(np.uint32)

    def _totals(self, tokens: Tokens, start: int) -> Iterator[np.ndarray]:
        """Yield the sums over the distinct tokens of up to `ROWS` admissions, for one outcome after the other."""
        offsets = tokens.offsets[start : start + ROWS + 1]
        counts = np.diff(offsets)
        own, again, common = self._ordered(tokens.ids[offsets[0] : offsets[-1]], counts)
        filled, added = np.flatnonzero(counts), np.empty(len(own), dtype=np.complex128)
        for pair in self._sums[0]:
            pair.take(own, out=added, mode="clip")  # "clip" avoids a copy
            added[again] -= pair.take(common)
            total = np.zeros(len(counts), dtype=pair.dtype)
            if len(filled):
                total[filled] = np.add.reduceat(added, offsets[filled] - offsets[0])
            yield from (total.real, total.imag)

    def _ordered(self, ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sorted tokens of each admission, which of them share a prefix with the one before, and the prefix.

        After sorting, tokens with a common prefix are neighbours, so the shared prefix was already counted with the
        left neighbour.
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
        """Return the deepest token that is a prefix of both."""
        common = np.zeros(len(left), dtype=np.int32)
        for of_depth in self.vocabulary.prefixes.T:
            own = of_depth[left]
            np.copyto(common, own, where=(own == of_depth[right]) & (own > 0))
        return common


def curve(x: np.ndarray, knots: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Evaluate the piecewise-linear curve through the knots, with linear extrapolation.

    >>> curve(np.array([-1.0, 0.5, 3.0]), np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 3.0]))
    array([-1. ,  0.5,  5. ])
    """
    return along(x, *_pieces(knots, heights))


def _pieces(knots: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the knots, and the start, height and slope of each piece between and beyond them."""
    slopes = np.diff(heights) / np.diff(knots)
    return knots, np.insert(knots, 0, knots[0]), np.insert(heights, 0, heights[0]), slopes[[0, *range(len(slopes)), -1]]


def along(x: np.ndarray, knots: np.ndarray, starts: np.ndarray, heights: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Evaluate a piecewise-linear curve from the result of `_pieces`."""
    if len(x) < FEW:
        place = np.searchsorted(knots, x, side="right")
    else:  # with few knots, counting is faster than searching
        passed = np.zeros(len(x), dtype=np.min_scalar_type(len(knots)))
        for knot in knots:
            passed += (x >= knot).view(np.uint8)
        place = passed.astype(np.intp)
    found = x - starts.take(place)
    found *= slopes.take(place)
    found += heights.take(place)
    return found
