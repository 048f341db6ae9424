"""A fitted index as data: everything that scoring needs, in one safetensors file that holds no executable code.

A `Model` comes from a fit or from a model file. It returns scores, percentiles, risks and flags. Of the training data
the file holds only aggregates: the codes that occurred, quantiles of the scores, and one risk curve per outcome.

Scoring needs NumPy, safetensors and pydantic; it imports neither torch nor scikit-learn. The one exception is networks
with attention between codes, which need torch.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import mlci
from mlci.base.errors import InputError
from mlci.base.outdated import outdated
from mlci.base.pieces import Pieces
from mlci.base.tensors import digest, read_tensors, write_tensors
from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.poa import ONLY
from mlci.fitting._people import People
from mlci.index._people import wanted
from mlci.index._reading import Reading
from mlci.index._table import TableScorer
from mlci.index._understanding import Understanding, understanding
from mlci.judging.kept import Cutoff, Isotonic, Smooth, curve_from
from mlci.tokens import PRINCIPAL, UNK, Vocabulary

if TYPE_CHECKING:
    from mlci.cohort import Cohort
    from mlci.index._deepsets import DeepSetsScorer
    from mlci.index._network import NetworkScorer

    Scorer = DeepSetsScorer | NetworkScorer | TableScorer

FORMATS = (1, 2)  # that can be read; the last one is written
KEY = "mlci"  # a single key, so that the order of the header, and with it the file's bytes, never varies
PROBES, MOST_SCORE = 64, 1e9  # admissions scored to check a file, and the bound on their absolute scores


@dataclass(frozen=True)
class Model:
    """Weights, vocabulary and reference figures: everything that turns codes into a score, a percentile and risks.

    >>> from mlci.index.estimator import load
    >>> model = load("us2010").model_
    >>> visits = model.as_admissions([["I50.9", "N17.9"], ["Z37.0", "ZZZ99"]], icd_version=10)
    >>> reading = model.read(visits)
    >>> int(model.score(visits).argmax()), model.percentile(np.array([-np.inf, np.inf])).tolist()  # heart failure first
    (0, [0.0, 100.0])
    >>> risk, (low, high) = model.risks(reading)["mortality"], model.intervals(reading)["mortality"]
    >>> bool(risk[0] > risk[1]), bool((low < risk).all()), model.expected(reading)  # no numeric outcomes
    (True, True, {})
    >>> model.known(visits).tolist(), model.unknown_share(visits).tolist(), model.understanding(visits).enough.tolist()
    ([True, True, True, False], [0.0, 0.5], [True, True])
    >>> bool(model.read_strictly(visits).score[1] == model.read(model.as_admissions([["Z37.0"]], icd_version=10)).score)
    True
    >>> list(model.columns(visits))[:3]
    ['score', 'percentile', 'risk_mortality']
    """

    state: Mapping[str, np.ndarray]  # the scorer's weights, oriented: larger means more severe
    vocabulary: Vocabulary
    icd_versions: tuple[int, ...]  # of the training codes; 0 if unknown
    outcomes: Mapping[str, str]  # name -> rule in words; those whose log-odds the scorer gives come first
    quantiles: np.ndarray  # of the training scores, evenly spaced from the smallest to the largest
    curves: Mapping[str, Isotonic | Smooth]  # risk of each outcome as a function of the score
    cutoff: Cutoff  # the score at which high severity begins
    card: Mapping  # recipe, seed, config, task weights, training data, and the record of the fit
    bands: Mapping[str, Smooth] = field(default_factory=dict)  # confidence bands of an outcome's own log-odds

    @cached_property
    def _percentiles(self) -> Pieces:
        return Pieces(self.quantiles, np.linspace(0, 100, len(self.quantiles)))

    @cached_property
    def scorer(self) -> "Scorer":
        return scorer_of(self.state, self.vocabulary, self.card["config"])

    @cached_property
    def without_codes(self) -> Reading:
        """The reading of an admission without codes."""
        return self.read(Admissions.from_lists([[]]))

    def as_admissions(self, data: Any, *, icd_version: int | None = None) -> Admissions:
        """Return the codes that this model counts: all of them, or only those present on admission.

        Args:
            data: a cohort, lists or a frame. If the model counts only codes present on admission, data without
                present-on-admission flags raise an error.
            icd_version: 9 or 10, for codes whose version the data do not state.
        """
        return as_admissions(data, icd_version=icd_version, poa=self.vocabulary.poa)

    def of_cohort(self, cohort: "Cohort") -> "Cohort":
        """Return the `cohort` with the codes that this model counts: all, or only those present on admission.

        >>> from mlci.cohort import build_cohort
        >>> from mlci.index.estimator import load
        >>> len(load("us2010").model_.of_cohort(build_cohort("synthetic", 20)))
        20
        """
        return cohort.present() if self.vocabulary.poa == ONLY else cohort

    def read(self, admissions: Admissions, people: np.ndarray | None = None) -> Reading:
        """Return scores and, if the index has them, log-odds.

        Args:
            admissions: normalised codes.
            people: rows of age and sex. With them, the reading includes what they add to the log-odds of risks.
        """
        reading = self.scorer.read(self.scorer.encode(admissions))
        if people is None or "people" not in self.state:
            return reading
        return replace(reading, people=People(self.state["people"]).added(people))

    def read_strictly(self, admissions: Admissions, people: np.ndarray | None = None) -> Reading:
        """Return what `read` does, counting only the codes that the model understands.

        Args:
            admissions, people: as in `read`.
        """
        return self.read(admissions.keep(self.vocabulary.leaves(admissions) != UNK), people)

    @property
    def people(self) -> tuple[str, ...]:
        """Which of age and sex the risks depend on, in addition to codes."""
        return wanted(self.card["config"]) if "people" in self.state else ()

    @property
    def numbers(self) -> dict[str, str]:
        """The numeric outcomes, in the order of the scorer's last columns: name -> kind."""
        return dict(self.card.get("numbers") or {})

    @property
    def learned(self) -> list[str]:
        """The outcomes of the scorer's columns: first those with a risk of their own, then numeric ones."""
        return [*list(self.outcomes)[: self.scorer.risky], *self.numbers]

    @property
    def additive(self) -> bool:
        """Whether a score is a sum over codes, and so are log-odds."""
        return isinstance(self.scorer, TableScorer)

    def score(self, admissions: Admissions) -> np.ndarray:
        """Return a float64 for each of the `admissions`, in order."""
        return self.read(admissions).score

    def risks(self, reading: Reading) -> dict[str, np.ndarray]:
        """Return the risk of each outcome: from its own log-odds, or from its curve if the scorer has no log-odds.

        Args:
            reading: of the admissions.
        """
        own = self.scorer.risks(reading).T
        return dict(zip(self.outcomes, own)) | {
            name: self.curves[name](reading.score) for name in list(self.outcomes)[len(own) :] if name in self.curves
        }

    def expected(self, reading: Reading) -> dict[str, np.ndarray]:
        """Return the expected value of each numeric outcome for a `reading`."""
        scorer = self.scorer
        return dict(zip(self.numbers, scorer.means(reading).T)) if isinstance(scorer, TableScorer) else {}

    def intervals(self, reading: Reading) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the 95% confidence interval of each risk that has one, given the size of the reference sample.

        Args:
            reading: of the admissions.
        """
        found = {}
        for place, (name, risk) in enumerate(self.risks(reading).items()):
            if name in self.bands and reading.log_odds is not None:
                found[name] = self.bands[name].around(risk, reading.log_odds[:, place])
            elif isinstance(curve := self.curves.get(name), Smooth):
                found[name] = curve.around(risk, reading.score)
        return found

    def percentile(self, score: np.ndarray) -> np.ndarray:
        """Return the share (0 to 100) of the training admissions that score no higher than each `score`."""
        return self._percentiles(score)

    def known(self, admissions: Admissions) -> np.ndarray:
        """Return whether the vocabulary knows each of the distinct codes of `admissions`."""
        return self.vocabulary.leaves(admissions) > UNK

    def unknown_share(self, admissions: Admissions) -> np.ndarray:
        """Return the share of each admission's codes that the vocabulary does not know; NaN without codes.

        Args:
            admissions: normalised codes.
        """
        counts = admissions.counts
        unknown = admissions.count(~self.known(admissions))
        return np.divide(unknown, counts, out=np.full(len(counts), np.nan), where=counts > 0)

    def understanding(self, admissions: Admissions) -> Understanding:
        """Return the share of each admission's codes that is understood, and whether it is enough for a score.

        Args:
            admissions: normalised codes.
        """
        return understanding(admissions, self.vocabulary.leaves(admissions))

    def columns(
        self,
        admissions: Admissions,
        *,
        strict: bool = False,
        people: np.ndarray | None = None,
        reading: Reading | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the columns of a scores file, without the identifiers.

        Args:
            admissions: normalised codes.
            strict: whether to ignore codes that are not understood (otherwise the recipes paper and deep read them as
                one unknown code), and to give admissions with fewer than half of their codes understood no score,
                percentile or risk (NaN) and no flag (None).
            people: rows of age and sex, for risks that depend on them.
            reading: of the admissions, if it has been computed already.
        """
        if reading is None:
            reading = self.read_strictly(admissions, people) if strict else self.read(admissions, people)
        columns = {
            "score": reading.score,
            "percentile": self.percentile(reading.score),
            **{f"risk_{name}": risk for name, risk in self.risks(reading).items()},
            **{f"expected_{name}": mean for name, mean in self.expected(reading).items()},
            "high_severity": self.cutoff.flag(reading.score),
        }
        if strict:
            enough = self.understanding(admissions).enough
            for name, values in columns.items():
                columns[name] = values.astype(object if values.dtype == bool else float)
                columns[name][~enough] = None  # NaN among numbers
        return {**columns, "unknown_share": self.unknown_share(admissions)}

    def save(self, path: str | Path) -> None:
        """Write the model file.

        Args:
            path: its name.

        >>> from tempfile import TemporaryDirectory
        >>> from mlci.index.estimator import load
        >>> with TemporaryDirectory() as folder:
        ...     load("us2010").model_.save(f"{folder}/own.safetensors")
        ...     load_model(f"{folder}/own.safetensors").cutoff == load("us2010").model_.cutoff
        True
        """
        facts = {
            "version": mlci.__version__,
            "vocabulary": asdict(self.vocabulary),
            "icd_versions": list(self.icd_versions),
            "outcomes": dict(self.outcomes),
            "quantiles": self.quantiles.tolist(),
            "curves": {name: curve.to_dict() for name, curve in self.curves.items()},
            "bands": {name: band.to_dict() for name, band in self.bands.items()},
            "cutoff": self.cutoff.to_dict(),
            "card": dict(self.card),
        }
        facts = json.loads(json.dumps(facts, allow_nan=False))
        header = {"format": FORMATS[-1], "sha256": digest(facts, self.state), "facts": facts}
        write_tensors(path, self.state, key=KEY, facts=header)


