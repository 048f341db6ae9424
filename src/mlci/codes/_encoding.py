"""A table of admissions and codes becomes `Admissions`: the one place where codes, flags and versions are read.

In come Arrow tables of one layout (`mlci.codes.layout`): a list or text of codes in a row, a column for each code, or a
row for each code; out come dictionary-encoded admissions. What cannot be read is named by file, column and row.
"""

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError, kind_of
from mlci.codes.admissions import WRITTEN_VERSION, Admissions
from mlci.codes.certainty import APART, BARE, JOINED, JOINT, certain
from mlci.codes.layout import Layout
from mlci.codes.poa import late, read_flags

if TYPE_CHECKING:
    import pyarrow as pa

NO_CODE = ("", "NA", "NAN", "NULL", "NONE", "UNKNOWN", "MISSING")  # once normalised
SEPARATORS = r"[\s,;|]+"
CODE_LIKE = rf"(?:[A-Za-z][0-9]|[0-9]{{2}})[0-9A-Za-z.]{{1,7}}[^0-9A-Za-z\s,;|]*(?:{JOINT}[A-Za-z])?"
SEVERAL = rf"(?:^|[\s,;|]){CODE_LIKE}[\s,;|](?:.*[\s,;|])?{CODE_LIKE}(?:[\s,;|]|$)"  # codes in one cell
# A code with its title behind it, in one cell: "I50.9 Heart failure, unspecified".
TITLED = (
    r"^\s*([A-Za-z][0-9][0-9A-Za-z](?:\.?[0-9A-Za-z]{1,4})?|[0-9]{3}(?:\.?[0-9]{1,2})?|[Ee][0-9]{3}(?:\.[0-9])?)"
    r"(?:\s*[-:(,;|–—]\s*|\s+)(?:.*[^0-9A-Za-z])?[A-Za-z]{3,}(?:[^0-9A-Za-z].*)?$"
)
ZEROS = "codes must be text, since numbers lose leading zeros (038.9 becomes 38.9)"


