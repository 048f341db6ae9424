"""A fitted index as data: what scoring needs, kept in one safetensors file that can be read but never run.

In come weights and facts from a fit, or a model file; out come scores, percentiles, risks and flags. Of the training
data the file holds aggregates only: which codes were seen, quantiles of the scores, and one risk curve per outcome.
Needs NumPy, safetensors and pydantic: neither torch nor scikit-learn is imported to score (but for networks whose
codes look at one another, which torch alone can score).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import mlci
from mlci.base.errors import InputError
from mlci.base.outdated import outdated
from mlci.base.parquet import WEIGHTS
from mlci.base.spreadsheets import defused
from mlci.base.tablefile import writing
from mlci.base.tensors import digest, read_tensors, write_tensors
from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.poa import ONLY
from mlci.codes.streams import ROW, ahead, stream_rows
from mlci.codes.versions import Guess
from mlci.fitting._people import People
from mlci.index._people import of_table, wanted
from mlci.index._percentiles import Percentiles
from mlci.index._reading import Reading
from mlci.index._table import TableScorer
from mlci.index._understanding import Understanding, hardly, understanding
from mlci.index.shift import ENOUGH, Agreement, Makeup, categories_of, counted, outcome_columns, shifts
from mlci.judging.kept import Cutoff, Isotonic, Smooth, curve_from
from mlci.tokens import PRINCIPAL, UNK, Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

    from mlci.cohort import Cohort
    from mlci.index._deepsets import DeepSetsScorer
    from mlci.index._network import NetworkScorer

    Scorer = DeepSetsScorer | NetworkScorer | TableScorer

FORMATS = (1, 2)  # that can be read; the last one is written
KEY = "mlci"  # one key: the header's order, and so the file's bytes, then never vary
SHIFT = 20  # percentiles from the middle from which a shift is reported
UNKNOWN = 0.1  # share of unknown codes from which it is
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
    def _percentiles(self) -> Percentiles:
        return Percentiles(self.quantiles)

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


@dataclass(frozen=True)
class Tally:
    """How far admissions are what the model was made for.

    >>> from mlci.index.estimator import load
    >>> model = load("us2010").model_
    >>> tally = Tally(model).add(model.taken([["ZZZ99"]], icd_version=10))
    >>> tally.codes, tally.unknown, tally.doubts()[0]
    (1, 1, '1 of 1 codes are unknown to the model: scores mean little.')
    >>> tally.misread(strict=True)[1]
    'of 1 of 1 admissions fewer than half of the codes are understood: they have no score.'
    >>> tally.unlike()  # too few to tell
    []
    """

    model: Model
    admissions: int = 0
    codes: int = 0
    unknown: int = 0
    few: int = 0  # admissions with codes, of which fewer than half are understood
    empty: int = 0  # admissions without codes
    foreign: Counter = field(default_factory=Counter)  # ICD version, not the model's -> codes
    stripped: int = 0  # ICD-9 codes that lack a leading zero
    unsaid: int = 0  # codes of no ICD version, where the model knows two
    placed: int = 0  # admissions whose percentile was told
    percentiles: float = 0.0  # their sum
    missing: tuple[str, ...] = ()  # of age and sex, which the risks take and the data do not have
    makeup: Mapping[int, Makeup] = field(default_factory=dict)  # of these admissions, by ICD version
    agreements: Mapping[str, Agreement] = field(default_factory=dict)  # risks and outcomes, where these are known
    looked: "_Looked | None" = None  # at the distinct codes of the last batch: batches of a file often share them

    def add(
        self,
        admissions: Admissions,
        percentile: np.ndarray | None = None,
        agreements: Mapping[str, Agreement] | None = None,
    ) -> "Tally":
        """Return the tally with more admissions counted.

        Args:
            admissions: normalised codes.
            percentile: of each admission; those that have one are compared with the training admissions.
            agreements: risks and outcomes, by outcome, where these are known.
        """
        values, versions, looked = admissions.values, admissions.versions, self.looked
        if looked is None or looked.values is not values or not np.array_equal(looked.versions, versions):
            looked = _Looked(values, versions, self._stripped(admissions), categories_of(values))
        leaves = self.model.vocabulary.leaves(admissions)
        makeup = {} if percentile is None else counted(admissions, leaves, looked.categories)
        own, foreign = self.model.icd_versions, Counter(self.foreign)
        for version in np.unique(admissions.versions[admissions.mentions > 0]):
            if version and 0 not in own and version not in own:
                foreign[int(version)] += int(admissions.mentions[admissions.versions == version].sum())
        return Tally(
            self.model,
            admissions=self.admissions + len(admissions),
            codes=self.codes + len(admissions.indices),
            unknown=self.unknown + int(admissions.mentions[leaves <= UNK].sum()),
            few=self.few + hardly(admissions, leaves),
            empty=self.empty + int((admissions.counts == 0).sum()),
            foreign=foreign,
            stripped=self.stripped + max(int(admissions.mentions[looked.lost].sum()), admissions.short),
            unsaid=self.unsaid + (int(admissions.mentions[admissions.versions == 0].sum()) if len(own) > 1 else 0),
            placed=self.placed + (0 if percentile is None else int(np.isfinite(percentile).sum())),
            percentiles=self.percentiles + (0.0 if percentile is None else float(np.nansum(percentile))),
            missing=self.missing,
            makeup=_summed(self.makeup, makeup),
            agreements=_summed(self.agreements, agreements or {}),
            looked=looked,
        )

    def _stripped(self, admissions: Admissions) -> np.ndarray:
        """Return which distinct codes lack a leading zero; ICD-10 has none to lose."""
        nine = admissions.versions == 9 if 10 in self.model.icd_versions else admissions.versions != 10
        lost = np.zeros(len(nine), dtype=bool)
        if nine.any():
            import pyarrow as pa

            from mlci.codes import zeros

            lost[nine] = zeros.stripped(pa.array(admissions.values[nine], pa.string()))
        return lost

    def doubts(self, *, strict: bool = False) -> list[str]:
        """Return what the user should be told, a sentence each.

        Args:
            strict: whether admissions that are hardly understood go without a score.
        """
        return [*self.misread(strict=strict), *self.unlike()]

    def misread(self, *, strict: bool = False) -> list[str]:
        """Return what was not read as it was meant, or not at all; `strict` is as in `doubts`."""
        found = []
        if self.missing:
            lacking = " or ".join(self.missing)
            then = "are those by codes alone" if self.missing == self.model.people else "count without it"
            takes = " and ".join(self.model.people)
            found.append(f"the model's risks take {takes}, and there is no {lacking}: they {then}.")
        if self.foreign:
            own = " and ".join(f"ICD-{version}" for version in self.model.icd_versions)
            version, many = self.foreign.most_common(1)[0]
            found.append(f"{many:,} of {self.codes:,} codes are ICD-{version}; the model was made for {own}.")
        if self.unsaid:
            own = " and ".join(f"ICD-{version}" for version in self.model.icd_versions)
            found.append(
                f"{self.unsaid:,} of {self.codes:,} codes have no ICD version; the model knows {own}: say which."
            )
        if self.stripped * 20 > self.codes:
            found.append(
                f"{self.stripped:,} of {self.codes:,} codes lack a leading zero (38.9 for 038.9), as if a spreadsheet "
                "had eaten it; they are taken as they stand (--restore-zeros puts it back)."
            )
        if self.unknown > self.codes / 2:
            found.append(f"{self.unknown:,} of {self.codes:,} codes are unknown to the model: scores mean little.")
        if self.few:
            then = "they have no score" if strict else "their scores mean nothing, and strict scoring leaves them out"
            which = f"{self.few:,} of {self.admissions:,} admissions"
            found.append(f"of {which} fewer than half of the codes are understood: {then}.")
        if strict and self.empty:
            found.append(f"{self.empty:,} of {self.admissions:,} admissions have no code and therefore no score.")
        return found

    def unlike(self) -> list[str]:
        """Return how these admissions differ from those of training, where they are many and differ much."""
        found = []
        if self.placed >= ENOUGH and self.codes * UNKNOWN < self.unknown <= self.codes / 2:
            found.append(f"{self.unknown / self.codes:.0%} of {self.codes:,} codes are unknown to the model.")
        if self.placed >= ENOUGH and abs((mean := self.percentiles / self.placed) - 50) > SHIFT:
            other = "graver" if mean > 50 else "milder"
            found.append(
                f"the mean percentile is {mean:.0f}, and 50 is that of the training admissions: these are {other}, or "
                "recorded otherwise; `mlci recalibrate` fits risks, percentiles and cutoff to them."
            )
        found += shifts(self.model.card.get("makeup", {}), self.makeup)
        return found + [told for name, agreement in self.agreements.items() if (told := agreement.told(name))]


@dataclass(frozen=True)
class _Looked:
    """What the distinct codes of a batch are, beside the tokens that the vocabulary has for them."""

    values: np.ndarray
    versions: np.ndarray
    lost: np.ndarray  # which lack a leading zero
    categories: tuple[np.ndarray, np.ndarray]  # as `shift.categories_of` gives them


def _summed(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return parts of equal names added up."""
    return {**left, **{name: left[name] + part if name in left else part for name, part in right.items()}}


