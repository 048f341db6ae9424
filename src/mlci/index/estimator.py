"""The estimator: fit an index on a cohort, score admissions, read risks, explain scores and save the model file.

Input is a `Cohort`, or codes (lists of lists; pandas, polars or Arrow frames) with outcomes. Output is arrays and data
frames. Torch is imported to fit `deep` and `paper`, but not to fit `table` or to score.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from mlci.index._look_back import look_back_warnings
from mlci.index._people import absent, of_data, of_person
from mlci.index._reading import Reading
from mlci.index.importance import importance
from mlci.index.learning import FitSettings, learn
from mlci.index.model import Model, load_model
from mlci.index.modelcard import described
from mlci.index.ready import model_path
from mlci.index.shift import Agreement, ShiftWarning
from mlci.index.tally import Tally


class MLCI(TransformerMixin, BaseEstimator):
    """A machine-learned comorbidity index that follows the conventions of scikit-learn.

    `fit(X, y)` takes codes and outcomes. `transform` returns the score as one column for a `Pipeline`.
    `decision_function` and `predict_proba` serve scorers (`cross_val_score(index, codes, died, scoring="roc_auc")`).
    X is a frame or lists of codes, never a matrix of numbers. Therefore only the checks of `check_estimator` for
    parameters, tags and cloning apply.

    Args:
        recipe: `table`, `deep` or `paper`. None takes the recipe of the config, or `table` without a config.
        config: the `TableConfig`, `DeepConfig` or `PaperConfig` of the recipe, a dictionary of its sections, or a TOML
            file. None takes the defaults.
        outcomes: the outcomes to learn from. None takes all.
        anchor: the outcome that orients the score and, in the recipe `paper`, by which Stage 1 is evaluated. None takes
            the config's. The recipe `table` needs none: its score rises with the risk of every outcome.
        seed: of all random numbers of the fit.
        device: `cpu`, or a torch device such as `cuda` for the recipes `deep` and `paper`.
        few_events: whether to learn from outcomes with fewer than five training admissions that have them, or fewer
            than five that lack them.
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
            data: a `Cohort`, the name of a cohort file, or codes: lists of lists, or a pandas, polars or Arrow frame.
            outcomes: needed with codes: a frame or a dict of columns of 0, 1 and null. A cohort has its own.
            split: with codes, `train` or `valid` for each admission. By default one subject in eight is kept for
                validation.
            subjects: with codes, the patient of each admission. By default each row is a patient of its own.
            icd_version: 9 or 10, for codes whose version the data do not state.
            checkpoint: a file from which an interrupted fit resumes.
            memory_map: a folder to which the tokens of a cohort file are written once, so that they are never all in
                memory.
            on_event: called with each event of the fit's progress.
            weights: survey weights, the number of admissions of the population that each admission represents: a column
                of the cohort or, with codes, one number per admission. Percentiles, risks and cutoff then describe the
                population. Recipe `table` only.
            cluster: groups larger than a patient that the folds keep together: a column of the cohort or, with codes,
                one value per admission.
            numeric: columns of the cohort with numeric outcomes to learn from as well (days, cost), or a mapping of
                each to `poisson` (0 or more, log link) or `gaussian`. Recipe `table` only. Their expected values are
                the columns `expected_<name>` of `table` and `mlci score`.

        Returns:
            This estimator, fitted.

        >>> index = MLCI().fit([["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
        >>> heart_failure, diabetes = index.score([["I50.9"], ["E11.9"]], icd_version=10)
        >>> bool(heart_failure > diabetes)
        True
        """
        self.model_ = learn(
            FitSettings(**self.get_params(deep=False)),
            data,
            outcomes,
            split=split,
            subjects=subjects,
            icd_version=icd_version,
            checkpoint=checkpoint,
            memory_map=memory_map,
            on_event=on_event,
            weights=weights,
            cluster=cluster,
            numeric=numeric,
        )
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
        """Score admissions, under the method name that scikit-learn's scorers call.

        Args:
            data: a `Cohort`, lists of codes, or a frame.

        Returns:
            One float64 per admission, the same as `score`.

        >>> load("us2010").decision_function(pd.DataFrame({"codes": [["I50.9"], []], "icd_version": [10, 10]})).shape
        (2,)
        """
        return self.score(data)

    def predict_proba(self, data: Any) -> Any:
        """Return the risk of each outcome in scikit-learn's form: one column for its absence, one for its presence.

        Args:
            data: a `Cohort`, lists of codes, or a frame.

        Returns:
            An array of two columns with one row per admission, or a list of such arrays if there are several outcomes.

        >>> risks = load("us2010").predict_proba(pd.DataFrame({"codes": [["I50.9"]], "icd_version": [10]}))
        >>> len(risks), risks[0].shape, float(risks[0].sum())
        (4, (1, 2), 1.0)
        """
        risks = [np.column_stack([1 - risk, risk]) for risk in self.risk(data).to_numpy().T]
        return risks[0] if len(risks) == 1 else risks

    @property
    def classes_(self) -> np.ndarray:
        """Return the classes of an outcome: 0 (absent) and 1 (present).

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
        """Return the notebook display, in place of scikit-learn's box of parameters."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _facts(self) -> list[tuple[str, str]]:
        """Return the fitted index's key facts as names and values."""
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
            icd_version: 9 or 10, for codes whose version the data do not state.

        Returns:
            One float64 per admission, in order. If a hundred admissions or more differ much from those of training, a
            `ShiftWarning` says how; `risk` and `table` issue it too.

        >>> mild, severe = load("us2010").score([["I10"], ["I50.9", "N17.9"]], icd_version=10)
        >>> bool(severe > mild)
        True
        """
        admissions = self._model.as_admissions(data, icd_version=icd_version)
        reading = self._model.read(admissions)
        self._warn(data, admissions, reading.score, self._model.risks(reading))  # without age and sex
        return reading.score

    def risk(self, data: Any, *, icd_version: int | None = None) -> pd.DataFrame:
        """Return the risk of each outcome.

        Args:
            data: a `Cohort`, lists of codes, or a frame.
            icd_version: 9 or 10, for codes whose version the data do not state.

        Returns:
            A frame with one column per outcome and one row per admission, in order.

        >>> load("us2010").risk([["I50.9", "N17.9"]], icd_version=10).columns.tolist()
        ['mortality', 'non_home_discharge', 'long_stay', 'critical_care']
        """
        admissions = self._model.as_admissions(data, icd_version=icd_version)
        people = of_data(data, self._model.people, len(admissions))
        reading = self._model.read(admissions, people)
        risks = self._model.risks(reading)
        self._warn(data, admissions, reading.score, risks, missing=absent(self._model.people, people))
        return pd.DataFrame(risks)

    def table(self, data: Any, *, icd_version: int | None = None, strict: bool = False) -> pd.DataFrame:
        """Return all columns of a scores file, as `mlci score` writes them.

        Args:
            data: a `Cohort`, lists of codes, or a frame.
            icd_version: 9 or 10, for codes whose version the data do not state.
            strict: ignore codes that the model does not understand, and give no score to an admission if it
                understands fewer than half of the admission's codes.

        Returns:
            A frame of admission, score, percentile, risk of each outcome, high severity and unknown share.

        >>> table = load("us2010").table([["I50.9", "N17.9"]], icd_version=10)
        >>> table[["high_severity", "unknown_share"]].to_dict("records")
        [{'high_severity': False, 'unknown_share': 0.0}]
        """
        admissions = self._model.as_admissions(data, icd_version=icd_version)
        people = of_data(data, self._model.people, len(admissions))
        columns = self._model.columns(admissions, strict=strict, people=people)
        risks = {name: columns[f"risk_{name}"] for name in self._model.outcomes if f"risk_{name}" in columns}
        missing = absent(self._model.people, people)
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
        """Explain one admission: what each of its codes contributes to the score and the risks.

        Args:
            codes: of the admission, as a list or as `Admissions` of length one.
            icd_version: 9 or 10.
            age: in years, if the index's risks depend on it.
            sex: F or M, if the index's risks depend on it.

        Returns:
            One `Effect` per recorded code. For the recipe `table`, effects are exact shares that add up to the score.
            For the others, an effect is the score minus the score without that code (leave-one-out). The same holds
            for the log-odds of each outcome, if the index has them (`table`, `deep`).

        >>> explanation = load("us2010").explain(["I50.9", "N17.9"], icd_version=10)
        >>> [effect.title for effect in explanation]
        ['Heart failure, unspecified', 'Acute kidney failure, unspecified']
        >>> abs(explanation.base_score + sum(effect.effect for effect in explanation) - explanation.score) < 1e-9
        True
        """
        model = self._model
        ready = isinstance(codes, Admissions)
        admissions = codes if ready else as_admissions([_of_one_admission(codes)], icd_version=icd_version)
        if len(admissions) != 1:
            raise InputError(f"explain: takes one admission, not {len(admissions):,}.")
        for sentence in certainty.notes(admissions.unsure):
            warnings.warn(sentence, stacklevel=2)
        people = of_person(model.people, age, sex)
        reading, base = model.read(admissions, people), model.without_codes
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
        """Summarise what each code contributes over many admissions.

        Args:
            data: a `Cohort`, lists of codes, or a frame.
            icd_version: 9 or 10, for codes whose version the data do not state.

        Returns:
            A frame with one row per distinct code, the largest mean absolute effect first: the number of admissions
            that have it, its mean absolute effect and its mean effect.

        >>> frame = load("us2010").importance([["I50.9", "N17.9"], ["I50.9"]], icd_version=10)
        >>> frame.set_index("code")["admissions"].to_dict()
        {'N179': 1, 'I509': 2}
        """
        return importance(self._model, self._model.as_admissions(data, icd_version=icd_version))

    def save(self, path: str | Path, *, about: Mapping[str, str] | None = None) -> None:
        """Write the model file, which `mlci.load` and `mlci score` read.

        Args:
            path: the file to write; the write is atomic.
            about: `data`, `dates` and `licence` as the model card should state them.

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
        """Issue the warnings that `mlci score` would print; a cohort's outcomes are compared with the risks."""
        model = self._model
        names = [name for name in risks if name in data.outcomes] if isinstance(data, Cohort) else []
        agreements = {name: Agreement.of(risks[name], data.labels(name)[:, 0]) for name in names}
        tally = Tally(model, missing=missing).add(admissions, {"percentile": model.percentile(score)}, agreements)
        problems = tally.problems(strict=strict)
        if isinstance(data, Cohort):
            problems += look_back_warnings(model, data.look_back)
        for category, sentences in ((UserWarning, problems), (ShiftWarning, tally.shift())):
            for sentence in sentences:
                warnings.warn(sentence, category, stacklevel=3)


def load(path: str | Path) -> MLCI:
    """Read a model file, or a ready-made index by its name.

    Args:
        path: a file written by `MLCI.save` or `mlci fit`, or one of the names `us2010` and `us2010-early`.

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


def _of_one_admission(codes: Any) -> list[str]:
    """Return the codes of one admission as a list; refuse a text, a frame, and the codes of several admissions."""
    got = type(codes).__name__
    if isinstance(codes, Iterable) and not isinstance(codes, str | Mapping) and not hasattr(codes, "columns"):
        found = list(codes)
        if not any(isinstance(code, list | tuple) for code in found):
            return found
        got = "a list of lists"
    raise InputError(f'explain: expected a list of codes of one admission, such as ["I50.9", "N17.9"]; got {got}.')


def _risk_parts(model: Model, reading: Reading, people: np.ndarray | None) -> dict[str, Any]:
    """Return the parts of an `Explanation` that turn one admission's log-odds by codes into those of its risks."""
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
