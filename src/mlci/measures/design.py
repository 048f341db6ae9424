"""How admissions were drawn: which belong together (a patient's, a hospital's), from which stratum, with which weight.

Functions that judge take a `Design` wherever they take a plain column of patients (`as_design` reads either).
Variances and resamples are those of clusters drawn with replacement within strata, each stratum as often as it has
clusters, less one, and made up for by a factor (Rao and Wu 1988): two clusters in a stratum are then enough.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.base.errors import InputError


@dataclass(frozen=True, eq=False)
class Design:
    """`cluster` and `stratum` of each admission as a number from 0, and its `weight` (mean 1); None: all alike."""

    cluster: np.ndarray
    weight: np.ndarray | None = None
    stratum: np.ndarray | None = None

    @classmethod
    def of(cls, clusters: Any, *, weights: Any = None, strata: Any = None) -> "Design":
        """Check columns, and number what they name.

        Args:
            clusters: what each admission belongs to; one whose cluster is not known stands for itself.
            weights: a number from 0 for each admission, not all of them 0.
            strata: what each cluster was drawn from: two clusters of each at least.

        Returns:
            The design.

        >>> design = Design.of(["a", "a", "b"], weights=[2, 1, 0])
        >>> design.cluster.tolist(), design.weight.tolist()
        ([0, 0, 1], [2.0, 1.0, 0.0])
        """
        cluster, weight, stratum = numbered(clusters), None, None
        for name, column in (("weights", weights), ("strata", strata)):
            if column is not None and len(column) != len(cluster):
                raise InputError(f"{name}: has {len(column)} admissions and clusters has {len(cluster)}.")
        if weights is not None:
            weight = np.asarray(weights, dtype=np.float64)
            if not (np.isfinite(weight).all() and (weight >= 0).all() and weight.any()):
                raise InputError("weights: some are empty or negative, or all are 0; a weight is a number from 0.")
            weight = weight / weight.mean()
        if strata is not None:
            stratum = numbered(strata)
            _check(cluster, stratum)
        return cls(cluster, weight, stratum)

    def __len__(self) -> int:
        return len(self.cluster)

    def take(self, rows: np.ndarray) -> "Design":
        """Return the design of the admissions `rows`; strata that are left with one cluster are taken together.

        >>> Design.of(["a", "a", "b"]).take(np.array([0, 2])).cluster.tolist()
        [0, 1]
        """
        weight = None if self.weight is None else self.weight[rows]
        number = np.cumsum(np.bincount(self.cluster[rows]) > 0) - 1
        cluster = number[self.cluster[rows]]
        if self.stratum is None:
            return Design(cluster, weight)
        stratum, own = np.unique(self.stratum[rows], return_inverse=True)[1], np.empty(cluster.max(initial=-1) + 1, int)
        own[cluster] = stratum
        clusters = np.bincount(own)
        alone = clusters[own] == 1
        own[alone] = int(np.argmax(clusters)) if alone.sum() == 1 else len(clusters)
        return Design(cluster, weight, np.unique(own, return_inverse=True)[1][cluster])

    @property
    def clusters(self) -> int:
        return int(self.cluster.max()) + 1

    @property
    def degrees(self) -> int:
        """Of freedom: clusters less strata, at least 1."""
        return max(self.clusters - (1 if self.stratum is None else int(self.stratum.max()) + 1), 1)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return how often each cluster is in one resample, drawn by `rng`.

        >>> int(Design.of(["a", "a", "b", "c"]).draw(np.random.default_rng(0)).sum())
        3
        """
        number = self.clusters
        if self.stratum is None:
            return np.bincount(rng.integers(number, size=number), minlength=number)
        drawn = np.zeros(number)
        for members in self._members():
            size = len(members) - 1
            if size:
                drawn[members] = np.bincount(rng.integers(size + 1, size=size), minlength=size + 1) * (size + 1) / size
            else:
                drawn[members] = 1
        return drawn

    def variance(self, moved: np.ndarray) -> float:
        """Return the variance of a figure, from how far each admission has `moved` it: the sum of squares by cluster.

        >>> Design.of(["a", "a", "b"]).variance(np.array([1.0, 1.0, -2.0]))
        8.0
        """
        sums = np.bincount(self.cluster, moved, minlength=self.clusters)
        if self.stratum is None:
            return float(sums @ sums)
        parts = (sums[members] for members in self._members() if len(members) > 1)
        return float(sum(((part - part.mean()) ** 2).sum() * len(part) / (len(part) - 1) for part in parts))

    def _members(self) -> list[np.ndarray]:
        """Return the clusters of each stratum."""
        assert self.stratum is not None
        own = np.empty(self.clusters, int)
        own[self.cluster] = self.stratum
        order = np.argsort(own, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(own[order])) + 1)


def as_design(patients: Any) -> Design:
    """Return a design as it is; a column of patients becomes one without weights and strata.

    >>> as_design(["b", "a", "b"]).cluster.tolist()
    [1, 0, 1]
    """
    return patients if isinstance(patients, Design) else Design(numbered(patients))


def numbered(patients: Any) -> np.ndarray:
    """Return each admission's patient as a number; where `patients` names none, the admission stands for itself.

    >>> numbered(["b", None, "a", "b"])
    array([1, 2, 0, 1])
    """
    import pandas as pd  # knows the nulls of every library

    number, distinct = pd.factorize(np.asarray(patients), sort=True)
    unknown = number < 0
    number[unknown] = len(distinct) + np.arange(unknown.sum())
    return number


def _check(cluster: np.ndarray, stratum: np.ndarray) -> None:
    pairs = np.unique(np.column_stack([cluster, stratum]), axis=0)
    if len(pairs) > cluster.max() + 1:
        raise InputError("strata: a cluster lies in two of them; each belongs to one.")
    if (np.bincount(pairs[:, 1]) < 2).any():
        raise InputError("strata: one of them has a single cluster, which tells no variance; join it with another.")
