"""Turn a source's draft into the table of a cohort: the steps that all sources share.

Codes are normalised and blank ones dropped, each admission gets a split, columns get the order and types of a cohort
file, and rows are sorted by id. Notes report what was dropped or is in doubt. Repeated admissions, and a draft without
any code, raise an error.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlci.base.errors import InputError, kind_of
from mlci.base.shares import md5_split
from mlci.base.threads import threads
from mlci.codes.audit import audit
from mlci.codes.icd import normalise_array
from mlci.codes.zeros import restored
from mlci.sources import Draft
from mlci.sources._cohort_file import COLUMNS, SPLITS
from mlci.sources._twins import repeated


def assembled(draft: Draft, source: str, *, split_by: str, proportions: Sequence[float], restore_zeros: bool) -> Draft:
    """Return the draft with the table of a cohort; `source` is named in messages."""
    table, notes = draft.table, list(draft.notes)
    if not len(table):
        rule = draft.attrition[-1].rule if draft.attrition else "the table"
        raise InputError(f"source {source}: no admission is left after the rule {rule!r}.")
    ids = table["admission_id"]
    twice = repeated(ids)
    if twice or ids.null_count:
        reason = f"{twice} rows repeat an earlier one" if twice else f"{ids.null_count} rows have none"
        raise InputError(f"source {source}: admission_id must name one admission, but {reason}.")
    if not pc.all(pc.less(ids[:-1], ids[1:])).as_py():
        table = table.take(pc.sort_indices(ids))
    codes, full = _normalise(table["codes"].combine_chunks(), restore_zeros=restore_zeros)
    if blank := int((~full).sum()):
        notes.append(f"{blank} diagnoses hold neither letter nor digit and were dropped.")
    if not len(codes.flatten()):
        raise InputError(f"source {source}: none of {len(table)} admissions has a diagnosis.")
    notes += _doubts(codes, table["icd_version"].to_numpy())
    table = table.set_column(table.column_names.index("codes"), "codes", codes)
    if "poa" in table.column_names:
        flags = table["poa"].combine_chunks().flatten().filter(pa.array(full))
        table = table.set_column(table.column_names.index("poa"), "poa", pa.ListArray.from_arrays(codes.offsets, flags))
    order = (*COLUMNS[:4], *draft.outcomes)
    rest = [name for name in table.column_names if name not in (*order, "split")]
    with threads(1) as pool:  # Arrow works without the GIL while the splits are drawn
        split = pool.submit(_splits, table, source, split_by, proportions)
        table = table.select([*order, *rest])
        table = table.cast(_canonical(table.schema))
        table = table.add_column(len(order), "split", split.result())
    if ("split" in draft.table.column_names or split_by != "subject_id") and (divided := _divided(table)):
        notes.append(
            f"{divided:,} patients have admissions in more than one split, so figures of the test split look too good."
        )
    return replace(draft, table=table.combine_chunks(), notes=tuple(notes))


def _splits(table: pa.Table, source: str, split_by: str, proportions: Sequence[float]) -> pa.Array | pa.ChunkedArray:
    """Return the split of each admission: that of the source, or a drawn one."""
    if "split" in table.column_names:
        odd = [name for name in table["split"].unique().to_pylist() if name not in SPLITS]
        if odd:
            raise InputError(
                f"source {source}: column split: {kind_of(odd[0])} is not a split; allowed are {', '.join(SPLITS)}."
            )
        return table["split"]
    if split_by not in table.column_names:
        raise InputError(f"source {source}: no column {split_by} to split by; it has {', '.join(table.column_names)}.")
    return _split(table[split_by], proportions)


def _divided(table: pa.Table) -> int:
    """Return how many patients have admissions in more than one split."""
    known = table.select(["subject_id", "split"]).drop_null()
    splits = known.group_by("subject_id").aggregate([("split", "count_distinct")])["split_count_distinct"]
    return pc.sum(pc.greater(splits, 1)).as_py() or 0


def check_proportions(proportions: Sequence[float]) -> None:
    """Refuse proportions that are not three shares with the sum 1."""
    if len(proportions) != 3 or not (min(proportions) >= 0 and abs(sum(proportions) - 1) <= 1e-9):  # NaN is refused
        raise InputError(
            f"proportions {tuple(proportions)}: allowed are three shares (train, valid, test) that sum to 1."
        )


def _split(keys: pa.ChunkedArray, proportions: Sequence[float]) -> pa.Array:
    """Return the paper's split, by a hash of the keys as text."""
    encoded = pa.chunked_array([keys.combine_chunks()]).combine_chunks().dictionary_encode()
    text = encoded.dictionary.cast(pa.string()).to_pylist()
    part = md5_split(text, proportions)
    return pa.array(SPLITS).take(pa.array(part)).take(encoded.indices)


def _doubts(codes: pa.ListArray, versions: np.ndarray) -> list[str]:
    """Return warnings from a comparison of the dictionary-encoded codes with the ICD tables."""
    found, flat = [], codes.flatten()
    for number in np.unique(versions):
        known = versions == number
        chosen = flat if known.all() else codes.filter(pa.array(known)).flatten()
        counts = np.bincount(chosen.indices.to_numpy(), minlength=len(flat.dictionary))
        met = pa.array(counts > 0)
        found += audit(flat.dictionary.filter(met), counts[counts > 0], int(number)).warnings
    return found


def _normalise(lists: pa.ListArray, *, restore_zeros: bool) -> tuple[pa.ListArray, np.ndarray]:
    """Return normalised codes, dictionary-encoded, and which of the recorded codes were not blank.

    Normalised codes have capitals and digits only. A null list becomes an empty one.
    """
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    flat = lists.flatten().dictionary_encode()
    codes = restored(flat.dictionary) if restore_zeros else normalise_array(flat.dictionary)
    spelled = codes.dictionary_encode()  # several ways to write a code become one
    numbers = spelled.indices.take(flat.indices)
    blank = pc.index(spelled.dictionary, "")
    full = pc.fill_null(pc.not_equal(numbers, blank), False).to_numpy(False)
    if not full.all():
        lengths = np.bincount(np.repeat(np.arange(len(lists)), lengths)[full], minlength=len(lists))
        numbers = numbers.filter(pa.array(full))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.DictionaryArray.from_arrays(numbers, spelled.dictionary)
    ), full


def _canonical(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the types of a cohort file, which engines may write in other types."""
    fields = []
    for column in schema:
        kind = column.type
        if column.name == "icd_version":
            kind = pa.int8()
        elif column.name in ("admission_id", "subject_id"):
            kind = pa.int64() if pa.types.is_integer(kind) else pa.string()
        elif column.name in ("codes", "poa"):
            kind = pa.list_(pa.string())
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)
