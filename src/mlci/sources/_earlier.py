"""Codes of a patient's earlier admissions in a draft: a draft and a number of days come in, out comes a draft.

Codes of one ICD version are carried to admissions of the same. What was carried was there on admission, and is flagged
so where codes have flags. The column `days_observed` says how far one could look back, and a wash-out leaves out
admissions for which that is less than was asked.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError
from mlci.codes.icd import normalise_array
from mlci.codes.lookback import History, seconds_of
from mlci.sources import Attrition, Draft


def with_history(draft: Draft, days: float, *, wash_out: bool, source: str) -> Draft:
    """Carry the codes of the last so many days, and leave out admissions that were not observed as long if asked."""
    if days <= 0:
        raise InputError(f"look_back: {days} is not allowed; allowed is a number of days above 0.")
    if draft.admitted is None:
        raise InputError(f"source {source}: does not say when admissions began, which a look-back needs.")
    table = draft.table
    seconds, known = seconds_of(draft.admitted, f"source {source}")
    patients = table["subject_id"].combine_chunks().dictionary_encode("encode").indices.to_numpy()
    patients = np.where(known, patients, -1 - np.arange(len(patients)))  # without a time, nobody's past or future
    versions = table["icd_version"].to_numpy()
    lists = table["codes"].combine_chunks()
    flat = lists.flatten().dictionary_encode()
    distinct = normalise_array(flat.dictionary.cast(pa.string())).dictionary_encode("encode").indices.to_numpy()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    same = History.of(patients * np.int64(16) + versions, seconds, days)
    places, ends, carried = same.codes(distinct[flat.indices.to_numpy()], offsets)
    ends = pa.array(ends.astype(np.int32))
    codes = pa.ListArray.from_arrays(ends, lists.flatten().take(pa.array(places)))
    table = table.set_column(table.column_names.index("codes"), "codes", codes)
    if "poa" in table.column_names:
        flags = pc.if_else(pa.array(carried), "Y", table["poa"].combine_chunks().flatten().take(pa.array(places)))
        table = table.set_column(table.column_names.index("poa"), "poa", pa.ListArray.from_arrays(ends, flags))
    observed = History.of(patients, seconds, days).days_observed()
    table = table.append_column("days_observed", pa.array(observed))
    more = np.unique(np.repeat(np.arange(len(lists)), np.diff(ends))[carried])
    said = f"look-back of {days:g} days: {len(more):,} admissions carry {int(carried.sum()):,} codes of earlier ones."
    steps = Attrition(table, "")
    if wash_out:
        rule = f"{days:g} days or more since the patient's first admission"
        steps.keep(pa.array(observed >= days), rule)
    return replace(
        draft,
        table=steps.table,
        attrition=(*draft.attrition, *steps.steps[1:]),
        notes=(*draft.notes, said),
        admitted=None,
    )
