"""Detect shift: compare admissions with those a model was trained on, by codes per admission, case mix and calibration.

Turn the make-up of the training admissions, which the model file keeps, and that of new admissions into warnings. The
make-up is an aggregate: the number of codes per admission, and how often each category of at least ten training
admissions was recorded. A difference is reported if it is both large and beyond chance. The distance between two mixes
of codes is their total variation, minus its expectation under sampling alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlci.base.errors import reading
from mlci.base.names import words
from mlci.base.parquet import KIND, open_parquet
from mlci.codes.admissions import Admissions
from mlci.codes.categories import category_words
from mlci.codes.icd import VERSIONS
from mlci.tokens import MANY, PAD, PRINCIPAL, Tokens, Vocabulary, without

ENOUGH = 100  # least number of admissions for a report
RATIO = 1.5  # of the mean numbers of codes, in either direction
OFF = 1.25  # ratio of observed and expected events, in either direction
SURE = 4.0  # standard errors
DISTANCE = 0.1  # total variation between two mixes of codes; between regions of one country it is under 0.07
MOVERS = 3  # categories that a report names
CATEGORY = 3  # characters
LEAST = 10  # training admissions of each category that is kept


class ShiftWarning(UserWarning):
    """Admissions differ from those the model was trained on, or outcomes differ from their risks.

    >>> import warnings
    >>> warnings.simplefilter("ignore", ShiftWarning)  # for a hospital that knows how it differs
    """


@dataclass(frozen=True)
class Makeup:
    """The number of admissions coded in one ICD version, and their codes by category; instances can be added."""

    admissions: int = 0
    codes: int = 0
    squares: int = 0  # sum of the squared numbers of codes
    categories: Mapping[str, int] = field(default_factory=dict)  # recorded codes; rare ones are in `codes` only

    def __add__(self, other: "Makeup") -> "Makeup":
        categories = Counter(self.categories)
        categories.update(other.categories)
        codes, squares = self.codes + other.codes, self.squares + other.squares
        return Makeup(self.admissions + other.admissions, codes, squares, categories)

    @property
    def mean(self) -> float:
        """Codes per admission."""
        return self.codes / max(self.admissions, 1)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        spread = max(self.squares / max(self.admissions, 1) - self.mean**2, 0.0)
        return float(np.sqrt(spread / max(self.admissions, 1)))


def makeup_of_tokens(vocabulary: Vocabulary, tokens: Tokens) -> dict[str, Any]:
    """Return the make-up of training admissions by ICD version, as a model file keeps it.

    Args:
        vocabulary: of the model.
        tokens: of the training admissions.

    >>> vocabulary = Vocabulary(("I50", "I509"), (10, 10), depths=(3, 4), support=(10, 10))
    >>> tokens = Tokens(np.tile([2, 3], 20), np.arange(0, 41, 2))
    >>> makeup_of_tokens(vocabulary, tokens)["10"]["categories"]
    {'I50': 20}
    """
    texts, versions = ("", "", *vocabulary.tokens), np.array((0, 0, *vocabulary.versions))
    begins = (vocabulary.parents == 0) & ~np.array([text.startswith((PRINCIPAL, MANY)) for text in texts])
    begins[PAD] = False
    ids = np.asarray(tokens.ids)
    mentions = np.bincount(ids, minlength=len(texts))
    row = np.repeat(np.arange(len(tokens)), tokens.counts)[begins[ids]]
    counts = np.bincount(row, minlength=len(tokens))
    version = np.where(counts > 0, 0, -1)
    np.maximum.at(version, row, versions[ids[begins[ids]]])  # the version of a known code
    version[version == 0] = max(vocabulary.versions, default=0)
    support = (0, 0, *(vocabulary.support or (0,) * len(vocabulary.tokens)))
    found: dict[int, Makeup] = {}
    for icd in sorted({*version[version >= 0].tolist()}):
        own = counts[version == icd]
        categories, enough = Counter[str](), set()  # whole categories, as `count_makeup` counts them
        for place in np.flatnonzero(begins & (versions == icd)):
            name = texts[place][:CATEGORY]
            categories[name] += int(mentions[place])
            enough |= {name} if support[place] >= LEAST else set()
        shown = {name: many for name, many in sorted(categories.items()) if name in enough}
        if len(own) >= LEAST:
            found[icd] = Makeup(len(own), int(own.sum()), int((own**2).sum()), shown)
    return {str(icd): asdict(makeup) for icd, makeup in found.items()}


def makeup_of(admissions: Admissions, ignored: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the make-up of recorded admissions by ICD version, as a model file keeps it.

    Args:
        admissions: at least ten of an ICD version.
        ignored: prefixes of codes that a model ignores.

    >>> makeup_of(Admissions.from_lists([["I509"]] * 10, icd_version=10))["10"]["categories"]
    {'I50': 10}
    """
    kept = without(admissions, ignored)
    vocabulary = Vocabulary.fit(kept, depths=(CATEGORY,), min_admissions=LEAST)
    return makeup_of_tokens(vocabulary, vocabulary.encode(kept))


