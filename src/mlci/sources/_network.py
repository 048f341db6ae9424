"""Simulate several hospitals whose differences are known.

Hospitals differ in size, in their patients (sicker patients prefer some hospitals), in the number of codes that they
record, and in what they add to the log-odds of every outcome. A tenth of them raises the log-odds, a tenth lowers them,
and the others do neither. Another tenth, drawn independently, records far more codes than the rest. So a comparison of
hospitals can be checked: how many of the true outliers it finds, and how many others it blames. The hospitals also give
a treatment that has no effect.
"""

from dataclasses import dataclass

import numpy as np

SHARE = 0.1  # share of hospitals that are better, that are worse, and that record too many codes
EFFECT = np.log(1.6)  # added to the log-odds of every outcome in worse hospitals, and subtracted in better ones
UPCODING = 1.4  # codes recorded per code of an average hospital, where too many are recorded
CODING_SPREAD = 0.06  # SD of the log of this ratio among the other hospitals
SIZE_SPREAD = 0.5  # SD of the log of the number of admissions
TREATED, CHOSEN = -1.0, 0.7  # log-odds of a treatment without effect, and their slope on severity
TILT_SPREAD = 0.3  # SD of the log of how much likelier a hospital becomes per SD of the patient's severity


@dataclass(frozen=True)
class Network:
    """Hospitals, as arrays of equal length."""

    size: np.ndarray
    tilt: np.ndarray  # how strongly the sicker prefer the hospital
    quality: np.ndarray  # what the hospital adds to the log-odds of every outcome
    coding: np.ndarray  # codes recorded per code of an average hospital

    def __len__(self) -> int:
        return len(self.size)

    @classmethod
    def alone(cls) -> "Network":
        """Return a single hospital without any effect."""
        return cls(np.ones(1), np.zeros(1), np.zeros(1), np.ones(1))

    @classmethod
    def of(cls, hospitals: int, *, seed: int) -> "Network":
        """Draw hospitals; they depend on the seed and their number, not on the number of admissions."""
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
        """Draw the hospital of each patient, given the severity at the first admission."""
        chance = np.cumsum(self.size * np.exp(np.multiply.outer(severity, self.tilt)), axis=1)
        drawn = rng.random(len(severity)) * chance[:, -1]
        return np.minimum((chance < drawn[:, None]).sum(axis=1), len(self) - 1)

    def names(self) -> np.ndarray:
        width = len(str(len(self)))
        return np.array([f"H{number:0{width}}" for number in range(1, len(self) + 1)], dtype=object)


def treated(rng: np.random.Generator, severity: np.ndarray) -> np.ndarray:
    """Draw who gets a treatment without effect: the sicker more often, so that it seems to do harm."""
    return rng.random(len(severity)) < 1 / (1 + np.exp(-TREATED - CHOSEN * severity))


def shifted(risk: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    """Add `log_odds` to the log-odds of a risk; adding 0 leaves the risk bit-for-bit as it is.

    >>> shifted(np.array([0.1, 0.5]), np.array([0.0, 1.0])).round(3)
    array([0.1  , 0.731])
    """
    odds = np.exp(log_odds)
    return risk * odds / (1 + risk * (odds - 1))
