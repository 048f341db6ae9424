"""Codes of a patient's earlier admissions: a table of admissions and when each began come in, out comes a longer one.

Codes of one ICD version are carried to admissions of the same; those of the other version are counted. What was carried
was there on admission, and is flagged so where codes have flags. A draft whose source knows times gets the column
`days_observed`, the days since the patient's first admission: how far one can look back. A wash-out leaves out
admissions for which that is less than was asked.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError
from mlci.codes.carrying import Carry
from mlci.codes.icd import normalise_array
from mlci.codes.lookback import DAY, OBSERVED, History, seconds_of, since_first
from mlci.sources import Attrition, Draft


@dataclass(frozen=True)
class Carried:
    """Admissions with the codes of earlier ones, and how many there are of what."""

    table: pa.Table
    days: float
    codes: np.ndarray  # how many each admission carries
    other: np.ndarray  # how many of the past it does not, as they are of the other ICD version
    rule: Carry | None

    def words(self, left: np.ndarray | None = None) -> str:
        """Return a sentence on what was carried and what was not, of the admissions that are left."""
        codes, other = (many if left is None else many[left] for many in (self.codes, self.other))
        said = f"{(codes > 0).sum():,} admissions carry {codes.sum():,} codes of earlier ones"
        lost = f"; {other.sum():,} codes of the other ICD version are not carried" if other.any() else ""
        which = f" ({self.rule.words})" if self.rule else ""
        return f"look-back of {self.days:g} days{which}: {said}{lost}."


def with_times(draft: Draft, source: str, *, needed: bool) -> Draft:
    """Add the days since each patient's first admission, where the source knows when admissions began.

    Times that cannot be read are an error if they are needed, else a note.
    """
    if draft.admitted is None:
        return draft
    if OBSERVED in draft.table.column_names:
        raise InputError(f"source {source}: the name {OBSERVED} is taken; give the kept column another one.")
    try:
        seconds, known = seconds_of(draft.admitted, f"source {source}")
    except InputError as error:
        if needed:
            raise
        return replace(draft, notes=(*draft.notes, f"{error} Without times, nothing can look back on this cohort."))
    patients, known = _patients(draft.table, known)
    days = pa.array(since_first(patients, seconds) / DAY, mask=~known)
    return replace(draft, table=draft.table.append_column(OBSERVED, days))


def with_history(draft: Draft, days: float, rule: Carry | None, *, wash_out: bool, source: str) -> Draft:
    """Carry the codes of the last so many days, and leave out admissions that were not observed as long if asked."""
    if OBSERVED not in draft.table.column_names:
        raise InputError(f"source {source}: does not say when admissions began, which a look-back needs.")
    found = carry(draft.table, days, rule)
    steps, left = Attrition(found.table, ""), None
    if wash_out:
        left = pc.fill_null(pc.greater_equal(found.table[OBSERVED], days), False).to_numpy()
        steps.keep(pa.array(left), f"{days:g} days or more since the patient's first admission")
    attrition, notes = (*draft.attrition, *steps.steps[1:]), (*draft.notes, found.words(left))
    return replace(draft, table=steps.table, attrition=attrition, notes=notes)


def carry(table: pa.Table, days: float, rule: Carry | None = None) -> Carried:
    """Put the codes of a patient's admissions of the last so many days behind each admission's own, each once.

    By a rule, each code only as long as that says.
    """
    if not 0 < days < np.inf:
        raise InputError(f"look_back: {days:g} is not allowed; allowed is a number of days above 0.")
    observed = table[OBSERVED].combine_chunks()
    patients, _ = _patients(table, observed.is_valid().to_numpy(zero_copy_only=False))
    seconds = np.rint(pc.fill_null(observed, 0).to_numpy() * DAY).astype(np.int64)
    versions = table["icd_version"].to_numpy().astype(np.int64)
    lists = table["codes"].combine_chunks()
    flat = lists.flatten().dictionary_encode()
    cleaned = normalise_array(flat.dictionary.cast(pa.string()))
    distinct = cleaned.dictionary_encode("encode").indices.to_numpy()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    same = History.of(patients * 16 + versions, seconds, days)
    recorded = flat.indices.to_numpy()
    reach = None if rule is None else _reach(rule, cleaned, recorded, np.repeat(versions, lengths))
    places, offsets, carried = same.codes(distinct[recorded], offsets, reach)
    ends = pa.array(offsets.astype(np.int32))
    moved = pa.DictionaryArray.from_arrays(pa.array(recorded[places]), flat.dictionary)
    codes = pa.ListArray.from_arrays(ends, moved.cast(lists.type.value_type))  # of the type that came in
    table = table.set_column(table.column_names.index("codes"), "codes", codes)
    if "poa" in table.column_names:
        flags = pc.if_else(pa.array(carried), "Y", table["poa"].combine_chunks().flatten().take(pa.array(places)))
        table = table.set_column(table.column_names.index("poa"), "poa", pa.ListArray.from_arrays(ends, flags))
    other = _of_the_other(patients, seconds, versions, lengths, days)
    return Carried(table, days, np.diff(offsets) - lengths, other, rule)


def _reach(rule: Carry, codes: pa.Array, recorded: np.ndarray, versions: np.ndarray) -> np.ndarray:
    """Return for how many days each recorded code is carried."""
    distinct, place = np.unique(pc.fill_null(codes, "").to_numpy(zero_copy_only=False), return_inverse=True)
    found = np.zeros(len(recorded))
    for version in np.unique(versions):
        rows = versions == version
        found[rows] = rule.reach(distinct, int(version))[place[recorded[rows]]]
    return found


def _patients(table: pa.Table, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each patient; an admission without a time or a patient is nobody's past or future."""
    encoded = table["subject_id"].combine_chunks().dictionary_encode()
    known = known & encoded.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(encoded.indices, 0).to_numpy().astype(np.int64)
    return np.where(known, numbers, len(encoded.dictionary) + np.arange(len(known))), known


def _of_the_other(
    patients: np.ndarray, seconds: np.ndarray, versions: np.ndarray, lengths: np.ndarray, days: float
) -> np.ndarray:
    """Return how many codes of each admission's earlier ones are of another ICD version than it."""
    found = np.zeros(len(lengths), dtype=np.int64)
    if not (versions == versions[:1]).all():
        for late, early in History.of(patients, seconds, days).pairs():
            found[late] += np.where(versions[late] != versions[early], lengths[early], 0)
    return found
