"""How far admissions are what a model was made for: counted batch by batch, told in sentences.

In come admissions, with their percentiles and the outcomes that are known of them; out comes what a person should be
told: codes that are unknown or of another ICD version, zeros that a spreadsheet ate, admissions unlike the training's.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlci.codes import certainty
from mlci.codes.admissions import Admissions
from mlci.index._understanding import hardly
from mlci.index.model import Model
from mlci.index.shift import ENOUGH, Agreement, Makeup, categories_of, counted, shifts
from mlci.tokens import UNK

SHIFT = 20  # percentiles from the middle from which a shift is reported
UNKNOWN = 0.1  # share of unknown codes from which it is


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
    unsure: int = 0  # codes that do not count, as suspected or ruled out
    attached: Counter = field(default_factory=Counter)  # code that may be German, with a letter of certainty -> codes
    unsaid: int = 0  # codes of no ICD version, where the model knows two
    placed: int = 0  # admissions whose percentile was told
    percentiles: float = 0.0  # their sum
    of_file: tuple[str, ...] = ()  # what a person should know of the file itself, a sentence each
    missing: tuple[str, ...] = ()  # of age and sex, which the risks take and the data do not have
    makeup: Mapping[int, Makeup] = field(default_factory=dict)  # of these admissions, by ICD version
    agreements: Mapping[str, Agreement] = field(default_factory=dict)  # risks and outcomes, where these are known
    looked: "_Looked | None" = None  # at the distinct codes of the last batch: batches of a file often share them

    def add(
        self,
        admissions: Admissions,
        columns: Mapping[str, np.ndarray] | None = None,
        agreements: Mapping[str, Agreement] | None = None,
    ) -> "Tally":
        """Return the tally with more admissions counted.

        Args:
            admissions: normalised codes.
            columns: what `Model.columns` gave of them, or the percentile alone; admissions that have one are compared
                with the training admissions.
            agreements: risks and outcomes, by outcome, where these are known.
        """
        columns = columns or {}
        percentile = columns.get("percentile")
        values, versions, looked = admissions.values, admissions.versions, self.looked
        if looked is None or looked.values is not values or not np.array_equal(looked.versions, versions):
            attached = certainty.attached(values)
            looked = _Looked(values, versions, self._stripped(admissions), categories_of(values), attached)
        often = dict(zip(values[looked.attached], admissions.mentions[looked.attached].tolist()))
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
            few=self.few + hardly(admissions, leaves, columns.get("unknown_share")),
            empty=self.empty + int((admissions.counts == 0).sum()),
            foreign=foreign,
            stripped=self.stripped + max(int(admissions.mentions[looked.lost].sum()), admissions.short),
            unsure=self.unsure + admissions.unsure,
            attached=self.attached + Counter(often),
            unsaid=self.unsaid + (int(admissions.mentions[admissions.versions == 0].sum()) if len(own) > 1 else 0),
            placed=self.placed + (0 if percentile is None else int(np.isfinite(percentile).sum())),
            percentiles=self.percentiles + (0.0 if percentile is None else float(np.nansum(percentile))),
            of_file=self.of_file,
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
        found = [*self.of_file]
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
        found += certainty.told(self.unsure, self.attached)
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
    attached: np.ndarray  # where the codes stand that `certainty.attached` finds


def _summed(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return parts of equal names added up."""
    return {**left, **{name: left[name] + part if name in left else part for name, part in right.items()}}