def count_makeup(
    admissions: Admissions, leaves: np.ndarray, categories: tuple[np.ndarray, np.ndarray] | None = None
) -> dict[int, Makeup]:
    """Count the make-up of some admissions.

    Args:
        admissions: recorded codes.
        leaves: `Vocabulary.leaves` of their distinct codes.
        categories: `categories_of` their distinct codes, if known from an earlier batch.

    Returns:
        The make-up by ICD version.

    >>> visits = Admissions.from_lists([["I509", "N179"], ["I500"]], icd_version=10)
    >>> count_makeup(visits, np.full(3, 2))[10].categories
    {'I50': 2, 'N17': 1}
    """
    admissions = admissions.keep(leaves != PAD)
    names, place = categories or categories_of(admissions.values)
    mentions = admissions.mentions
    versions, counts, found = np.unique(admissions.versions[mentions > 0]), admissions.counts, {}
    own = counts[counts > 0]
    parts = {int(icd): own for icd in versions}
    if len(versions) > 1:
        first = admissions.versions[admissions.indices[admissions.offsets[:-1][counts > 0]]]
        parts = {int(icd): own[first == icd] for icd in np.unique(first)}
    for icd, own in parts.items():
        many = np.bincount(place, np.where(admissions.versions == icd, mentions, 0), minlength=len(names)).astype(int)
        there = np.flatnonzero(many)
        recorded = dict(zip(names[there].tolist(), many[there].tolist()))
        found[icd] = Makeup(len(own), int(own.sum()), int(own @ own), recorded)
    return found


def categories_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the categories of distinct codes (`values`), and the index of each code's category.

    >>> categories_of(np.array(["I509", "N179", "I500"]))
    (array(['I50', 'N17'], dtype='<U3'), array([0, 1, 0]))
    """
    names, place = np.unique(values.astype(f"U{CATEGORY}"), return_inverse=True)
    return names, place


@dataclass(frozen=True)
class Agreement:
    """Observed and expected events of one outcome (calibration in the large); instances can be added."""

    admissions: int = 0
    observed: float = 0.0
    expected: float = 0.0
    variance: float = 0.0  # of the number of events, if the risks are correct

    @classmethod
    def of(cls, risk: np.ndarray, outcome: np.ndarray) -> "Agreement":
        """Return the agreement of a `risk` with its `outcome`, on the admissions where both are known.

        >>> Agreement.of(np.array([0.5, 0.3]), np.array([0.0, np.nan]))
        Agreement(admissions=1, observed=0.0, expected=0.5, variance=0.25)
        """
        known = ~np.isnan(outcome) & ~np.isnan(risk)
        risk, outcome = risk[known], outcome[known]
        return cls(len(risk), float(outcome.sum()), float(risk.sum()), float((risk * (1 - risk)).sum()))

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(*(a + b for a, b in zip(astuple(self), astuple(other))))

    def warning(self, name: str) -> str:
        """Return a warning if the risks of the outcome `name` are far off, else an empty string.

        >>> Agreement(10_000, observed=600.0, expected=200.0, variance=190.0).warning("mortality").split(":")[0]
        'the mean risk of in-hospital mortality is 2.0%, and 6.0% had it'
        """
        ratio = self.observed / max(self.expected, 1e-9)
        off = abs(self.observed - self.expected) > SURE * np.sqrt(self.variance)
        if self.admissions < ENOUGH or not off or 1 / OFF < ratio < OFF:
            return ""
        rates = f"{self.expected / self.admissions:.1%}, and {self.observed / self.admissions:.1%} had it"
        return f"the mean risk of {words(name)} is {rates}: `mlci recalibrate` fits the risks to these admissions."


def outcome_columns(path: str | Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read the outcomes that a file holds in addition to codes.

    Args:
        path: a Parquet file of one row per admission; any other file gives none.
        names: of the outcomes to look for.

    Returns:
        The outcomes found: 0, 1, or NaN if unknown.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> with TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"codes": [["I509"], []], "died": [True, None]}), f"{folder}/visits.parquet")
    ...     outcome_columns(f"{folder}/visits.parquet", ["died", "long_stay"])
    {'died': array([ 1., nan], dtype=float32)}
    """
    import pyarrow as pa

    if not str(path).endswith(".parquet"):
        return {}
    with open_parquet(path) as file, reading(path, KIND):
        schema = file.schema_arrow
        whole = schema.get_field_index("codes") >= 0 and pa.types.is_list(schema.field("codes").type)
        found = [name for name in names if name in schema.names and pa.types.is_boolean(schema.field(name).type)]
        table = file.read(found) if whole and found else pa.table({})
    return {name: table[name].cast(pa.float32()).to_numpy() for name in table.column_names}