def score_file(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    icd_version: int | str | None = None,
    id: str | None = None,
    codes: str | None = None,
    restore_zeros: bool = False,
    defuse: bool = False,
    strict: bool = False,
    poa: str | None = None,
    on_guess: Callable[[str], None] | None = None,
    on_batch: Callable[[int], None] | None = None,
    on_scores: Callable[[Admissions, Mapping[str, np.ndarray]], None] | None = None,
) -> Tally:
    """Score a file of any size in bounded memory.

    Args:
        model: an index.
        source: a Parquet, CSV or Excel file of admissions.
        target: a Parquet, CSV or Excel file; it gets `admission_id` and `Model.columns`.
        icd_version: 9 or 10 for all codes, or the column that says it.
        id: the column of admissions, where its name does not speak for itself.
        codes: the columns of codes, where their names do not speak for themselves.
        restore_zeros: whether ICD-9 codes lost their leading zeros, which are put back.
        defuse: whether to mark identifiers that a spreadsheet would take for formulas.
        strict: whether codes that the model does not know count for nothing, as in `Model.columns`.
        poa: which codes count, `all` or `only` those present on admission, in place of what the model was made for.
        on_guess: called with a sentence where the codes themselves tell their ICD version; without it they may not.
        on_batch: called with how many admissions are done.
        on_scores: called with the admissions of each batch and the columns that were written of them.

    Returns:
        How far the admissions are what the model was made for.

    >>> from tempfile import TemporaryDirectory
    >>> from mlci.index.estimator import load
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "visits.csv").write_text("visit_id,DX1,DX2\\n1,I50.9,N17.9\\n2,Z37.0,")
    ...     tally = score_file(load("us2010").model_, f"{folder}/visits.csv", f"{folder}/scores.csv", icd_version=10)
    >>> tally.admissions, tally.codes, tally.unknown
    (2, 3, 0)
    """
    options = {"icd_version": icd_version, "id": id, "codes": codes, "restore_zeros": restore_zeros, "unused": True}
    options |= {"poa": poa or model.vocabulary.poa, "carry": model.people}
    tally, outcomes = Tally(model), outcome_columns(source, model.outcomes)

    def scored() -> Iterator[tuple[Admissions, dict[str, np.ndarray], "pa.Table"]]:
        nonlocal tally
        empty = True
        several = len({*model.icd_versions} - {0}) > 1
        guess = Guess(str(source), on_guess) if on_guess and several else lambda batch: batch
        for batch, carried in stream_rows(source, **options):
            admissions = guess(batch)
            _check_versions(model, admissions, source)
            people = of_table(carried, model.people, str(source), carried[ROW].to_numpy()) if model.people else None
            columns = model.columns(admissions, strict=strict, people=people)
            if empty:
                missing = tuple(name for name in model.people if name not in carried.column_names)
                tally = replace(tally, missing=missing)
            yield admissions, columns, _as_table(model, admissions, columns, defuse)
            empty = False
        if empty:  # a file without rows has scores without rows
            admissions = Admissions.from_lists([])
            columns = model.columns(admissions, strict=strict)
            yield admissions, columns, _as_table(model, admissions, columns, defuse)

    with writing(target, inputs=[source]) as write:  # hardly a value comes twice: no dictionaries
        for admissions, columns, table in ahead(scored()):  # a batch is read, another scored, a third written
            write(table)
            rows = slice(tally.admissions, tally.admissions + len(admissions))
            agreements = {
                name: Agreement.of(columns[f"risk_{name}"].astype(float), label[rows])
                for name, label in outcomes.items()
                if f"risk_{name}" in columns
            }
            tally = tally.add(admissions, columns["percentile"], agreements)
            if on_scores:
                on_scores(admissions, columns)
            if on_batch:
                on_batch(tally.admissions)
    return tally


