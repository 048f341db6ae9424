"""k nearest neighbours by cosine distance of TF-IDF: a class-balanced reference set per outcome, logits averaged.

The state of a fitted kNN is its reference admissions: unlike every other model here, its file holds training data.
"""

from dataclasses import dataclass

import numpy as np

from mlci.benchmark.models import Baseline, State, _bags
from mlci.fitting import Split


@dataclass(frozen=True, kw_only=True)
class Neighbours(Baseline):
    family: str = "classical"
    seed: int | None = 42
    k: int = 50
    reference: int = 20_000  # reference admissions per outcome, up to half of them positive
    memory_mb: int = 128  # for one block of distances

    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        from scipy import sparse

        random = np.random.default_rng(seed)
        idf = _bags.inverse_frequency(train)
        x, x_valid = _bags.tfidf(train, idf), _bags.tfidf(valid, idf)

        def fit_one(outcome: int):
            rows, y = _bags.known(train, outcome)
            positive, negative = random.permutation(rows[y == 1]), random.permutation(rows[y == 0])
            half = max(self.reference // 2, self.reference - len(negative))
            positive = positive[:half]
            kept = np.sort(np.concatenate([positive, negative[: self.reference - len(positive)]]))
            happened = np.isin(kept, positive)
            return (kept, happened), self._logits(x[kept], happened, x_valid)

        fits, weights = _bags.stage1(train, valid, fit_one)
        references = sparse.csr_matrix(sparse.vstack([x[kept] for kept, _ in fits.values()]))
        return {
            "idf": idf,
            "weights": np.array([weights[outcome] for outcome in fits]) / weights.sum(),
            "sizes": np.array([len(kept) for kept, _ in fits.values()]),
            "happened": np.concatenate([happened for _, happened in fits.values()]),
            "values": references.data,
            "columns": references.indices,
            "offsets": references.indptr,
        }

    def score(self, state: State, part: Split) -> np.ndarray:
        from scipy import sparse

        x = _bags.tfidf(part, state["idf"])
        shape = (len(state["offsets"]) - 1, len(state["idf"]))
        references = sparse.csr_array((state["values"], state["columns"], state["offsets"]), shape=shape)
        score, start = np.zeros(len(part)), 0
        for weight, size in zip(state["weights"], state["sizes"]):
            rows = slice(start, start + size)
            score += weight * self._logits(references[rows], state["happened"][rows], x)
            start += size
        return score

    def _logits(self, reference, happened: np.ndarray, x) -> np.ndarray:
        """Return the log-odds of the distance-weighted share of positives among the neighbours, in blocks."""
        from sklearn import config_context
        from sklearn.neighbors import KNeighborsClassifier

        nearest = KNeighborsClassifier(
            min(self.k, len(happened)), weights="distance", metric="cosine", algorithm="brute"
        ).fit(reference, happened)
        with config_context(working_memory=self.memory_mb):
            share = np.clip(nearest.predict_proba(x)[:, 1], 1e-6, 1 - 1e-6)
        return np.log(share / (1 - share))


MODELS = (Neighbours(name="knn", title="kNN"),)
