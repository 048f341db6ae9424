"""Linear models on TF-IDF: naive Bayes fused by a weighted average, logistic regression fused by a second regression.

Both fuse linear logits linearly, so the state is one weight per prefix and one constant.
"""

from dataclasses import dataclass

import numpy as np

from mlci.benchmark.models import Baseline, State, _bags
from mlci.fitting import Split


@dataclass(frozen=True, kw_only=True)
class _Linear(Baseline):
    family: str = "classical"
    seed: int | None = 42

    def score(self, state: State, part: Split) -> np.ndarray:
        return _bags.tfidf(part, state["idf"]) @ state["coefficients"] + float(state["constant"])


@dataclass(frozen=True, kw_only=True)
class NaiveBayes(_Linear):
    """One naive Bayes classifier per outcome; their log-odds are averaged with the outcomes' weights."""

    complement: bool
    alpha: float = 1.0

    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        from sklearn.naive_bayes import ComplementNB, MultinomialNB

        idf = _bags.inverse_frequency(train)
        x, x_valid = _bags.tfidf(train, idf), _bags.tfidf(valid, idf)

        def fit_one(outcome: int):
            rows, y = _bags.known(train, outcome)
            fitted = (ComplementNB if self.complement else MultinomialNB)(alpha=self.alpha).fit(x[rows], y)
            coefficients = np.diff(fitted.feature_log_prob_, axis=0)[0]
            # With two classes, complement naive Bayes ignores the class prior.
            constant = 0.0 if self.complement else np.diff(fitted.class_log_prior_)[0]
            return (coefficients, constant), x_valid @ coefficients + constant

        fits, weights = _bags.stage1(train, valid, fit_one)
        share = weights[list(fits)] / weights.sum()
        return {
            "idf": idf,
            "coefficients": share @ np.array([fit[0] for fit in fits.values()]),
            "constant": np.array(share @ [fit[1] for fit in fits.values()]),
        }


@dataclass(frozen=True, kw_only=True)
class FusedLogits(_Linear):
    """One logistic regression per outcome, then one on their logits, pooled over outcomes with their weights."""

    c: float = 0.2  # inverse strength of the L2 penalty, Stage 1
    c_fusion: float = 1.0

    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        from sklearn.linear_model import LogisticRegression

        idf = _bags.inverse_frequency(train)
        x, x_valid = _bags.tfidf(train, idf), _bags.tfidf(valid, idf)

        def fit_one(outcome: int):
            rows, y = _bags.known(train, outcome)
            fitted = LogisticRegression(C=self.c, max_iter=1000).fit(x[rows], y)
            return (fitted.coef_[0], fitted.intercept_[0]), fitted.decision_function(x_valid)

        fits, weights = _bags.stage1(train, valid, fit_one)
        coefficients = np.column_stack([fit[0] for fit in fits.values()])
        constants = np.array([fit[1] for fit in fits.values()])
        logit = x @ coefficients + constants
        known = {outcome: _bags.known(train, outcome) for outcome in fits}
        fusion = LogisticRegression(C=self.c_fusion, max_iter=1000).fit(
            np.concatenate([logit[rows] for rows, _ in known.values()]),
            np.concatenate([y for _, y in known.values()]),
            sample_weight=np.concatenate([np.full(len(y), weights[outcome]) for outcome, (_, y) in known.items()]),
        )
        return {
            "idf": idf,
            "coefficients": coefficients @ fusion.coef_[0],
            "constant": np.array(constants @ fusion.coef_[0] + fusion.intercept_[0]),
        }


MODELS = (
    NaiveBayes(name="multinomial_nb", title="Multinomial Naive Bayes", complement=False),
    NaiveBayes(name="complement_nb", title="Complement Naive Bayes", complement=True),
    FusedLogits(name="logistic", title="FusedLogits LR"),
)
