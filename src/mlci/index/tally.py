"""Check admissions against a model: count problems batch by batch, and report them as warnings.

Turn admissions, with their percentiles and known outcomes, into sentences: unknown codes, codes of another ICD version,
leading zeros that a spreadsheet removed, and admissions that differ from the training admissions.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mlci.base.lazy import lazy_property
from mlci.codes import certainty, zeros
from mlci.codes.admissions import Admissions
from mlci.codes.audit import only_in_other
from mlci.codes.icd import LONGEST, OTHER
from mlci.index._people import absence_warning
from mlci.index._understanding import poorly_understood
from mlci.index.model import Model
from mlci.index.shift import ENOUGH, Agreement, Makeup, categories_of, count_makeup, shifts
from mlci.tokens import UNK

SHIFT = 20  # percentiles between the mean and 50 from which a shift is reported
UNKNOWN = 0.1  # share of unknown codes from which they are reported as a shift
COMMON = 20  # an error that one code in so many has is that of a file, not of single codes


@dataclass(frozen=True)
class Tally:
    """Counts of what a model did not understand in some admissions, and of how these differ from its training.

    >>> from mlci.index.estimator import load
    >>> model = load("us2010").model_
    >>> tally = Tally(model).add(model.as_admissions([["ZZZ99"]], icd_version=10))
    >>> tally.codes, tally.unknown, tally.warnings()[0]
    (1, 1, '1 of 1 codes are unknown to the model: scores mean little.')
    >>> tally.problems(strict=True)[1]
    'in 1 of 1 admissions, fewer than half of the codes are understood: they have no score.'
    >>> tally.shift()  # too few admissions
    []
    """

    model: Model
    admissions: int = 0
    codes: int = 0
    unknown: int = 0
    few: int = 0  # admissions with codes, fewer than half of them understood
    empty: int = 0  # admissions without codes
    overlong: int = 0  # admissions with more codes than count
    foreign: Counter = field(default_factory=Counter)  # ICD version other than the model's -> codes
    misread: Counter = field(default_factory=Counter)  # ICD version -> its unknown codes that only the other has
    stripped: int = 0  # ICD-9 codes that lack a leading zero
    lengthy: int = 0  # codes with more characters than those of their ICD version, of which a beginning is known
    unsure: int = 0  # codes marked as suspected or ruled out, which do not count
    attached: Counter = field(default_factory=Counter)  # code that may end in a German diagnostic-certainty letter
    unversioned: int = 0  # codes without an ICD version, if the model knows two
    scored: int = 0  # admissions with a percentile
    percentiles: float = 0.0  # their sum
    of_file: tuple[str, ...] = ()  # warnings about the file itself
    missing: tuple[str, ...] = ()  # of age and sex: those that the risks depend on and the data lack
    makeup: Mapping[int, Makeup] = field(default_factory=dict)  # of these admissions, by ICD version
    agreements: Mapping[str, Agreement] = field(default_factory=dict)  # risks and outcomes, by outcome
    last_codes: "_DistinctCodes | None" = None  # of the last batch: the batches of a file often share them

    def add(
        self,
        admissions: Admissions,
        columns: Mapping[str, np.ndarray] | None = None,
        agreements: Mapping[str, Agreement] | None = None,
    ) -> "Tally":
        """Return the tally with more admissions counted.

        Args:
            admissions: normalised codes.
            columns: the result of `Model.columns`, or the percentile alone. With a percentile, admissions are compared
                with the training admissions.
            agreements: risks and outcomes, by outcome, if known.
        """
        columns = columns or {}
        percentile = columns.get("percentile")
        values, versions, codes = admissions.values, admissions.versions, self.last_codes
        if codes is None or codes.values is not values or not np.array_equal(codes.versions, versions):
            attached = certainty.attached(values)
            stripped, lengthy = self._stripped(admissions), self._lengthy(admissions)
            codes = _DistinctCodes(values, versions, stripped, lengthy, categories_of(values), attached)
        often = dict(zip(values[codes.attached], admissions.mentions[codes.attached].tolist()))
        leaves = self.model.vocabulary.leaves(admissions)
        unknown = leaves <= UNK
        makeup = {} if percentile is None else count_makeup(admissions, leaves, codes.categories)
        own, foreign = self.model.icd_versions, Counter(self.foreign)
        for version in np.unique(admissions.versions[admissions.mentions > 0]):
            if version and 0 not in own and version not in own:
                foreign[int(version)] += int(admissions.mentions[admissions.versions == version].sum())
        return Tally(
            self.model,
            admissions=self.admissions + len(admissions),
            codes=self.codes + len(admissions.indices),
            unknown=self.unknown + int(admissions.mentions[unknown].sum()),
            few=self.few + poorly_understood(admissions, leaves, columns.get("unknown_share")),
            empty=self.empty + int((admissions.counts == 0).sum()),
            overlong=self.overlong + int((admissions.counts > self.model.vocabulary.max_codes).sum()),
            foreign=foreign,
            misread=self.misread + self._misread(admissions, codes, unknown),
            stripped=self.stripped + max(int(admissions.mentions[codes.stripped].sum()), admissions.short),
            lengthy=self.lengthy + int(admissions.mentions[codes.lengthy & (leaves > UNK)].sum()),
            unsure=self.unsure + admissions.unsure,
            attached=self.attached + Counter(often),
            unversioned=self.unversioned
            + (int(admissions.mentions[admissions.versions == 0].sum()) if len(own) > 1 else 0),
            scored=self.scored + (0 if percentile is None else int(np.isfinite(percentile).sum())),
            percentiles=self.percentiles + (0.0 if percentile is None else float(np.nansum(percentile))),
            of_file=self.of_file,
            missing=self.missing,
            makeup=_summed(self.makeup, makeup),
            agreements=_summed(self.agreements, agreements or {}),
            last_codes=codes,
        )

    def _misread(self, admissions: Admissions, codes: "_DistinctCodes", unknown: np.ndarray) -> Counter:
        """Count the unknown codes that only the other ICD version has, by version, if unknown codes are common."""
        own, mentions = self.model.icd_versions, admissions.mentions
        if mentions[unknown].sum() * COMMON < len(admissions.indices):
            return Counter()
        read_as = np.where(codes.versions == 0, own[0] if len(own) == 1 else 0, codes.versions)
        other = {version: unknown & (read_as == version) & codes.only_in_other[version] for version in OTHER}
        return Counter({version: int(mentions[rows].sum()) for version, rows in other.items()})

    def _stripped(self, admissions: Admissions) -> np.ndarray:
        """Return which distinct codes lack a leading zero; ICD-10 codes have none."""
        nine = admissions.versions == 9 if 10 in self.model.icd_versions else admissions.versions != 10
        found = np.zeros(len(nine), dtype=bool)
        if nine.any():
            found[nine] = zeros.stripped(pa.array(admissions.values[nine], pa.string()))
        return found

    def _lengthy(self, admissions: Admissions) -> np.ndarray:
        """Return which distinct codes are longer than those of their ICD version, unless they are tokens themselves."""
        values, versions, has = admissions.values, admissions.versions, self.model.vocabulary.has
        found = np.fromiter(map(len, values), np.int64, len(values)) > np.where(versions == 9, LONGEST[9], LONGEST[10])
        found[found] = [not has(int(version), code) for version, code in zip(versions[found], values[found])]
        return found

    def warnings(self, *, strict: bool = False) -> list[str]:
        """Return all warnings, one sentence each.

        Args:
            strict: whether admissions with fewer than half of their codes understood have no score.
        """
        return [*self.problems(strict=strict), *self.shift()]

    def problems(self, *, strict: bool = False) -> list[str]:
        """Return warnings on input that was misread or not understood; `strict` is as in `warnings`."""
        found = [*self.of_file]
        if self.missing:
            found.append(absence_warning(self.model.people, self.missing))
        if self.foreign:
            own = " and ".join(f"ICD-{version}" for version in self.model.icd_versions)
            version, many = self.foreign.most_common(1)[0]
            found.append(f"{many:,} of {self.codes:,} codes are ICD-{version}; the model was made for {own}.")
        for version, many in self.misread.items():
            if many * COMMON >= self.codes:
                found.append(
                    f"{many:,} of {self.codes:,} codes were read as ICD-{version}, but only the table of "
                    f"ICD-{OTHER[version]} has them; is the ICD version right?"
                )
        if self.unversioned:
            own = " and ".join(f"ICD-{version}" for version in self.model.icd_versions)
            found.append(
                f"{self.unversioned:,} of {self.codes:,} codes have no ICD version, and the model knows {own}: state "
                "the version."
            )
        found += certainty.notes(self.unsure, self.attached)
        if self.stripped * COMMON > self.codes:
            found.append(
                f"{self.stripped:,} of {self.codes:,} codes lack a leading zero (38.9 for 038.9), as if a spreadsheet "
                "had removed it; they are read as they are (--restore-zeros restores it)."
            )
        if self.lengthy:
            found.append(
                f"{self.lengthy:,} of {self.codes:,} codes are longer than any code of their ICD version; each counts "
                "as the code with which it begins."
            )
        if self.unknown > self.codes / 2:
            found.append(f"{self.unknown:,} of {self.codes:,} codes are unknown to the model: scores mean little.")
        if self.few:
            result = "they have no score" if strict else "their scores mean nothing (strict scoring omits them)"
            which = f"{self.few:,} of {self.admissions:,} admissions"
            found.append(f"in {which}, fewer than half of the codes are understood: {result}.")
        if self.overlong:
            most, which = self.model.vocabulary.max_codes, f"{self.overlong:,} of {self.admissions:,} admissions"
            found.append(f"{which} have more than {most} codes: the first {most} count.")
        if strict and self.empty:
            found.append(f"{self.empty:,} of {self.admissions:,} admissions have no code and therefore no score.")
        return found

    def shift(self) -> list[str]:
        """Return warnings on how these admissions differ from those of training, if there are enough of them."""
        found = []
        if self.scored >= ENOUGH and self.codes * UNKNOWN < self.unknown <= self.codes / 2:
            found.append(f"{self.unknown / self.codes:.0%} of {self.codes:,} codes are unknown to the model.")
        if self.scored >= ENOUGH and abs((mean := self.percentiles / self.scored) - 50) > SHIFT:
            other = "more severe" if mean > 50 else "milder"
            found.append(
                f"the mean percentile is {mean:.0f}, and 50 is that of the training admissions: these are {other}, or "
                "recorded differently; `mlci recalibrate` fits risks, percentiles and cutoff to them."
            )
        found += shifts(self.model.card.get("makeup", {}), self.makeup)
        agreements = (agreement.warning(name) for name, agreement in self.agreements.items())
        return found + [sentence for sentence in agreements if sentence]


@dataclass(frozen=True)
class _DistinctCodes:
    """Properties of the distinct codes of a batch."""

    values: np.ndarray
    versions: np.ndarray
    stripped: np.ndarray  # whether they lack a leading zero
    lengthy: np.ndarray  # as `Tally._lengthy` returns it
    categories: tuple[np.ndarray, np.ndarray]  # `shift.categories_of` the codes
    attached: np.ndarray  # positions of the codes that `certainty.attached` finds

    @lazy_property
    def only_in_other(self) -> dict[int, np.ndarray]:
        """Whether they exist only in the other ICD version, if read as of each version."""
        codes = pa.array(self.values, pa.string())
        return {version: only_in_other(codes, version) for version in OTHER}


def _summed(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the values of two mappings added up by key."""
    return {**left, **{name: left[name] + part if name in left else part for name, part in right.items()}}
