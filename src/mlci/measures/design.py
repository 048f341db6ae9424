"""The sampling design of admissions: clusters (patients or hospitals), strata and weights.

Functions take a `Design` or a plain column of patients (`as_design` accepts both). Variances and resamples are those of
clusters drawn with replacement within strata. Of a stratum with m clusters, m − 1 are drawn and their counts multiplied
by m / (m − 1) (Rao and Wu 1988), so two clusters per stratum suffice.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.base.errors import InputError


@dataclass(frozen=True, eq=False)
class Design:
    """`cluster` and `stratum` of each admission as a number from 0, and its `weight` (mean 1); None: all the same."""

    cluster: np.ndarray
    weight: np.ndarray | None = None
    stratum: np.ndarray | None = None

    @classmethod
    def of(cls, clusters: Any, *, weights: Any = None, strata: Any = None) -> "Design":
        """Check columns, and number the clusters and strata that they name.

        Args:
            clusters: the cluster of each admission; an admission without one is a cluster by itself.
            weights: a number from 0 for each admission, not all of them 0.
            strata: the stratum of each admission's cluster; each stratum needs at least two clusters.

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
        """Return the design of the admissions `rows`; strata that are left with one cluster are merged.

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
    def is_empty(self) -> bool:
        """Whether no admission counts: there is none, or all weights are 0, as they may be in a subgroup."""
        return not len(self) or (self.weight is not None and not self.weight.any())

    @property
    def clusters(self) -> int:
        return int(self.cluster.max()) + 1

    @property
    def degrees(self) -> int:
        """Degrees of freedom: clusters less strata, at least 1."""
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
        """Return the variance of a figure from each admission's influence (`moved`): the sum of squares by cluster.

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
    """Return a design unchanged; a column of patients becomes a design without weights and strata.

    >>> as_design(["b", "a", "b"]).cluster.tolist()
    [1, 0, 1]
    """
    return patients if isinstance(patients, Design) else Design(numbered(patients))


def numbered(patients: Any) -> np.ndarray:
    """Return each admission's patient as a number; where `patients` has none, the admission gets its own number.

    >>> numbered(["b", None, "a", "b"])
    array([1, 2, 0, 1])
    """
    import pandas as pd  # recognises the missing values of every library

    number, distinct = pd.factorize(np.asarray(patients), sort=True)
    unknown = number < 0
    number[unknown] = len(distinct) + np.arange(unknown.sum())
    return number


def _check(cluster: np.ndarray, stratum: np.ndarray) -> None:
    pairs = np.unique(np.column_stack([cluster, stratum]), axis=0)
    if len(pairs) > cluster.max() + 1:
        raise InputError("strata: a cluster is in two of them; each cluster must be in one stratum.")
    if (np.bincount(pairs[:, 1]) < 2).any():
        raise InputError("strata: one of them has a single cluster, so it has no variance; merge it with another.")
