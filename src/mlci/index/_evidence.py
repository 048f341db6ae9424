"""Choose the admissions for an index's risk curves, percentiles and cutoff: out-of-sample ones wherever possible.

A network overfits its training admissions, so a risk curve drawn on them is too optimistic. If a recipe has no
cross-fitted scores, its curves therefore use the validation split alone, provided that it is large enough, and their
performance is estimated by two-fold cross-fitting over its patients. (For a small hospital, the recipe `paper`
cross-fits the scores of the training admissions.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mlci.base.errors import InputError
from mlci.fitting._data import MIN_ADMISSIONS, MIN_EVENTS
from mlci.judging.kept import Cutoff, Smooth
from mlci.judging.smooth import smooth
from mlci.judging.theory import certify, cutoff


@dataclass(frozen=True)
class Evidence:
    """Scores and outcomes (n x T, NaN if unknown) of both splits."""

    scores: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]
    names: Sequence[str]
    weights: Sequence[float]
    cross_fitted: bool  # the training scores
    halves: np.ndarray  # True for the validation admissions of one half of the patients
    mass: Mapping[str, np.ndarray | None] = field(default_factory=dict)  # survey weights, if any

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that curves, percentiles and cutoff rest on."""
        valid_only = not self.cross_fitted and len(self.scores["valid"]) >= MIN_ADMISSIONS
        return ("valid",) if valid_only else ("train", "valid")

    @property
    def words(self) -> str:
        """The name of those admissions."""
        if self.splits == ("valid",):
            return "validation admissions"
        return "training and validation admissions" + ("" if self.cross_fitted else ", which it was learned from")

    def rows(self, *splits: str) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and outcomes of some splits."""
        return tuple(np.concatenate([part[name] for name in splits]) for part in (self.scores, self.labels))  # pyright: ignore

    def weight(self, *splits: str) -> np.ndarray | None:
        """Return the survey weights of the admissions of some splits; None if all count equally."""
        found = [part for name in splits if (part := self.mass.get(name)) is not None]
        return np.concatenate(found) if found else None

    def enough(self, name: str) -> bool:
        """Return whether the chosen splits have enough events of an outcome."""
        column = self.rows(*self.splits)[1][:, list(self.names).index(name)]
        return min(np.nansum(column), np.nansum(1 - column)) >= MIN_EVENTS

    def curves(self, *, least: int) -> dict[str, Smooth]:
        """Return the risk curve of each outcome, from the chosen splits; from both splits if the outcome is rare."""
        found = {}
        for place, name in enumerate(self.names):
            chosen = self.splits if self.enough(name) else ("train", "valid")
            score, labels = self.rows(*chosen)
            found[name] = smooth(score, labels[:, place], least=least, weight=self.weight(*chosen))
        return found

    def in_sample(self) -> list[str]:
        """Return the outcomes whose curve rests on admissions that the weights were learned from."""
        if self.cross_fitted:
            return []
        return [name for name in self.names if self.splits != ("valid",) or not self.enough(name)]

    def held_out_risk(self, column: np.ndarray, place: int) -> np.ndarray | None:
        """Return an outcome's out-of-sample risk of each validation admission; None if it cannot be estimated."""
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
        """Return the cutoff of high severity, with its certificate on admissions that did not choose it."""
        try:
            chosen = self._cutoff(*self.splits)
        except InputError:  # too few events in the validation split alone
            chosen = self._cutoff("train", "valid")
        return replace(chosen, held_out=self._held_out())

    def took_part(self, chosen: Cutoff) -> tuple[list[str], np.ndarray]:
        """Return the outcomes that a cutoff was chosen by, and their values on the admissions it was chosen on."""
        splits = self.splits if chosen.n == len(self.rows(*self.splits)[0]) else ("train", "valid")
        names = [name for name in self.names if name not in chosen.left_out]
        return names, self.rows(*splits)[1][:, [self.names.index(name) for name in names]]

    def _cutoff(self, *splits: str) -> Cutoff:
        return cutoff(*self.rows(*splits), self.names, weights=self.weights, mass=self.weight(*splits))

    def _held_out(self) -> float | None:
        """Return the certificate of a cutoff chosen on one part and evaluated on another; None if there are too few."""
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
    """Return True for every second patient in the order of identifiers, or for every second admission."""
    if subjects is None:
        return np.arange(admissions) % 2 == 0
    return np.unique(subjects, return_inverse=True)[1] % 2 == 0
