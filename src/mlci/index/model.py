"""A fitted index as data: what scoring needs, kept in one safetensors file that can be read but never run.

In come weights and facts from a fit, or a model file; out come scores, percentiles, risks and flags. Of the training
data the file holds aggregates only: which codes were seen, quantiles of the scores, and one risk curve per outcome.
Needs NumPy, safetensors and pydantic: neither torch nor scikit-learn is imported to score (but for networks whose
codes look at one another, which torch alone can score).
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
KEY = "mlci"  # one key: the header's order, and so the file's bytes, then never vary
PROBES, MOST_SCORE = 64, 1e9  # admissions that a file must be able to score, and what no score can reach


@dataclass(frozen=True)
class Model:
    """Everything that turns codes into a score and a score into words about risk.

    >>> from mlci.index.estimator import load
    >>> model = load("us2010").model_
    >>> visits = model.taken([["I50.9", "N17.9"], ["Z37.0", "ZZZ99"]], icd_version=10)
    >>> reading = model.read(visits)
    >>> int(model.score(visits).argmax()), model.percentile(np.array([-np.inf, np.inf])).tolist()  # heart failure first
    (0, [0.0, 100.0])
    >>> risk, (low, high) = model.risks(reading)["mortality"], model.intervals(reading)["mortality"]
    >>> bool(risk[0] > risk[1]), bool((low < risk).all()), model.expected(reading)  # it knows no outcomes in numbers
    (True, True, {})
    >>> model.known(visits).tolist(), model.unknown_share(visits).tolist(), model.understanding(visits).enough.tolist()
    ([True, True, True, False], [0.0, 0.5], [True, True])
    >>> bool(model.read_strictly(visits).score[1] == model.read(model.taken([["Z37.0"]], icd_version=10)).score)
    True
    >>> list(model.columns(visits))[:3]
    ['score', 'percentile', 'risk_mortality']
    """

    state: Mapping[str, np.ndarray]  # the scorer's weights, oriented: larger means more severe
    vocabulary: Vocabulary
    icd_versions: tuple[int, ...]  # of the training codes; 0 where nobody said
    outcomes: Mapping[str, str]  # name -> rule in words; those whose log-odds the scorer gives come first
    quantiles: np.ndarray  # of the training scores, evenly spaced from the least to the greatest
    curves: Mapping[str, Isotonic | Smooth]  # how often each outcome happens along the score
    cutoff: Cutoff  # where high severity begins
    card: Mapping  # recipe, seed, config, weights, what training saw, and the record of how it went
    bands: Mapping[str, Smooth] = field(default_factory=dict)  # how sure own log-odds are, along them

    @cached_property
    def _percentiles(self) -> Pieces:
        return Pieces(self.quantiles, np.linspace(0, 100, len(self.quantiles)))

    @cached_property
    def scorer(self) -> "Scorer":
        return scorer_of(self.state, self.vocabulary, self.card["config"])

    @cached_property
    def nothing(self) -> Reading:
        """What it reads in an admission without codes."""
        return self.read(Admissions.from_lists([[]]))

    def taken(self, data: Any, *, icd_version: int | None = None) -> Admissions:
        """Return codes as this model takes them: all, or those present on admission.

        Args:
            data: a cohort, lists or a frame; without flags it is refused where the model was made for codes present on
                admission.
            icd_version: of codes whose version the data do not say.
        """
        return as_admissions(data, icd_version=icd_version, poa=self.vocabulary.poa)

    def of_cohort(self, cohort: "Cohort") -> "Cohort":
        """Return the `cohort` as this model takes it: with all codes, or with those present on admission alone.

        >>> from mlci.cohort import build_cohort
        >>> from mlci.index.estimator import load
        >>> len(load("us2010").model_.of_cohort(build_cohort("synthetic", 20)))
        20
        """
        return cohort.present() if self.vocabulary.poa == ONLY else cohort

    def read(self, admissions: Admissions, people: np.ndarray | None = None) -> Reading:
        """Return scores, and log-odds where the index has them.

        Args:
            admissions: normalised codes.
            people: rows of age and sex; with it, also what they add to the log-odds of risks.
        """
        reading = self.scorer.read(self.scorer.encode(admissions))
        if people is None or "people" not in self.state:
            return reading
        return replace(reading, people=People(self.state["people"]).added(people))

    def read_strictly(self, admissions: Admissions, people: np.ndarray | None = None) -> Reading:
        """Return what `read` does, by those codes alone that the model understands.

        Args:
            admissions, people: as in `read`.
        """
        return self.read(admissions.keep(self.vocabulary.leaves(admissions) != UNK), people)

    @property
    def people(self) -> tuple[str, ...]:
        """Which of age and sex the risks take beside codes."""
        return wanted(self.card["config"]) if "people" in self.state else ()

    @property
    def numbers(self) -> dict[str, str]:
        """The outcomes that are numbers, in the order of the scorer's last columns: name -> kind."""
        return dict(self.card.get("numbers") or {})

    @property
    def learned(self) -> list[str]:
        """The outcomes that the scorer's columns are of: those with a risk of their own, then numbers."""
        return [*list(self.outcomes)[: self.scorer.risky], *self.numbers]

    @property
    def additive(self) -> bool:
        """Whether a score is a sum over codes, and so are log-odds."""
        return isinstance(self.scorer, TableScorer)

    def score(self, admissions: Admissions) -> np.ndarray:
        """Return a float64 for each of the `admissions`, in order."""
        return self.read(admissions).score

    def risks(self, reading: Reading) -> dict[str, np.ndarray]:
        """Return the risk of each outcome: from its own log-odds where there are such, else along the score.

        Args:
            reading: of the admissions.
        """
        own = self.scorer.risks(reading).T
        return dict(zip(self.outcomes, own)) | {
            name: self.curves[name](reading.score) for name in list(self.outcomes)[len(own) :] if name in self.curves
        }

    def expected(self, reading: Reading) -> dict[str, np.ndarray]:
        """Return the expected value of each outcome that is a number, by a `reading`."""
        scorer = self.scorer
        return dict(zip(self.numbers, scorer.means(reading).T)) if isinstance(scorer, TableScorer) else {}

    def intervals(self, reading: Reading) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the 95% interval of each risk that has one: how far the reference admissions determine it.

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
        """Return how far each of the `admissions` is understood, and whether that is enough for a score."""
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
            strict: whether codes that are not understood count for nothing (the recipes paper and deep otherwise read
                them as one unknown code), and admissions with fewer than half of their codes understood have no score,
                percentile, risk or flag: NaN, and None for the flag.
            people: rows of age and sex, for risks that take them.
            reading: of the admissions, if it is at hand.
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
    """Return the scorer that a model's arrays are made for.

    Args:
        state: the arrays.
        vocabulary: of the model.
        config: of the model; it tells networks apart.

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
        path: as `Model.save` and `mlci fit` write it.

    Returns:
        The model; a file that is damaged, no model or of a later format is an `InputError`.

    >>> from mlci.index.ready import model_path
    >>> list(load_model(model_path("us2010")).outcomes)
    ['mortality', 'non_home_discharge', 'long_stay', 'critical_care']
    """
    from mlci.index._schema import check_facts

    header, state = read_tensors(path, key=KEY, kind="a whole model file; `mlci fit` makes one")
    try:
        if header["format"] not in FORMATS:
            said = header["format"] if isinstance(header["format"], int) else "an unknown kind"
            known = f"mlci {mlci.__version__} reads formats 1 to {FORMATS[-1]}"
            raise InputError(f"{path}: is of model format {said}; {known}.")
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
            card=_renewed(facts["card"]) if header["format"] == 1 else facts["card"],
        )
        _check(model)
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else type(error).__name__
        raise InputError(f"{path}: does not have the parts of a model file ({reason}).") from None
    if header["format"] < FORMATS[-1]:
        outdated(f"{path}: model format {header['format']}", "mlci.load(path).save(path) writes the file anew")
    return model


def _renewed(card: Mapping) -> dict[str, Any]:
    from mlci.index._former import renewed

    return renewed(card)


def _check(model: Model) -> None:
    """Refuse a file that is whole and yet does not fit together, as one made by hand may: some score is no number."""
    model.scorer.check(len(model.outcomes))
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