def _as_table(model: Model, admissions: Admissions, columns: Mapping[str, np.ndarray], defuse: bool) -> "pa.Table":
    """Return a batch of scores, with the weights by which the cutoff was chosen: `mlci diagnose` takes them."""
    import pyarrow as pa

    kinds = {"high_severity": pa.bool_()}  # told, for a batch that has none
    ids = np.array(defused(admissions.ids), dtype=object) if defuse else admissions.ids
    named = {"admission_id": ids, **columns}
    arrays = {name: pa.array(values, kinds.get(name), from_pandas=_gaps(values)) for name, values in named.items()}
    return pa.table(arrays, metadata={WEIGHTS: json.dumps(model.card.get("weights", {}))})


def _gaps(values: Any) -> bool:
    """Return whether some value may be missing; Arrow takes numbers as they lie if not."""
    return getattr(values, "dtype", None) != np.float64 or bool(np.isnan(values).any())


def _check_versions(model: Model, admissions: Admissions, source: str | Path) -> None:
    """Refuse codes of which nobody says the ICD version where the model knows several: none would be understood."""
    several = len({*model.icd_versions} - {0}) > 1
    if several and 0 in admissions.versions and not admissions.versions[admissions.indices].all():
        raise InputError(
            f"{source}: some codes have no ICD version, and the model knows several; --icd-version 9 or 10 "
            "(icd_version= in Python) says it for all, or names the column that says it for each."
        )


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
