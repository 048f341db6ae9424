"""The alignment of every cut of a score's order with a direction, by one sort and a prefix sum."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlci.base.errors import InputError
from mlci.measures.weighted import mean


@dataclass(frozen=True)
class Threshold:
    """A cut of the score order. An admission is beyond it if its score is at least `score`."""

    split: int  # admissions below
    n: int
    score: float  # the lowest score beyond the cut, so an integer index keeps an integer cutoff
    rho2: float  # squared cosine with the direction: the share of the bound that this two-level score reaches
    rising: bool  # whether the direction is larger beyond the cut than below it

    @property
    def tail(self) -> int:
        return self.n - self.split

    @property
    def share(self) -> float:
        return self.tail / self.n


@dataclass(frozen=True)
class Scan:
    """rho_j of every possible cut, one column per direction."""

    split: np.ndarray
    score: np.ndarray
    rho: np.ndarray
    n: int

    def best(self, column: int) -> Threshold:
        """Return the cut with the largest rho^2, the first of equals."""
        return self.at(int(np.argmax(self.rho[:, column] ** 2)), column)

    def at(self, row: int, column: int) -> Threshold:
        rho = self.rho[row, column]
        return Threshold(int(self.split[row]), self.n, float(self.score[row]), float(rho**2), bool(rho > 0))


def scan(score, directions, *, ties: Literal["keep", "split"] = "keep", mass: np.ndarray | None = None) -> Scan:
    """Compute rho of every cut of the score order, for each direction, by one prefix sum.

    Args:
        score: one number per admission.
        directions: n x m, one direction per column.
        ties: "keep" cuts only between distinct scores, because admissions with equal scores are indistinguishable;
            "split" also cuts within tied scores, in the given order, as the authors' program does.
        mass: survey weights of the admissions, if any.

    Returns:
        rho of each cut and direction.

    >>> found = scan([1, 2, 3, 4], [0, 0, 1, 1])
    >>> found.best(0).score, round(found.best(0).rho2, 3)
    (3.0, 1.0)
    """
    score, directions = np.asarray(score, dtype=float), np.asarray(directions, dtype=float)
    directions = directions.reshape(len(score), -1)
    n = len(score)
    order = np.argsort(score, kind="stable")
    score = score[order]
    below = np.flatnonzero(score[1:] > score[:-1]) if ties == "keep" else np.arange(n - 1)
    if not len(below):
        raise InputError("all scores are equal, so no cutoff exists.")
    split = below + 1
    directions = directions - mean(directions, mass)
    if mass is None:
        norm, whole, reached = np.sqrt((directions**2).sum(axis=0)), n, split
    else:
        norm, whole, reached = np.sqrt(mass @ directions**2), mass.sum(), np.cumsum(mass[order])[below]
        directions = mass[:, None] * directions
    beyond = -np.cumsum(directions[order], axis=0)[below]  # w' g_j
    length = np.sqrt(np.maximum(reached / whole * (whole - reached), 0))  # ||g_j||
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.where((norm > 0) & (length[:, None] > 0), beyond / (norm * length[:, None]), 0.0)
    return Scan(split, score[split], rho, n)
