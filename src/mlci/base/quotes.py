"""Check the quotation marks of a CSV file before it is parsed: a misplaced mark makes a parser lose rows.

A parser takes a mark at the beginning of a cell for the beginning of a quoted cell, which then reaches to the next
mark, wherever that is. The check raises an error that names the line. As it reads all bytes, it also reports whether
some lines may be empty.
"""

import csv
import io
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from mlci.base.errors import InputError, name_of

BLOCK = 1 << 20  # bytes that are checked at once
RUN = 1 << 16  # the most quotation marks in a row behind the end of a block
MARK, BREAKS = ord('"'), (ord("\n"), ord("\r"))


class EmptyLines(NamedTuple):
    """Whether a file has blank lines, and lines that begin with an empty cell; either may be within a quoted cell."""

    blank: bool
    cells: bool


def check_quotes(stream: IO[bytes], delimiter: str, where: str | Path) -> EmptyLines:
    """Refuse a mark that neither opens nor closes a cell and is not doubled within a quoted one.

    Args:
        stream: the file's bytes, decompressed.
        delimiter: the character between cells.
        where: the file's name, for the message.

    Returns:
        Which kinds of lines the file has that may be empty.

    >>> from io import BytesIO
    >>> check_quotes(BytesIO(b'visit,ward\\n7,"B2, ""E"" side"\\n,\\n'), ",", "visits.csv")
    EmptyLines(blank=False, cells=True)
    >>> check_quotes(BytesIO(b'visit,ward\\n7,B"2\\n'), ",", "visits.csv")
    Traceback (most recent call last):
    mlci.base.errors.InputError: visits.csv: line 2: a quotation mark stands within a cell; ...
    """
    outside = np.zeros(256, dtype=bool)  # characters allowed outside a quoted cell, next to its marks
    outside[[ord(delimiter), *BREAKS]] = True
    before, lines, inside = b"\n", 1, False  # the last byte read; lines read; whether within a quoted cell
    head, last = stream.read(3).removeprefix(b"\xef\xbb\xbf"), 0
    has_blank = has_cells = False
    header = 1  # lines of a block to skip: the header may begin with an empty cell
    while block := head + stream.read(BLOCK):
        head, rest = b"", bytearray()
        while (rest or block).endswith(b'"') and (following := stream.read(1)):  # keep marks and what follows together
            rest += following
            if len(rest) > RUN:
                line = lines + block.count(b"\n")
                raise InputError(f"{name_of(where)}: line {line}: has more than {RUN:,} quotation marks in a row.")
        block = before + block + rest
        data = np.frombuffer(block, dtype=np.uint8)
        starts = np.flatnonzero(data[:-1] == BREAKS[0]) + 1  # of lines
        has_blank = has_blank or bool(np.isin(data[starts], BREAKS).any())
        has_cells = has_cells or _begins_empty(data, starts[header:], delimiter)
        header = 0
        if b'"' in block[1:]:
            marks = np.flatnonzero(data[1:] == MARK) + 1
            after = np.append(data, BREAKS[0])[marks + 1]
            closing = (np.arange(len(marks)) + inside) % 2 == 1
            doubled = np.flatnonzero(np.diff(marks) == 1)  # a pair within a cell closes it and opens it again
            opened, closed = np.zeros(len(marks), dtype=bool), np.zeros(len(marks), dtype=bool)
            opened[doubled + 1], closed[doubled] = True, True
            wrong = np.where(closing, ~(outside[after] | closed), ~(outside[data[marks - 1]] | opened))
            if wrong.any():
                line = lines + block.count(b"\n", 1, int(marks[np.argmax(wrong)]))
                raise InputError(
                    f"{name_of(where)}: line {line}: a quotation mark stands within a cell; such a cell must be "
                    "quoted and the mark doubled."
                )
            inside = bool((len(marks) + inside) % 2)
            if inside:
                last = lines + block.count(b"\n", 1, int(marks[-1]))
        lines += block.count(b"\n", 1)
        before = block[-1:]
    if inside:
        raise InputError(f"{name_of(where)}: line {last}: a quoted cell begins and never ends.")
    return EmptyLines(has_blank, has_cells)


def _begins_empty(data: np.ndarray, starts: np.ndarray, delimiter: str) -> bool:
    """Return whether one of the lines that start at these places begins with an empty cell, quoted or not."""
    first = np.bincount(data[starts], minlength=256)
    if first[[ord(delimiter), ord(" "), ord("\t")]].any():
        return True
    quoted = starts[data[starts] == MARK] if first[MARK] else starts[:0]
    return bool(np.isin(data[np.minimum(quoted + 1, len(data) - 1)], [MARK, ord(" "), ord("\t"), *BREAKS]).any())


def blank_lines(stream: Any, delimiter: str) -> tuple[int, np.ndarray]:
    """Find the blank lines of a CSV file, outside of quoted cells.

    Args:
        stream: the file's bytes, decompressed.
        delimiter: the character between cells.

    Returns:
        The number of blank lines above the header, and the positions of the others among the rows below it.

    >>> blank_lines(io.BytesIO(b'visit,ward\\n7,B2\\n\\n8,"C\\n\\n1"\\n'), ",")
    (0, array([1]))
    """
    text = io.TextIOWrapper(stream, encoding="latin-1", newline="")
    lines = chain([next(text, "").removeprefix("\xef\xbb\xbf")], text)  # without a byte-order mark
    limit = csv.field_size_limit(2**31 - 1)
    try:
        places = [place for place, cells in enumerate(csv.reader(lines, delimiter=delimiter)) if not cells]
    finally:
        csv.field_size_limit(limit)
    header = next(place for place, line in enumerate([*places, -1]) if place != line)
    return header, np.array(places[header:], dtype=np.int64) - header - 1


def among_all(places: Any, empty: Any) -> Any:
    """Return the positions of rows among all rows.

    Args:
        places: a position, or an array of positions, among the rows that are not empty.
        empty: the positions of the empty rows among all rows, in ascending order.

    >>> among_all(np.array([0, 1]), [1])
    array([0, 2])
    """
    return places + np.searchsorted(np.asarray(empty) - np.arange(len(empty)), places, side="right")
