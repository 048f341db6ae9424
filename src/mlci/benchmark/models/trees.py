"""Gradient-boosted trees (LightGBM) on TF-IDF: one booster per outcome for the weights, then one pooled booster."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from mlci.base.errors import InputError
from mlci.benchmark.models import Baseline, State, _bags
from mlci.fitting import Split


@dataclass(frozen=True, kw_only=True)
class Trees(Baseline):
    """Boosted trees with early stopping: the round with the lowest validation loss is kept.

    Boosting stops when there was no improvement for `patience` rounds.
    """

    family: str = "classical"
    seed: int | None = 42
    needs: str = "lightgbm"
    rounds: int = 2000
    patience: int = 200
    rate: float = 0.05
    depth: int = 4

    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        import lightgbm

        idf = _bags.inverse_frequency(train)
        x_valid = _matrix(valid, idf)
        options = {
            "objective": "cross_entropy",  # accepts targets between 0 and 1, so outcomes pool without duplicate rows
            "learning_rate": self.rate,
            "max_depth": self.depth,
            "num_leaves": 2**self.depth,
            "lambda_l2": 1.0,
            "min_sum_hessian_in_leaf": 1.0,
            "min_data_in_leaf": 4,  # implied by the line above, as one admission adds at most 1/4; drops rare codes
            "deterministic": True,
            "force_row_wise": True,
            "seed": seed,
            "verbosity": -1,
        }
        binned = lightgbm.Dataset(_matrix(train, idf), params=options)
        binned_valid = lightgbm.Dataset(x_valid, reference=binned, params=options)

        def boost(weights: np.ndarray) -> "lightgbm.Booster":
            for dataset, part in ((binned, train), (binned_valid, valid)):
                share, weight = _bags.pooled(part, weights)
                if not weight.any():
                    raise InputError("an outcome is not known in the validation split, where trees stop early.")
                dataset.set_label(share)
                dataset.set_weight(weight)
            stop = lightgbm.early_stopping(self.patience, verbose=False)
            return lightgbm.train(options, binned, self.rounds, valid_sets=[binned_valid], callbacks=[stop])

        def fit_one(outcome: int):
            booster = boost(np.eye(len(train.names))[outcome])
            return None, np.asarray(booster.predict(x_valid, raw_score=True))

        booster = boost(_bags.stage1(train, valid, fit_one)[1])
        text = booster.model_to_string(num_iteration=booster.best_iteration)
        return {"idf": idf, "trees": np.frombuffer(text.encode(), dtype=np.uint8)}

    def score(self, state: State, part: Split) -> np.ndarray:
        import lightgbm

        booster = lightgbm.Booster(model_str=state["trees"].tobytes().decode())
        return np.asarray(booster.predict(_matrix(part, state["idf"]), raw_score=True))


def _matrix(part: Split, idf: np.ndarray) -> sparse.csr_matrix:
    """Return TF-IDF as SciPy's older `csr_matrix`, which LightGBM requires."""
    return sparse.csr_matrix(_bags.tfidf(part, idf))


MODELS = (Trees(name="trees", title="Gradient Boosted Trees (Score/Logit)"),)