class AdmissionsEncoder:
    """Tables of one layout to `Admissions`; remembers rows seen (to name one) and the last dictionary it cleaned."""

    def __init__(
        self,
        layout: Layout,
        where: str,
        icd_version: int | None,
        *,
        restore_zeros: bool = False,
        unused: bool = False,
        first_row: int = 1,
    ):
        from mlci.codes.icd import check_version

        self.layout, self.where, self.unused = layout, where, unused
        self.version = 0 if icd_version is None else check_version(icd_version)
        self.restore_zeros, self.first_row = restore_zeros, first_row
        self.rows = self.short = self.unsure = 0
        self.flags: np.ndarray | None = None  # of each recorded code of this table
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
        column = joined(table[name])
        lists = self._as_lists(column, name)
        codes = _encoded(self._text(lists.flatten(), name))
        kind = column.type
        text = _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)
        if text and pc.any(pc.match_substring_regex(codes.dictionary, BARE)).as_py():
            if self.version != 9:
                cells = pc.replace_substring_regex(_untitled(column.cast(pa.string())), APART, JOINED)
                lists = pc.split_pattern_regex(cells, SEPARATORS)
                codes = _encoded(lists.flatten())
            values = pc.if_else(pc.match_substring_regex(codes.dictionary, BARE), "", codes.dictionary)
        else:
            values = codes.dictionary
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        flags = self._list_flags(table, lengths) if self.layout.poa else None
        return self._by_row(table, values, _numbers(codes.indices), lengths, flags)

    def _wide(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Read a table with one row per admission, each code in a column of its own: one dictionary for all of them."""
        columns = [_encoded(self._text(joined(table[name]), name)) for name in self.layout.codes]
        dictionary, moves = self._merge([column.dictionary for column in columns])
        places = np.zeros((len(columns), len(table)), dtype=np.int32)
        present = np.ones(places.shape, dtype=bool)
        for column, moved, place, held in zip(columns, moves, places, present):
            if len(moved):
                moved.take(_unmasked(column.indices), mode="clip", out=place)
            if column.null_count:
                held[:] = _truths(column.is_valid())
        lengths = present.sum(axis=0, dtype=np.int64)
        # Turned once, then taken row by row: an admission's codes keep the columns' order.
        flat = np.ascontiguousarray(places.T)[np.ascontiguousarray(present.T)]
        flags = None
        if self.layout.poa:
            read = np.array([self._read_flags(table, name) for name in self.layout.poa], dtype=np.uint8)
            flags = np.ascontiguousarray(read.T)[np.ascontiguousarray(present.T)]
        return self._by_row(table, dictionary, flat, lengths, flags)

    def _by_row(
        self, table: "pa.Table", dictionary: "pa.Array", cells: np.ndarray, lengths: np.ndarray, flags: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return what a table with one row per admission says, once its cells stand one after another."""
        codes, times = self._indices(dictionary, cells)
        if times is not None:
            ends = np.concatenate([[0], np.cumsum(times)])[np.concatenate([[0], np.cumsum(lengths)])]
            lengths, flags = np.diff(ends), None if flags is None else np.repeat(flags, times)
        self.flags, versions = flags, self._versions(table)
        return self._row_ids(table), codes, versions if _alike(versions) else np.repeat(versions, lengths), lengths

    def _merge(self, dictionaries: list["pa.Array"]) -> tuple["pa.Array", list[np.ndarray]]:
        """Return one dictionary in place of several, and where each one's entries are; kept for the next batch."""
        import pyarrow as pa

        if self.merged and all(map(pa.Array.equals, dictionaries, self.merged[0])):
            return self.merged[1:]
        found = pa.concat_arrays([values.cast(pa.string()) for values in dictionaries]).dictionary_encode()
        ends = np.cumsum([len(values) for values in dictionaries])[:-1]
        self.merged = (dictionaries, found.dictionary, np.split(_numbers(found.indices), ends))
        return self.merged[1:]

    def _long(self, table: "pa.Table") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Read a table with one row per code."""
        (name,) = self.layout.codes
        versions = self._versions(table)
        found = self._ids(table).dictionary_encode()
        ids, group = found.dictionary.to_numpy(zero_copy_only=False), found.indices.to_numpy()
        codes = _encoded(self._text(joined(table[name]), name))
        codes, times = self._indices(codes.dictionary, _numbers(codes.indices))
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
        """Return the identifier of each row, or its number in a frame that has none."""
        if self.layout.id is None:
            return np.arange(self.rows, self.rows + len(table))
        return self._ids(table).to_numpy(zero_copy_only=False)

    def _pack(self, ids: np.ndarray, codes: np.ndarray, versions: np.ndarray, lengths: np.ndarray) -> Admissions:
        """Leave missing codes (-1) out, and tell apart the same text in two ICD versions (one per code, or one)."""
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        present, dropped, flags = codes >= 0, 0, self.flags
        if self.layout.only and flags is not None:
            dropped = int((late(flags) & present).sum())
            present &= ~late(flags)
        if not present.all():
            offsets = np.concatenate([[0], np.cumsum(present)])[offsets]
            versions = versions if _alike(versions) else versions[present]
            codes, flags = codes[present], None if flags is None else flags[present]
        poa = None if self.layout.only else flags
        said: dict[str, Any] = {"short": self.short, "poa": poa, "late": dropped, "unsure": self.unsure}
        values = self.cleaned[1] if self.cleaned else np.empty(0, dtype=object)
        if _alike(versions):
            versions = versions[:1]
            if self.unused:
                return Admissions(ids, values, np.repeat(versions, len(values)), codes, offsets, **said)
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
            **said,
        )

    def _read_flags(self, table: "pa.Table", name: str) -> np.ndarray:
        """Return the flags of one column; none where a column of codes has no such column."""
        if not name:
            return np.zeros(len(table), dtype=np.uint8)
        return read_flags(joined(table[name]), self.where, name, self.rows + self.first_row)

    def _list_flags(self, table: "pa.Table", lengths: np.ndarray) -> np.ndarray:
        """Return the flags of all codes, from lists beside theirs."""
        import pyarrow.compute as pc

        (name,) = self.layout.poa
        lists = self._as_lists(joined(table[name]), name)
        many = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        odd = np.flatnonzero((many != lengths) & (many > 0))
        if len(odd):
            row = self.rows + self.first_row + odd[0]
            raise InputError(
                f"{self.where}: column {name}, row {row}: has {many[odd[0]]} flags for {lengths[odd[0]]} codes; each "
                "code needs its own."
            )
        flags = np.zeros(lengths.sum(), dtype=np.uint8)
        flags[np.repeat(many > 0, lengths)] = read_flags(lists.flatten(), self.where, name, 1)
        return flags

    def _text(self, column: "pa.Array", name: str) -> "pa.Array":
        """Return a column of codes as text; numbers lost their zeros, and are text only where that was said."""
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

    def _indices(self, dictionary: "pa.Array", cells: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return each code's place among the distinct normalised ones (kept in `cleaned`), -1 where there is none.

        With it goes how many codes each cell holds; None where no cell holds several.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from mlci.codes import zeros
        from mlci.codes.icd import normalise_array

        if self.cleaned is None or not dictionary.equals(self.cleaned[0]):
            raw, times = _taken_apart(dictionary.cast(pa.string()))
            raw, unsure = certain(raw, self.version)
            text = zeros.restored(raw) if self.restore_zeros else normalise_array(raw)
            left_out = pc.or_(pc.is_in(text, pa.array(NO_CODE)), pa.array(unsure))
            found = pc.if_else(left_out, None, text).dictionary_encode()
            place = pc.fill_null(found.indices, -1).to_numpy()
            values = found.dictionary.to_numpy(zero_copy_only=False)
            moved = len(place) != len(values) or (place != np.arange(len(place))).any()
            # The last entry stands for null.
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

    def _as_lists(self, codes: "pa.Array", name: str) -> "pa.Array":
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(codes.type):
            codes = codes.dictionary_decode()
        kind = codes.type
        if _is_text(kind) or pa.types.is_null(kind):
            return pc.split_pattern_regex(_untitled(codes.cast(pa.string())), SEPARATORS)
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            if not hasattr(kind, "value_type"):
                return self._as_lists(self._text(codes, name), name)
            codes = codes.cast(pa.list_(kind.value_type))
        return codes

    def _versions(self, table: "pa.Table") -> np.ndarray:
        """Return the version of each row: 9 or 10, or what was said for all where the row says nothing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self.layout.version
        if name is None:
            return np.full(len(table), self.version, dtype=np.int8)
        column = joined(table[name])
        found = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        numbers = []
        for value in found.dictionary.to_pylist():
            said = re.fullmatch(WRITTEN_VERSION, str(value).strip().upper())
            if value is not None and not said:
                row = self.rows + pc.index(column.cast(found.type.value_type), value).as_py() + self.first_row
                raise InputError(
                    f"{self.where}: column {name}, row {row}: {kind_of(value)} is no ICD version; allowed are 9 and "
                    "10, also as ICD9, ICD-10 or ICD-10-CM."
                )
            numbers.append(int(said[1]) if said else self.version)
        return np.array([*numbers, self.version], dtype=np.int8)[_numbers(found.indices)]

    def _ids(self, table: "pa.Table") -> "pa.Array":
        import pyarrow as pa

        name = str(self.layout.id)
        ids = joined(table[name])
        ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
        return present(ids, name, self.where, self.rows + self.first_row)


def _taken_apart(cells: "pa.Array") -> tuple["pa.Array", np.ndarray | None]:
    """Return the codes of cells of which some hold several, and how many each holds; None where each holds one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _untitled(cells)
    several = pc.match_substring_regex(cells, SEVERAL).fill_null(False)
    if not pc.any(several).as_py():
        return cells, None
    lists = [
        [code for code in re.split(SEPARATORS, re.sub(APART, JOINED, text)) if not re.match(BARE, code)]
        if apart.as_py()
        else [text]
        for text, apart in zip(cells.to_pylist(), several)
    ]
    times = np.array([len(codes) for codes in lists])
    return pa.array([code for codes in lists for code in codes], pa.string()), times


def _untitled(cells: "pa.Array") -> "pa.Array":
    """Return the codes alone of cells in which words follow one: the first, and others that ICD has or a dot tells.

    >>> import pyarrow as pa
    >>> _untitled(pa.array(["D51.0 Vitamin B12 deficiency", "I50.9 Heart failure; N17.9 Kidney failure"])).to_pylist()
    ['D51.0', 'I50.9 N17.9']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from mlci.codes import icd, zeros

    titled = pc.match_substring_regex(cells, TITLED).fill_null(False)
    if not pc.any(titled).as_py():
        return cells
    found = {}
    for cell in cells.filter(titled).to_pylist():
        (code,) = re.findall(TITLED, cell)
        letter, *rest = re.split(SEPARATORS, re.sub(APART, JOINED, cell).partition(code)[2])
        alike = [word for word in rest if re.fullmatch(CODE_LIKE, word) and word[0].isalpha() == code[0].isalpha()]
        found[cell] = [code + letter if letter.startswith(JOINT) else code, *alike]
    words = pa.array({word for codes in found.values() for word in codes[1:]}, pa.string())
    text = icd.normalise_array(pc.replace_substring_regex(words, f"{JOINT}.*", ""))
    sure = np.logical_or.reduce(
        [look(text, version) for look in (icd.known, zeros.heading) for version in icd.VERSIONS]
    )
    told = {word for word, known in zip(words.to_pylist(), sure) if known or (word[0].isalpha() and "." in word[:-1])}
    plain = {cell: " ".join([code, *(word for word in rest if word in told)]) for cell, (code, *rest) in found.items()}
    return pa.array([plain.get(cell, cell) for cell in cells.to_pylist()], pa.string())


def _alike(versions: np.ndarray) -> bool:
    return bool(len(versions)) and bool((versions == versions[0]).all())


def _unmasked(indices: "pa.Array") -> np.ndarray:
    """Return the whole numbers that an array holds, whatever stands where it is null."""
    import pyarrow as pa

    values = indices.buffers()[1]
    return pa.Array.from_buffers(indices.type, len(indices), [None, values], offset=indices.offset).to_numpy()


def _truths(flags: "pa.BooleanArray") -> np.ndarray:
    """Return 0 and 1 of an array without nulls; ten times as fast as Arrow's own way."""
    octets = np.frombuffer(flags.buffers()[1], dtype=np.uint8)
    return np.unpackbits(octets, bitorder="little")[flags.offset : flags.offset + len(flags)]


def _encoded(codes: "pa.Array") -> "pa.DictionaryArray":
    import pyarrow as pa

    return codes if pa.types.is_dictionary(codes.type) else codes.dictionary_encode()


def _numbers(indices: "pa.Array") -> np.ndarray:
    """Return an array's numbers, with -1 for null."""
    return (indices.fill_null(-1) if indices.null_count else indices).to_numpy()


def present(ids: "pa.Array", name: str | None, where: str, first_row: int) -> "pa.Array":
    import pyarrow.compute as pc

    if ids.null_count or pc.any(pc.is_null(ids, nan_is_null=True)).as_py():
        row = first_row + pc.index(pc.is_null(ids, nan_is_null=True), True).as_py()
        raise InputError(f"{where}: column {name}, row {row}: is empty; each row needs its admission.")
    return ids


def joined(column: "pa.ChunkedArray") -> "pa.Array":
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
