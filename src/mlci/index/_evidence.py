"""The admissions on which an index's risk curves, percentiles and cutoff rest: such that had no part in its weights.

A network knows the admissions it was trained on too well: a curve drawn on them promises more than others will get. So
a recipe that gives no cross-fitted scores of its own has its curves drawn on the validation split alone, where that is
large enough, and what is said of them is cross-fitted in halves of its patients. (The recipe `paper` scores the
training admissions of a small hospital crosswise.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mlci.base.errors import InputError
from mlci.fitting._data import ENOUGH, EVENTS
from mlci.judging.kept import Cutoff, Smooth
from mlci.judging.smooth import smooth
from mlci.judging.theory import certify, cutoff


@dataclass(frozen=True)
class Evidence:
    """Scores and outcomes (n x T, NaN where not known) of two splits; `honest`: those of train were cross-fitted."""

    scores: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]
    names: Sequence[str]
    weights: Sequence[float]
    honest: bool
    halves: np.ndarray  # True for the validation admissions of one half of the patients
    mass: Mapping[str, np.ndarray | None] = field(default_factory=dict)  # how much admissions count, where unequally

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that curves, percentiles and cutoff rest on."""
        alone = not self.honest and len(self.scores["valid"]) >= ENOUGH
        return ("valid",) if alone else ("train", "valid")

    @property
    def words(self) -> str:
        """Which admissions these are."""
        if self.splits == ("valid",):
            return "validation admissions"
        return "training and validation admissions" + ("" if self.honest else ", which it was learned from")

    def rows(self, *splits: str) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and outcomes of some splits."""
        return tuple(np.concatenate([part[name] for name in splits]) for part in (self.scores, self.labels))  # pyright: ignore

    def weight(self, *splits: str) -> np.ndarray | None:
        """Return how much the admissions of some splits count; None: each once."""
        found = [part for name in splits if (part := self.mass.get(name)) is not None]
        return np.concatenate(found) if found else None

    def enough(self, name: str) -> bool:
        """Return whether the admissions chosen tell enough of an outcome."""
        column = self.rows(*self.splits)[1][:, list(self.names).index(name)]
        return min(np.nansum(column), np.nansum(1 - column)) >= EVENTS

    def curves(self, *, least: int) -> dict[str, Smooth]:
        """Return the risk of each outcome along the score, by the admissions chosen; of a rare one, by all of them."""
        found = {}
        for place, name in enumerate(self.names):
            chosen = self.splits if self.enough(name) else ("train", "valid")
            score, labels = self.rows(*chosen)
            found[name] = smooth(score, labels[:, place], least=least, weight=self.weight(*chosen))
        return found

    def in_sample(self) -> list[str]:
        """Return outcomes whose curve rests on admissions that the weights were learned from."""
        if self.honest:
            return []
        return [name for name in self.names if self.splits != ("valid",) or not self.enough(name)]

    def judged(self, column: np.ndarray, place: int) -> np.ndarray | None:
        """Return an outcome's risk of each validation admission, by a curve that has not seen it; None if unknown."""
        train, valid = self.scores["train"], self.scores["valid"]
        if self.splits != ("valid",) or not self.enough(self.names[place]):
            known = self.labels["train"][:, place]
            return smooth(train, known, weight=self.weight("train"))(valid) if (~np.isnan(known)).any() else None
        risk = np.empty(len(valid))
        for half in (self.halves, ~self.halves):
            if np.isnan(column[half]).all():
                return None
            risk[~half] = smooth(valid[half], column[half])(valid[~half])
        return risk

    def cutoff(self) -> Cutoff:
        """Return the cut of high severity, with its certificate on admissions that did not choose it."""
        try:
            chosen = self._cutoff(*self.splits)
        except InputError:  # too little in the validation split alone
            chosen = self._cutoff("train", "valid")
        return replace(chosen, held_out=self._held_out())

    def took_part(self, chosen: Cutoff) -> tuple[list[str], np.ndarray]:
        """Return the outcomes by which a cutoff was chosen, by name, and their values where it was chosen."""
        splits = self.splits if chosen.n == len(self.rows(*self.splits)[0]) else ("train", "valid")
        names = [name for name in self.names if name not in chosen.left_out]
        return names, self.rows(*splits)[1][:, [self.names.index(name) for name in names]]

    def _cutoff(self, *splits: str) -> Cutoff:
        return cutoff(*self.rows(*splits), self.names, weights=self.weights, mass=self.weight(*splits))

    def _held_out(self) -> float | None:
        """Return the certificate of cuts that one part of the admissions chose and another judges; None if too few."""
        score, labels = self.scores["valid"], self.labels["valid"]
        options = {"names": self.names, "weights": self.weights}
        found = []
        try:
            if self.splits != ("valid",):
                cut = self._cutoff("train").score
                found.append(certify(score, labels, threshold=cut, mass=self.weight("valid"), **options))
            else:
                for half in (self.halves, ~self.halves):
                    cut = cutoff(score[half], labels[half], **options).score
                    found.append(certify(score[~half], labels[~half], threshold=cut, **options))
        except InputError:
            return None
        return float(np.mean(found)) if np.isfinite(found).all() else None


def halved(subjects: np.ndarray | None, admissions: int) -> np.ndarray:
    """Return True for every second patient in the order of their identifiers, or every second admission."""
    if subjects is None:
        return np.arange(admissions) % 2 == 0
    return np.unique(subjects, return_inverse=True)[1] % 2 == 0
