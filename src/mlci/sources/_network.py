"""Synthetic hospitals whose differences are known: how many and a seed come in, out comes a `Network`.

Hospitals differ in size, in whom they admit (the sicker prefer some of them), in how many codes they record and in what
they add to every outcome's log-odds. A tenth of them adds and a tenth takes away, the others do neither; another tenth,
drawn apart from these, records far more codes than the rest. Whoever compares hospitals can thus be told how many of
the true outliers were found, and how many others were blamed. They also give a treatment that changes nothing.
"""

from dataclasses import dataclass

import numpy as np

SHARE = 0.1  # of the hospitals that are better, that are worse, and that record too much
EFFECT = np.log(1.6)  # on the log-odds of every outcome, of the worse; the better have its opposite
UPCODING = 1.4  # codes recorded per code that others would record
CODING_SPREAD = 0.06  # of the other hospitals' habits, on the log scale
SIZE_SPREAD = 0.5  # of admissions, on the log scale
TREATED, CHOSEN = -1.0, 0.7  # log-odds of a treatment that changes nothing, and how they rise with severity
TILT_SPREAD = 0.3  # how much more, per standard deviation of severity, the sicker come to a hospital (log scale)


@dataclass(frozen=True)
class Network:
    """Hospitals, as arrays of equal length."""

    size: np.ndarray
    tilt: np.ndarray
    quality: np.ndarray  # log-odds that the hospital adds to every outcome
    coding: np.ndarray  # codes recorded per code that others would record

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def alone(cls) -> "Network":
        """Return one hospital that changes nothing."""
        return cls(np.ones(1), np.zeros(1), np.zeros(1), np.ones(1))

    @classmethod
    def of(cls, hospitals: int, *, seed: int) -> "Network":
        """Return this many hospitals, the same for a seed whatever the number of admissions."""
        rng = np.random.default_rng([seed, hospitals, 2**31])
        size = np.exp(rng.normal(0, SIZE_SPREAD, hospitals))
        tilt = rng.normal(0, TILT_SPREAD, hospitals)
        planted = max(1, round(SHARE * hospitals))
        quality, coding = np.zeros(hospitals), np.exp(rng.normal(0, CODING_SPREAD, hospitals))
        chosen = rng.permutation(hospitals)
        quality[chosen[:planted]], quality[chosen[planted : 2 * planted]] = EFFECT, -EFFECT
        coding[rng.permutation(hospitals)[:planted]] = UPCODING
        return cls(size, tilt, quality, coding)

    def place(self, rng: np.random.Generator, severity: np.ndarray) -> np.ndarray:
        """Return the hospital of each patient, by the severity at the first admission."""
        chance = np.cumsum(self.size * np.exp(np.multiply.outer(severity, self.tilt)), axis=1)
        drawn = rng.random(len(severity)) * chance[:, -1]
        return np.minimum((chance < drawn[:, None]).sum(axis=1), len(self) - 1)

    def names(self) -> np.ndarray:
        width = len(str(len(self)))
        return np.array([f"H{number:0{width}}" for number in range(1, len(self) + 1)], dtype=object)


def treated(rng: np.random.Generator, severity: np.ndarray) -> np.ndarray:
    """Return who gets a treatment that changes nothing: the sicker more often, so that it looks as if it did harm."""
    return rng.random(len(severity)) < 1 / (1 + np.exp(-TREATED - CHOSEN * severity))


def shifted(risk: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    """Return a risk with so much added to its log-odds; nothing added leaves it as it is, to the last bit.

    >>> shifted(np.array([0.1, 0.5]), np.array([0.0, 1.0])).round(3)
    array([0.1  , 0.731])
    """
    odds = np.exp(log_odds)
    return risk * odds / (1 + risk * (odds - 1))