def scorer_of(state: Mapping[str, np.ndarray], vocabulary: Vocabulary, config: Mapping) -> "Scorer":
    """Return the scorer for a model's arrays.

    Args:
        state: the arrays.
        vocabulary: of the model.
        config: of the model; it identifies the kind of network.

    >>> from mlci.index.estimator import load
    >>> model = load("us2010").model_
    >>> scorer_of(model.state, model.vocabulary, model.card["config"]).risky  # outcomes with a risk of their own
    4
    """
    if "weights" in state:
        return TableScorer(state, vocabulary)
    from mlci.config import EncoderConfig
    from mlci.index._deepsets import DeepSetsScorer
    from mlci.index._network import NetworkScorer

    encoder = EncoderConfig(**config["encoder"])
    if encoder.name == "deepsets":
        return DeepSetsScorer(state, encoder.pooling, vocabulary)
    return NetworkScorer(state, encoder, vocabulary)


def load_model(path: str | Path) -> Model:
    """Read a model file.

    Args:
        path: a file written by `Model.save` or `mlci fit`.

    Returns:
        The model. A file that is damaged, not a model or of a later format raises an `InputError`.

    >>> from mlci.index.ready import model_path
    >>> list(load_model(model_path("us2010")).outcomes)
    ['mortality', 'non_home_discharge', 'long_stay', 'critical_care']
    """
    from mlci.index._schema import check_facts

    header, state = read_tensors(path, key=KEY, kind="a whole model file; `mlci fit` makes one")
    try:
        if header["format"] not in FORMATS:
            found = header["format"] if isinstance(header["format"], int) else "of an unknown kind"
            raise InputError(
                f"{path}: its model format is {found}; mlci {mlci.__version__} reads formats 1 to {FORMATS[-1]}."
            )
        facts = header["facts"]
        if digest(facts, state) != header["sha256"]:
            raise InputError(f"{path}: is damaged: its contents do not match its checksum.")
        check_facts(facts)
        model = Model(
            state=state,
            vocabulary=Vocabulary.from_dict(facts["vocabulary"]),
            icd_versions=tuple(facts["icd_versions"]),
            outcomes=facts["outcomes"],
            quantiles=np.asarray(facts["quantiles"], dtype=np.float64),
            curves={name: curve_from(curve) for name, curve in facts["curves"].items()},
            bands={name: Smooth.from_dict(band) for name, band in facts.get("bands", {}).items()},
            cutoff=Cutoff.from_dict(facts["cutoff"]),
            card=_converted(facts["card"]) if header["format"] == 1 else facts["card"],
        )
        _check(model)
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else type(error).__name__
        raise InputError(f"{path}: does not have the parts of a model file ({reason}).") from None
    if header["format"] < FORMATS[-1]:
        outdated(f"{path}: model format {header['format']}", "mlci.load(path).save(path) writes the current format")
    return model


