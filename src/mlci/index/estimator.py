"""The index: fit it on a cohort, score admissions, read risks, see what each code contributed, keep it as a file.

In come a `Cohort`, or codes (lists of lists, pandas, polars or Arrow frames) with outcomes; out come scores and frames.
Torch is imported to fit `deep` and `paper`, never to fit `table` nor to score.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import ClassifierTags

from mlci.base.errors import InputError
from mlci.base.shown import html_table
from mlci.codes import certainty
from mlci.codes.admissions import Admissions, as_admissions
from mlci.cohort import Cohort
from mlci.config import DeepConfig, PaperConfig, TableConfig, config_from
from mlci.fitting._people import ROWS, UNKNOWN
from mlci.index._explain import Explanation, by_outcome, effects_of
from mlci.index._looking import doubt
from mlci.index._people import of_data, of_person, unsaid
from mlci.index._reading import Reading
from mlci.index.importance import importance
from mlci.index.learning import Asked, learn
from mlci.index.model import Model, load_model
from mlci.index.modelcard import described
from mlci.index.ready import model_path
from mlci.index.shift import Agreement, ShiftWarning
from mlci.index.tally import Tally


class MLCI(TransformerMixin, BaseEstimator):
    """A machine-learned comorbidity index, with the manners of scikit-learn.

    `fit(X, y)` takes codes and outcomes, `transform` gives the score as one column for a `Pipeline`,
    `decision_function` and `predict_proba` serve scorers (`cross_val_score(index, codes, died, scoring="roc_auc")`). X
    is a frame or lists of codes, never a matrix of numbers, so that of `check_estimator` the checks of parameters, tags
    and cloning apply alone.

    `recipe` is `table`, `deep` or `paper` (None: that of the config, else `table`); `config` is the `TableConfig`,
    `DeepConfig` or `PaperConfig` that belongs to it, a dictionary of its sections or a TOML file (None: its defaults).
    `outcomes` names those to learn from (None: all). `anchor` names the outcome that orients the score and, in the
    paper's recipe, judges Stage 1 (None: the config's); a table needs none, as its score rises with the risk of every
    outcome. `few_events` says whether to learn from outcomes that fewer than five training admissions have, or lack.
    """

    model_: Model

    def __init__(
        self,
        *,
        recipe: str | None = None,
        config: PaperConfig | DeepConfig | TableConfig | Mapping[str, Any] | str | Path | None = None,
        outcomes: Sequence[str] | None = None,
        anchor: str | None = None,
        seed: int = 11,
        device: str = "cpu",
        few_events: bool = True,
    ) -> None:
        self.recipe = recipe
        self.config = config
        self.outcomes = outcomes
        self.anchor = anchor
        self.seed = seed
        self.device = device
        self.few_events = few_events

    def fit(
        self,
        data: Any,
        outcomes: Any = None,
        *,
        split: Sequence[str] | None = None,
        subjects: Sequence | None = None,
        icd_version: int | None = None,
        checkpoint: str | Path | None = None,
        memory_map: str | Path | None = None,
        on_event: Callable[[Any], None] | None = None,
        weights: str | Sequence[float] | None = None,
        cluster: str | Sequence | None = None,
        numeric: Mapping[str, str] | Sequence[str] = (),
    ) -> Self:
        """Learn the index from admissions with outcomes.

        Args:
            data: a `Cohort`, the name of its file, or codes: lists of lists, or a pandas, polars or Arrow frame.
            outcomes: beside codes, a frame or a dict of columns of 0, 1 and null; a cohort has its own.
            split: `train` or `valid` for each admission; by default one subject in eight is kept for validation.
            subjects: whose admission each one is; by default each row is a subject of its own.
            icd_version: 9 or 10 for the codes whose version the data do not say.
            checkpoint: a file; an interrupted fit goes on from it where it stopped.
            memory_map: a folder; the tokens of a cohort file are written there once and never held all in memory.
            on_event: called with what happens while the fit runs.
            weights: how many admissions of the population each stands for: a column of the cohort, or beside codes a
                number each. Percentiles, risks and cutoff are then the population's. `table` alone takes them.
            cluster: what belongs together beyond a patient, for folds: a column of the cohort, or a value each.
            numeric: columns of the cohort with numbers to learn from as well (days, cost), or a kind for each:
                `poisson` (from 0, log link) or `gaussian`. `table` alone takes them; their expected values are
                columns `expected_<name>` of `table` and of `mlci score`.

        Returns:
            The fitted index itself.

        >>> index = MLCI().fit([["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
        >>> heart_failure, diabetes = index.score([["I50.9"], ["E11.9"]], icd_version=10)
        >>> bool(heart_failure > diabetes)
        True
        """
        asked = Asked(**self.get_params(deep=False))
        handed = {"split": split, "subjects": subjects, "icd_version": icd_version, "on_event": on_event}
        handed |= {"checkpoint": checkpoint, "memory_map": memory_map}
        handed |= {"weights": weights, "cluster": cluster, "numeric": numeric}
        self.model_ = learn(asked, data, outcomes, **handed)
        return self

    def transform(self, data: Any) -> np.ndarray:
        """Score admissions as one column, for a `Pipeline`.

        Args:
            data: a `Cohort`, lists of codes, or a frame.

        Returns:
            A float64 array of one column, one row per admission.

        >>> load("us2010").transform(pd.DataFrame({"codes": [["I50.9"], []], "icd_version": [10, 10]})).shape
        (2, 1)
        """
        return self.score(data)[:, None]

    def decision_function(self, data: Any) -> np.ndarray:
        """Score admissions under the name by which scikit-learn asks for it.

        Args:
            data: a `Cohort`, lists of codes, or a frame.

        Returns:
            One float64 per admission, as `score` gives it.

        >>> load("us2010").decision_function(pd.DataFrame({"codes": [["I50.9"], []], "icd_version": [10, 10]})).shape
        (2,)
        """
        return self.score(data)

    def predict_proba(self, data: Any) -> Any:
        """Give the risk of each outcome as scikit-learn has it: a column for its absence and a column for its presence.

        Args:
            data: a `Cohort`, lists of codes, or a frame.

        Returns:
            An array of two columns, one row per admission; of several outcomes, a list of such arrays.

        >>> risks = load("us2010").predict_proba(pd.DataFrame({"codes": [["I50.9"]], "icd_version": [10]}))
        >>> len(risks), risks[0].shape, float(risks[0].sum())
        (4, (1, 2), 1.0)
        """
        risks = [np.column_stack([1 - risk, risk]) for risk in self.risk(data).to_numpy().T]
        return risks[0] if len(risks) == 1 else risks

    @property
    def classes_(self) -> np.ndarray:
        """List what an outcome can be: 0 (it did not happen) and 1.

        >>> MLCI().classes_
        array([0, 1])
        """
        return np.array([0, 1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(multi_class=False)
        tags.target_tags.required = False
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return super().__repr__(N_CHAR_MAX) if not hasattr(self, "model_") else "\n".join(map(": ".join, self._facts()))

    def _repr_html_(self) -> str:
        if not hasattr(self, "model_"):
            return f"<pre>{escape(super().__repr__())}</pre>"
        return html_table(self._facts())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return what a notebook shows, in place of scikit-learn's box of parameters."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _facts(self) -> list[tuple[str, str]]:
        """Return what a fitted index is, in a few lines."""
        card, cut = self._model.card, self._model.cutoff
        many = card.get("admissions", {})
        learned = ", ".join(f"{number:,} {part}" for part, number in many.items())
        held_out = card.get("validation", {}).items()
        reached = ", ".join(f"{name} {figures['auroc']:.3f}" for name, figures in held_out)
        return [
            ("MLCI", f"recipe {card['recipe']}, seed {card['seed']}, {len(self._model.vocabulary.tokens):,} tokens"),
            ("data", f"{card.get('source', '')} ({learned})"),
            (
                "outcomes",
                "; ".join(f"{name} ({rule})" if rule else name for name, rule in self._model.outcomes.items()),
            ),
            *([("AUROC on held-out admissions", reached)] if reached else []),
            ("high severity", f"score of {cut.score:.3f} or more, {cut.share:.1%} of admissions"),
        ]

    def score(self, data: Any, *, icd_version: int | None = None) -> np.ndarray:
        """Score admissions; larger means more severe.

        Args:
            data: a `Cohort`, lists of codes, or a frame.
            icd_version: 9 or 10 for the codes whose version the data do not say.

        Returns:
            One float64 per admission, in order. Where a hundred admissions or more are much unlike those of training,
            a `ShiftWarning` says how; `risk` and `table` say it too.

        >>> mild, severe = load("us2010").score([["I10"], ["I50.9", "N17.9"]], icd_version=10)
        >>> bool(severe > mild)
        True
        """
        admissions = self._model.taken(data, icd_version=icd_version)
        reading = self._model.read(admissions)
        self._warn(data, admissions, reading.score, self._model.risks(reading))  # by codes alone
        return reading.score

    def risk(self, data: Any, *, icd_version: int | None = None) -> pd.DataFrame:
        """Give the risk of each outcome.

        Args:
            data: a `Cohort`, lists of codes, or a frame.
            icd_version: 9 or 10 for the codes whose version the data do not say.

        Returns:
            A frame with a column per outcome, one row per admission, in order.

        >>> load("us2010").risk([["I50.9", "N17.9"]], icd_version=10).columns.tolist()
        ['mortality', 'non_home_discharge', 'long_stay', 'critical_care']
        """
        admissions = self._model.taken(data, icd_version=icd_version)
        people = of_data(data, self._model.people, len(admissions))
        reading = self._model.read(admissions, people)
        risks = self._model.risks(reading)
        self._warn(data, admissions, reading.score, risks, missing=unsaid(self._model.people, people))
        return pd.DataFrame(risks)

    def table(self, data: Any, *, icd_version: int | None = None, strict: bool = False) -> pd.DataFrame:
        """Give all columns of a scores file, as `mlci score` writes them.

        Args:
            data: a `Cohort`, lists of codes, or a frame.
            icd_version: 9 or 10 for the codes whose version the data do not say.
            strict: count no code that is not understood, and give no score to an admission of which fewer than half of
                the codes are understood.

        Returns:
            A frame of admission, score, percentile, risk of each outcome, high severity and unknown share.

        >>> table = load("us2010").table([["I50.9", "N17.9"]], icd_version=10)
        >>> table[["high_severity", "unknown_share"]].to_dict("records")
        [{'high_severity': False, 'unknown_share': 0.0}]
        """
        admissions = self._model.taken(data, icd_version=icd_version)
        people = of_data(data, self._model.people, len(admissions))
        columns = self._model.columns(admissions, strict=strict, people=people)
        risks = {name: columns[f"risk_{name}"] for name in self._model.outcomes if f"risk_{name}" in columns}
        missing = unsaid(self._model.people, people)
        self._warn(data, admissions, columns["score"], risks, strict=strict, missing=missing)
        return pd.DataFrame({"admission_id": admissions.ids, **columns})

    def explain(
        self,
        codes: Sequence[str] | Admissions,
        *,
        icd_version: int | None = None,
        age: float | None = None,
        sex: str | None = None,
    ) -> Explanation:
        """Say what each code of one admission contributes.

        Args:
            codes: of the admission (or `Admissions`, of one).
            icd_version: 9 or 10.
            age: in years, where the index's risks take it.
            sex: F or M, likewise.

        Returns:
            One `Effect` per recorded code. Where the recipe is `table`, effects are exact shares that add up to the
            score; else each is the score minus the score of the admission without that code. The same holds for each
            outcome's log-odds, where the index has them (`table`, `deep`).

        >>> explanation = load("us2010").explain(["I50.9", "N17.9"], icd_version=10)
        >>> [effect.title for effect in explanation]
        ['Heart failure, unspecified', 'Acute kidney failure, unspecified']
        >>> abs(explanation.base_score + sum(effect.effect for effect in explanation) - explanation.score) < 1e-9
        True
        """
        if isinstance(codes, str):
            raise InputError('explain: a list of codes is needed, as ["I50.9", "N17.9"]; got one text.')
        ready = isinstance(codes, Admissions)
        admissions, model = codes if ready else as_admissions([list(codes)], icd_version=icd_version), self._model
        for sentence in certainty.told(admissions.unsure):
            warnings.warn(sentence, stacklevel=2)
        people = of_person(model.people, age, sex)
        reading, base = model.read(admissions, people), model.nothing
        return Explanation(
            effects_of(model, admissions, reading),
            score=float(reading.score[0]),
            base_score=float(base.score[0]),
            log_odds=by_outcome(model, reading.log_odds, 1)[0],
            base_log_odds=by_outcome(model, base.log_odds, 1)[0],
            additive=model.additive,
            **_risk_parts(model, reading, people),
        )

    def importance(self, data: Any, *, icd_version: int | None = None) -> pd.DataFrame:
        """Say what each code contributes over many admissions.

        Args:
            data: a `Cohort`, lists of codes, or a frame.
            icd_version: 9 or 10 for the codes whose version the data do not say.

        Returns:
            A frame with a row per distinct code, the largest mean absolute effect first: in how many admissions it
            occurs, its mean absolute effect and its mean effect.

        >>> frame = load("us2010").importance([["I50.9", "N17.9"], ["I50.9"]], icd_version=10)
        >>> frame.set_index("code")["admissions"].to_dict()
        {'N179': 1, 'I509': 2}
        """
        return importance(self._model, self._model.taken(data, icd_version=icd_version))

    def save(self, path: str | Path, *, about: Mapping[str, str] | None = None) -> None:
        """Write the model file, which `mlci.load` and `mlci score` read.

        Args:
            path: the file to write; it appears whole or not at all.
            about: what its model card shall say of the `data`, their `dates` and `licence`, where only you know.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     load("us2010").save(f"{folder}/index.safetensors")
        ...     load(f"{folder}/index.safetensors").recipe
        'table'
        """
        described(self._model, about or {}).save(path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def _model(self) -> Model:
        if not hasattr(self, "model_"):
            raise NotFittedError("this MLCI is not fitted; call fit, or mlci.load a model file.")
        return self.model_

    def _warn(
        self,
        data: Any,
        admissions: Admissions,
        score: np.ndarray,
        risks: Mapping[str, np.ndarray],
        *,
        strict: bool = False,
        missing: tuple[str, ...] = (),
    ) -> None:
        """Say what `mlci score` would say of these admissions; outcomes are those of a cohort."""
        model = self._model
        names = [name for name in risks if name in data.outcomes] if isinstance(data, Cohort) else []
        agreements = {name: Agreement.of(risks[name], data.labels(name)[:, 0]) for name in names}
        tally = Tally(model, missing=missing).add(admissions, {"percentile": model.percentile(score)}, agreements)
        misread = [*tally.misread(strict=strict), *(doubt(model, data.look_back) if isinstance(data, Cohort) else [])]
        for kind, doubts in ((UserWarning, misread), (ShiftWarning, tally.unlike())):
            for sentence in doubts:
                warnings.warn(sentence, kind, stacklevel=3)


def load(path: str | Path) -> MLCI:
    """Read a model file, or a ready-made index by its name.

    Args:
        path: a file as `MLCI.save` and `mlci fit` write it, or `us2010`, `us2010-early`.

    Returns:
        The fitted index.

    >>> load("us2010").score([["I50.9", "N17.9"]], icd_version=10).shape
    (1,)
    """
    path = model_path(path)
    model = load_model(path)
    card = model.card
    config = config_from(card["config"], recipe=card["recipe"], where=str(path))
    index = MLCI(recipe=card["recipe"], config=config, outcomes=list(model.outcomes), seed=card["seed"])
    index.model_ = model
    return index


def _risk_parts(model: Model, reading: Reading, people: np.ndarray | None) -> dict[str, Any]:
    """Return what makes the log-odds of each risk of those by codes, for an explanation of one admission."""
    if not model.scorer.risky:
        return {}
    names, found = list(model.outcomes), model.scorer.risk_log_odds(reading)[0].tolist()
    parts, added = model.state["calibration"][: len(found)], {}
    if people is not None and (people != UNKNOWN).any():
        values = model.state["people"]
        parts = values[:2].T
        added = {ROWS[row]: dict(zip(names, values[2 + row].tolist())) for row in people[0].tolist() if row != UNKNOWN}
    return {
        "risk_log_odds": dict(zip(names, found)),
        "calibration": {name: (float(shift), float(slope)) for name, (shift, slope) in zip(names, parts)},
        "people": added,
    }
