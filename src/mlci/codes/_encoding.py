"""Turn Arrow tables of admissions and codes into `Admissions`: codes, flags and ICD versions are read only here.

A table has one of the layouts of `mlci.codes.layout`: a list or a text of codes per admission, a column for each code,
or a row for each code. The admissions are dictionary-encoded. An error names file, column and row of what cannot be
read.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError, kind_of
from mlci.codes._cells import SEPARATORS, split_cells, split_texts
from mlci.codes.admissions import WRITTEN_VERSION, Admissions
from mlci.codes.certainty import BARE, read_letters
from mlci.codes.layout import Layout
from mlci.codes.poa import late, read_flags

if TYPE_CHECKING:
    import pyarrow as pa

ROW = "__row__"  # a column that holds the positions of rows in their table, once rows were moved
SCIENTIFIC = r"^\d(?:[.,]\d+)?E\+\d+$"
NO_CODE = ("", "NA", "NAN", "NULL", "NONE", "UNKNOWN", "MISSING")  # normalised cells that hold no code
ZEROS = "codes must be text, since numbers lose leading zeros (038.9 becomes 38.9)"


class AdmissionsEncoder:
    """Encodes tables of one layout, batch after batch.

    It counts the rows that it has read, for messages, and keeps the last dictionary of codes that it cleaned.

    Args:
        layout: which columns hold what.
        where: the table's name in messages.
        icd_version: 9 or 10 for codes whose version the table does not state.
        restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.
        unused: let `values` hold codes that the batch does not have, so that several batches share one array.
        row_number: gives the number of a row in messages, from its position among all rows.
    """

    def __init__(
        self,
        layout: Layout,
        where: str,
        icd_version: int | None,
        *,
        restore_zeros: bool = False,
        unused: bool = False,
        row_number: Callable[[Any], Any] = lambda place: place + 1,
    ):
        from mlci.codes.icd import check_version

        self.layout, self.where, self.unused = layout, where, unused
        self.version = 0 if icd_version is None else check_version(icd_version)
        self.restore_zeros, self.row_number = restore_zeros, row_number
        self.rows = self.short = self.unsure = 0
        self.flags: np.ndarray | None = None  # one per recorded code of the current table
        self.cleaned: tuple[Any, np.ndarray, np.ndarray | None, np.ndarray, np.ndarray, np.ndarray | None] | None = None
        self.merged: tuple[list[Any], Any, list[np.ndarray]] | None = None

    def __call__(self, table: "pa.Table") -> Admissions:
        ids, codes, versions, lengths = getattr(self, f"_{self.layout.form}")(table)
        self.rows += len(table)
        return self._pack(ids, codes, versions, lengths)

    def _list(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Read a table with one row per admission, its codes in a list or a text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        (name,) = self.layout.codes
        column = self._plain(table[name], name)
        if _is_text(column.type):
            lists = split_texts(column.cast(pa.string()), self.version)
            codes = lists.flatten().dictionary_encode()
            # A letter of certainty without a code is left out.
            values = pc.if_else(pc.match_substring_regex(codes.dictionary, BARE), "", codes.dictionary)
        else:
            lists = _as_lists(column)
            codes = _dictionary_encoded(self._text(lists.flatten(), name))
            values = codes.dictionary
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        flags = self._list_flags(table, lengths) if self.layout.poa else None
        return self._by_row(table, values, _indices(codes), lengths, flags)

    def _wide(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Read a table with one row per admission and a column for each code, with one dictionary for all columns."""
        columns = [_dictionary_encoded(self._text(one_chunk(table[name]), name)) for name in self.layout.codes]
        dictionary, translations = self._merge([column.dictionary for column in columns])
        places = np.zeros((len(columns), len(table)), dtype=np.int32)
        present = np.ones(places.shape, dtype=bool)
        for column, translation, places_of, present_in in zip(columns, translations, places, present):
            if len(translation):
                translation.take(_unmasked(column.indices), mode="clip", out=places_of)
            if column.null_count:
                present_in[:] = _bits(column.is_valid())
        lengths = present.sum(axis=0, dtype=np.int64)
        # Transposed, so that the codes of an admission follow one another in the order of the columns.
        flat = np.ascontiguousarray(places.T)[np.ascontiguousarray(present.T)]
        flags = None
        if self.layout.poa:
            read = np.array([self._read_flags(table, name) for name in self.layout.poa], dtype=np.uint8)
            flags = np.ascontiguousarray(read.T)[np.ascontiguousarray(present.T)]
        return self._by_row(table, dictionary, flat, lengths, flags)

    def _by_row(
        self, table: "pa.Table", dictionary: "pa.Array", cells: np.ndarray, lengths: np.ndarray, flags: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Finish a table with one row per admission: look up its cells, which are one flat array by now."""
        codes, times = self._look_up(dictionary, cells)
        if times is not None:
            ends = np.concatenate([[0], np.cumsum(times)])[np.concatenate([[0], np.cumsum(lengths)])]
            lengths, flags = np.diff(ends), None if flags is None else np.repeat(flags, times)
        self.flags, versions = flags, self._versions(table)
        return self._row_ids(table), codes, versions if _all_equal(versions) else np.repeat(versions, lengths), lengths

    def _merge(self, dictionaries: list["pa.Array"]) -> tuple["pa.Array", list[np.ndarray]]:
        """Merge dictionaries; return the result, and the new place of each entry. Cached for the next batch."""
        import pyarrow as pa

        if self.merged and all(map(pa.Array.equals, dictionaries, self.merged[0])):
            return self.merged[1:]
        found = pa.concat_arrays([values.cast(pa.string()) for values in dictionaries]).dictionary_encode()
        ends = np.cumsum([len(values) for values in dictionaries])[:-1]
        self.merged = (dictionaries, found.dictionary, np.split(_indices(found), ends))
        return self.merged[1:]

    def _long(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Read a table with one row per code."""
        (name,) = self.layout.codes
        versions = self._versions(table)
        found = self._ids(table).dictionary_encode()
        ids, group = found.dictionary.to_numpy(zero_copy_only=False), found.indices.to_numpy()
        codes = _dictionary_encoded(self._text(one_chunk(table[name]), name))
        codes, times = self._look_up(codes.dictionary, _indices(codes))
        self.flags = self._read_flags(table, self.layout.poa[0]) if self.layout.poa else None
        if times is not None:
            group, versions = np.repeat(group, times), np.repeat(versions, times)
            self.flags = None if self.flags is None else np.repeat(self.flags, times)
        lengths = np.bincount(group, minlength=len(ids))
        if (group[1:] < group[:-1]).any():
            order = np.argsort(group, kind="stable")
            codes, versions = codes[order], versions[order]
            self.flags = None if self.flags is None else self.flags[order]
        return ids, codes, versions, lengths

    def _row_ids(self, table: "pa.Table") -> np.ndarray:
        """Return the identifier of each row; in a frame without one, the row's position."""
        if self.layout.id is None:
            return np.arange(self.rows, self.rows + len(table))
        return self._ids(table).to_numpy(zero_copy_only=False)

    def _pack(self, ids: np.ndarray, codes: np.ndarray, versions: np.ndarray, lengths: np.ndarray) -> Admissions:
        """Leave out missing codes (-1), and make the same text in two ICD versions two codes.

        `versions` has an entry for each code, or equal entries only.
        """
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        present, dropped, flags = codes >= 0, 0, self.flags
        if self.layout.only and flags is not None:
            dropped = int((late(flags) & present).sum())
            present &= ~late(flags)
        if not present.all():
            offsets = np.concatenate([[0], np.cumsum(present)])[offsets]
            versions = versions if _all_equal(versions) else versions[present]
            codes, flags = codes[present], None if flags is None else flags[present]
        poa = None if self.layout.only else flags
        counts: dict[str, Any] = {"short": self.short, "poa": poa, "late": dropped, "unsure": self.unsure}
        values = self.cleaned[1] if self.cleaned else np.empty(0, dtype=object)
        if _all_equal(versions):
            versions = versions[:1]
            if self.unused:
                return Admissions(ids, values, np.repeat(versions, len(values)), codes, offsets, **counts)
        numbers, shift = np.array([0, 9, 10], dtype=np.int8), np.zeros(11, dtype=np.int32)
        shift[numbers] = np.arange(3) * len(values)
        combined = codes + shift[versions]
        used = np.zeros(3 * len(values), dtype=bool)
        used[combined] = True
        distinct = np.flatnonzero(used)
        return Admissions(
            ids=ids,
            values=values[distinct % max(len(values), 1)],
            versions=numbers[distinct // max(len(values), 1)],
            indices=(np.cumsum(used, dtype=np.int32) - np.int32(1))[combined],
            offsets=offsets,
            **counts,
        )

    def _row_number(self, table: "pa.Table", place: int) -> int:
        """Return the number, in the file, of the row at a position of the current table."""
        moved = ROW in table.column_names
        return int(self.row_number(table[ROW][place].as_py() if moved else self.rows + place))

    def _read_flags(self, table: "pa.Table", name: str) -> np.ndarray:
        """Read one column of flags; a column of codes without flags has an empty `name` for them."""
        if not name:
            return np.zeros(len(table), dtype=np.uint8)
        return read_flags(one_chunk(table[name]), self.where, name, lambda place: self._row_number(table, place))

    def _list_flags(self, table: "pa.Table", lengths: np.ndarray) -> np.ndarray:
        """Read lists of flags, which must be as long as the lists of codes, or empty."""
        import pyarrow as pa
        import pyarrow.compute as pc

        (name,) = self.layout.poa
        column = self._plain(table[name], name)
        is_text = _is_text(column.type)
        lists = pc.split_pattern_regex(column.cast(pa.string()), SEPARATORS) if is_text else _as_lists(column)
        many = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        odd = np.flatnonzero((many != lengths) & (many > 0))
        if len(odd):
            row = self._row_number(table, int(odd[0]))
            raise InputError(
                f"{self.where}: column {name}, row {row}: has {many[odd[0]]} flags for {lengths[odd[0]]} codes; each "
                "code needs its own."
            )
        ends = np.cumsum(many)

        def row_of_flag(place: int) -> int:
            return self._row_number(table, int(np.searchsorted(ends, place, side="right")))

        flags = np.zeros(lengths.sum(), dtype=np.uint8)
        flags[np.repeat(many > 0, lengths)] = read_flags(lists.flatten(), self.where, name, row_of_flag)
        return flags

    def _plain(self, column: "pa.ChunkedArray", name: str) -> "pa.Array":
        """Return a column of lists or texts in one chunk; a column of numbers is one code per cell."""
        import pyarrow as pa

        found = one_chunk(column)
        found = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
        if pa.types.is_null(found.type):
            return found.cast(pa.string())
        return found if _is_text(found.type) or _is_list(found.type) else self._text(found, name)

    def _text(self, column: "pa.Array", name: str) -> "pa.Array":
        """Return a column of codes as text; numbers have lost their zeros and need `restore_zeros`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if _is_text(kind):
            return column
        if pa.types.is_null(kind) or 0 < column.null_count == len(column):
            return pa.nulls(len(column), pa.string())
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not number or not self.restore_zeros:
            raise InputError(f"{self.where}: column {name}: the codes are of type {kind}; {ZEROS}.")
        return pc.replace_substring_regex(column.cast(pa.string()), r"\.0$", "")

    def _look_up(self, dictionary: "pa.Array", cells: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return each code's place among the distinct normalised codes, -1 for a cell without one.

        Also return how many codes each cell holds, or None if no cell holds several. The distinct codes are kept in
        `cleaned`, for the next batch with the same dictionary.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from mlci.codes import zeros
        from mlci.codes.icd import normalise_array

        if self.cleaned is None or not dictionary.equals(self.cleaned[0]):
            raw, times = split_cells(dictionary.cast(pa.string()))
            raw, unsure = read_letters(raw, self.version)
            text = zeros.restored(raw) if self.restore_zeros else normalise_array(raw)
            left_out = pc.or_(pc.is_in(text, pa.array(NO_CODE)), pa.array(unsure))
            found = pc.if_else(left_out, None, text).dictionary_encode()
            place = _indices(found)
            values = found.dictionary.to_numpy(zero_copy_only=False)
            moved = len(place) != len(values) or (place != np.arange(len(place))).any()
            # Index -1 (null) reads the last entry of each array.
            short = np.append(~np.bool_(self.restore_zeros) & zeros.short(raw), False)
            place = np.append(place, np.int32(-1)) if moved else None
            self.cleaned = (dictionary, values, place, short, np.append(unsure, False), times)
        place, short, unsure, times = self.cleaned[2:]
        if times is not None:
            starts, times = np.append(np.cumsum(times) - times, -1)[cells], np.append(times, 1)[cells]
            cells = np.repeat(starts - (np.cumsum(times) - times), times) + np.arange(times.sum())
        self.short = int(short[cells].sum()) if short.any() else 0
        self.unsure = int(unsure[cells].sum()) if unsure.any() else 0
        return cells if place is None else place[cells], times

    def _versions(self, table: "pa.Table") -> np.ndarray:
        """Return the ICD version of each row, 9 or 10; a row without one has the version given for all."""
        import pyarrow.compute as pc

        name = self.layout.version
        if name is None:
            return np.full(len(table), self.version, dtype=np.int8)
        column = one_chunk(table[name])
        found = _dictionary_encoded(column)
        numbers = []
        for value in found.dictionary.to_pylist():
            written = re.fullmatch(WRITTEN_VERSION, str(value).strip().upper())
            if value is not None and not written:
                row = self._row_number(table, pc.index(column.cast(found.type.value_type), value).as_py())
                raise InputError(
                    f"{self.where}: column {name}, row {row}: {kind_of(value)} is not an ICD version; allowed are 9 "
                    "and 10, also as ICD9, ICD-10 or ICD-10-CM."
                )
            numbers.append(int(written[1]) if written else self.version)
        return np.array([*numbers, self.version], dtype=np.int8)[_indices(found)]

    def _ids(self, table: "pa.Table") -> "pa.Array":
        import pyarrow as pa

        name = str(self.layout.id)
        ids = one_chunk(table[name])
        ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
        return check_ids(ids, name, self.where, lambda place: self._row_number(table, place))


def _as_lists(column: "pa.Array") -> "pa.Array":
    """Return an array of lists of any Arrow type (list view, fixed size) as plain lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pa.LargeListArray.from_arrays(offsets, column.flatten())


def _all_equal(versions: np.ndarray) -> bool:
    return bool(len(versions)) and bool((versions == versions[0]).all())


def _unmasked(indices: "pa.Array") -> np.ndarray:
    """Return the values of an array of whole numbers without regard to nulls, where any number may stand."""
    import pyarrow as pa

    values = indices.buffers()[1]
    return pa.Array.from_buffers(indices.type, len(indices), [None, values], offset=indices.offset).to_numpy()


def _bits(flags: "pa.BooleanArray") -> np.ndarray:
    """Return a Boolean array without nulls as 0 and 1; ten times as fast as Arrow's own conversion."""
    octets = np.frombuffer(flags.buffers()[1], dtype=np.uint8)
    return np.unpackbits(octets, bitorder="little")[flags.offset : flags.offset + len(flags)]


def _dictionary_encoded(codes: "pa.Array") -> "pa.DictionaryArray":
    import pyarrow as pa

    return codes if pa.types.is_dictionary(codes.type) else codes.dictionary_encode()


def _indices(encoded: "pa.DictionaryArray") -> np.ndarray:
    """Return the indices of a dictionary-encoded array, with -1 for null."""
    indices = encoded.indices
    return (indices.fill_null(-1) if indices.null_count else indices).to_numpy()


def check_ids(ids: "pa.Array", name: str | None, where: str, row_number: Callable[[int], int]) -> "pa.Array":
    """Return identifiers of admissions as they are; refuse empty and shortened ones, lists and structs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(ids.type):
        raise InputError(f"{where}: column {name}: holds lists or structs; an admission needs one number or text.")
    if isinstance(ids.type, pa.BaseExtensionType):
        raise InputError(f"{where}: column {name}: is of the type {ids.type}; an admission needs one number or text.")
    empty = pc.index(are_empty(ids), True).as_py()
    if empty >= 0:
        raise InputError(f"{where}: column {name}, row {row_number(empty)}: is empty; each row needs its admission.")
    check_unshortened(ids, name, where, row_number)
    return ids


def check_unshortened(ids: Any, name: str | None, where: str, row_number: Callable[[int], int]) -> None:
    """Refuse identifiers that a spreadsheet has shortened to 1.23E+18, because different ones then look the same."""
    import pyarrow.compute as pc

    if _is_text(ids.type) and pc.any(pc.match_substring(ids, "E+")).as_py():
        place = pc.index(pc.match_substring_regex(ids, SCIENTIFIC), True).as_py()
        if place >= 0:
            raise InputError(
                f"{where}: column {name}, row {row_number(place)}: is a number that a spreadsheet has shortened, as in "
                "1.23E+18; identifiers of that length must be text there."
            )


def are_empty(ids: Any) -> Any:
    """Return which identifiers of an array are null, NaN, or text without any character but blanks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = pc.is_null(ids, nan_is_null=True)
    if not _is_text(ids.type):
        return empty
    text = ids.cast(pa.string()) if pa.types.is_string_view(ids.type) else ids
    return pc.or_kleene(empty, pc.or_(pc.utf8_is_space(text), pc.equal(text, "")))


def one_chunk(column: "pa.ChunkedArray") -> "pa.Array":
    """Return a column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_list(kind: "pa.DataType") -> bool:
    return hasattr(kind, "value_type")