def _converted(card: Mapping) -> dict[str, Any]:
    from mlci.index._format1 import converted

    return converted(card)


def _check(model: Model) -> None:
    """Raise ValueError if the parts of an intact file are inconsistent (as in a handmade one) or give no score."""
    try:
        scorer = model.scorer
    except InputError as error:  # of an encoder that no fit can have
        raise ValueError(str(error).rstrip(".")) from None
    scorer.check(len(model.outcomes))
    if not {*model.bands} <= {*list(model.outcomes)[: scorer.risky]}:
        raise ValueError("bands of outcomes without log-odds of their own")
    if len(model.numbers) != int(np.count_nonzero(model.state.get("kinds", ()))):
        raise ValueError("numbers that the tensors do not have")
    codes = [text.lstrip(PRINCIPAL) for text in model.vocabulary.tokens]
    alone = [[code] for code in codes[:: max(1, len(codes) // PROBES)]]
    version = next(iter(model.vocabulary.versions), 0)
    with np.errstate(all="ignore"):
        reading = model.read(Admissions.from_lists([[], *alone, codes[:PROBES]], icd_version=version))
        risks = model.risks(reading).values()
    if not (np.abs(reading.score) < MOST_SCORE).all() or not all(((risk >= 0) & (risk <= 1)).all() for risk in risks):
        raise ValueError("weights that give no score")
