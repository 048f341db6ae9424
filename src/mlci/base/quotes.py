"""Quotation marks of a CSV file, checked before anything is read: one that is out of place swallows the rows after it.

Parsers take a mark at the beginning of a cell for the beginning of a quoted cell, which then reaches to the next mark,
wherever that is. In comes a file; nothing goes out but, maybe, an error that names the line.
"""

from pathlib import Path
from typing import IO

import numpy as np

from mlci.base.errors import InputError, name_of

BLOCK = 1 << 24
MARK, BREAKS = ord('"'), (ord("\n"), ord("\r"))


def check_quotes(stream: IO[bytes], delimiter: str, where: str | Path) -> None:
    """Refuse a mark that neither opens nor closes a cell and is not doubled within a quoted one.

    Args:
        stream: the file's bytes, decompressed.
        delimiter: what stands between cells.
        where: the file's name, for the message.

    >>> from io import BytesIO
    >>> check_quotes(BytesIO(b'visit,ward\\n7,"B2, ""E"" side"\\n'), ",", "visits.csv")
    >>> check_quotes(BytesIO(b'visit,ward\\n7,B"2\\n'), ",", "visits.csv")
    Traceback (most recent call last):
    mlci.base.errors.InputError: visits.csv: line 2: a quotation mark stands within a cell; ...
    """
    beside = np.zeros(256, dtype=bool)  # what may stand outside a quoted cell, next to its marks
    beside[[ord(delimiter), *BREAKS]] = True
    before, lines, inside = b"\n", 1, False  # the last byte read; lines read; whether within a quoted cell
    start, last = stream.read(3).removeprefix(b"\xef\xbb\xbf"), 0
    while block := start + stream.read(BLOCK):
        start = b""
        while block.endswith(b'"') and (following := stream.read(1)):  # what follows a mark belongs to it
            block += following
        block = before + block
        if b'"' in block[1:]:
            data = np.frombuffer(block, dtype=np.uint8)
            marks = np.flatnonzero(data[1:] == MARK) + 1
            after = np.append(data, BREAKS[0])[marks + 1]
            closing = (np.arange(len(marks)) + inside) % 2 == 1
            doubled = np.flatnonzero(np.diff(marks) == 1)  # a pair within a cell closes and opens it again
            opened, closed = np.zeros(len(marks), dtype=bool), np.zeros(len(marks), dtype=bool)
            opened[doubled + 1], closed[doubled] = True, True
            wrong = np.where(closing, ~(beside[after] | closed), ~(beside[data[marks - 1]] | opened))
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
