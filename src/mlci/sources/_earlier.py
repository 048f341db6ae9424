"""Add the codes of a patient's earlier admissions to a table of admissions whose times are known.

Codes are carried only to admissions of the same ICD version; codes of the other version are counted. A carried code was
present on admission and is flagged as such if the codes have flags. If the source has times, the table gets a column
`days_observed`: the days since the patient's first admission, that is, how far one can look back. A wash-out leaves out
admissions that were observed for fewer days than asked.
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
    """Admissions with the codes of earlier ones, and the numbers of carried codes."""

    table: pa.Table
    days: float
    codes: np.ndarray  # for each admission, the number of carried codes
    other: np.ndarray  # for each admission, the number of earlier codes not carried because of their ICD version
    rule: Carry | None

    def words(self, kept: np.ndarray | None = None) -> str:
        """Return a sentence on the codes carried and not carried, over all admissions or those that are `kept`."""
        codes, other = (counts if kept is None else counts[kept] for counts in (self.codes, self.other))
        carried = f"{(codes > 0).sum():,} admissions carry {codes.sum():,} codes of earlier ones"
        lost = f"; {other.sum():,} codes of the other ICD version are not carried" if other.any() else ""
        rule = f" ({self.rule.words})" if self.rule else ""
        return f"look-back of {self.days:g} days{rule}: {carried}{lost}."


def with_times(draft: Draft, source: str, *, needed: bool) -> Draft:
    """Add the days since each patient's first admission, if the source has the times of admission.

    Times that cannot be read raise an error if they are `needed`; else a note says so.
    """
    if draft.admitted is None:
        return draft
    if OBSERVED in draft.table.column_names:
        raise InputError(f"source {source}: the name {OBSERVED} is taken; give the kept column another one.")
    try:
        seconds, known = seconds_of(draft.admitted, f"source {source}", draft.rows)
    except InputError as error:
        if needed:
            raise
        return replace(draft, notes=(*draft.notes, f"{error} Without times, nothing can look back on this cohort."))
    patients, known = _patients(draft.table, known)
    days = pa.array(since_first(patients, seconds) / DAY, mask=~known)
    return replace(draft, table=draft.table.append_column(OBSERVED, days))


def with_history(draft: Draft, days: float, rule: Carry | None, *, wash_out: bool, source: str) -> Draft:
    """Add the codes of the last `days`; with `wash_out`, leave out admissions observed for fewer days."""
    if OBSERVED not in draft.table.column_names:
        raise InputError(f"source {source}: does not say when admissions began, which a look-back needs.")
    found = add_earlier_codes(draft.table, days, rule)
    steps, kept = Attrition(found.table, ""), None
    if wash_out:
        kept = pc.fill_null(pc.greater_equal(found.table[OBSERVED], days), False).to_numpy()
        steps.keep(pa.array(kept), f"{days:g} days or more since the patient's first admission")
    attrition, notes = (*draft.attrition, *steps.steps[1:]), (*draft.notes, found.words(kept))
    return replace(draft, table=steps.table, attrition=attrition, notes=notes)


def add_earlier_codes(table: pa.Table, days: float, rule: Carry | None = None) -> Carried:
    """Append the codes of a patient's admissions of the last `days` to each admission's own codes, each code once.

    A `rule` may limit how long each code counts.
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
    same_version = History.of(patients * 16 + versions, seconds, days)
    recorded = flat.indices.to_numpy()
    reach = None if rule is None else _reach(rule, cleaned, recorded, np.repeat(versions, lengths))
    places, offsets, carried = same_version.codes(distinct[recorded], offsets, reach)
    ends = pa.array(offsets.astype(np.int32))
    extended = pa.DictionaryArray.from_arrays(pa.array(recorded[places]), flat.dictionary)
    codes = pa.ListArray.from_arrays(ends, extended.cast(lists.type.value_type))  # of the type that came in
    table = table.set_column(table.column_names.index("codes"), "codes", codes)
    if "poa" in table.column_names:
        flags = pc.if_else(pa.array(carried), "Y", table["poa"].combine_chunks().flatten().take(pa.array(places)))
        table = table.set_column(table.column_names.index("poa"), "poa", pa.ListArray.from_arrays(ends, flags))
    other = _of_other_version(patients, seconds, versions, lengths, days)
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
    """Return a number for each patient; an admission without a time or a patient gets a number of its own."""
    encoded = table["subject_id"].combine_chunks().dictionary_encode()
    known = known & encoded.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(encoded.indices, 0).to_numpy().astype(np.int64)
    return np.where(known, numbers, len(encoded.dictionary) + np.arange(len(known))), known


def _of_other_version(
    patients: np.ndarray, seconds: np.ndarray, versions: np.ndarray, lengths: np.ndarray, days: float
) -> np.ndarray:
    """Return for each admission how many codes of the patient's earlier admissions are of another ICD version."""
    found = np.zeros(len(lengths), dtype=np.int64)
    if not (versions == versions[:1]).all():
        for late, early in History.of(patients, seconds, days).pairs():
            found[late] += np.where(versions[late] != versions[early], lengths[early], 0)
    return found