def shifts(training: Mapping[str, Mapping[str, Any]], found: Mapping[int, Makeup]) -> list[str]:
    """Return sentences on how admissions differ from the training admissions; none if they do not differ much.

    Args:
        training: the make-up of the training admissions, as a model file keeps it (`makeup_of`); empty for older files.
        found: the make-up of the new admissions by ICD version (`count_makeup`, summed over batches).

    >>> alike = {"10": asdict(Makeup(1000, 3000, 9000, {"I50": 1500, "E11": 1500}))}
    >>> shifts(alike, {10: Makeup(200, 1200, 7200, {"I50": 600, "E11": 600})})[0]
    'these admissions have 6.0 codes each, those of training had 3.0, so scores and risks are higher.'
    """
    sentences = []
    for version, here in found.items():
        kind = f"ICD-{version} " if version and len(found) > 1 else ""
        there = _like(training, version)
        if there is None or here.admissions < ENOUGH:
            continue
        ratio = here.mean / max(there.mean, 1e-9)
        if max(ratio, 1 / max(ratio, 1e-9)) > RATIO and abs(here.mean - there.mean) > SURE * here.error:
            sentences.append(
                f"these {kind}admissions have {here.mean:.1f} codes each, those of training had {there.mean:.1f}, so "
                f"scores and risks are {'higher' if ratio > 1 else 'lower'}."
            )
        apart, movers = distance(there, here)
        if apart > DISTANCE:
            named = "; ".join(_mover(code, version, *shares) for code, shares in movers)
            sentences.append(
                f"the mix of {kind}codes differs from that of training by {apart:.0%} (moved most: {named})."
            )
    return sentences


def distance(there: Makeup, here: Makeup) -> tuple[float, list[tuple[str, tuple[float, float]]]]:
    """Return the total variation between two mixes of codes beyond chance, and the categories whose shares differ most.

    Args:
        there: the make-up of the training admissions.
        here: the make-up of the new admissions.

    >>> alike = Makeup(100, 200, 400, {"I50": 100, "N17": 100})
    >>> distance(alike, alike)[0], distance(alike, Makeup(100, 100, 100, {"E11": 100}))[0] > 0.9
    (0.0, True)
    """
    names = list(there.categories)
    p = np.array([*(there.categories[name] for name in names), max(there.codes - sum(there.categories.values()), 0)])
    q = np.array([*(here.categories.get(name, 0) for name in names), 0])
    q[-1] = max(here.codes - q.sum(), 0)
    p, q = p / max(p.sum(), 1), q / max(q.sum(), 1)
    chance = np.sqrt(2 * p * (1 - p) / np.pi * (1 / max(here.codes, 1) + 1 / max(there.codes, 1))).sum() / 2
    largest = np.argsort(-np.abs(q - p)[:-1], kind="stable")[:MOVERS]
    movers = [(names[place], (float(p[place]), float(q[place]))) for place in largest]
    return max(float(np.abs(q - p).sum() / 2 - chance), 0.0), movers


def _like(training: Mapping[str, Mapping[str, Any]], version: int) -> Makeup | None:
    """Return the make-up of the training admissions of a version; of the only version if one side has none."""
    if len(training) == 1 and (version == 0 or "0" in training):
        return Makeup(**next(iter(training.values())))
    return Makeup(**training[str(version)]) if str(version) in training else None


def _mover(code: str, version: int, there: float, here: float) -> str:
    title = category_words(code, version) if version in VERSIONS else None
    return f"{code}{f' {title}' if title else ''} {there:.1%} to {here:.1%}"
