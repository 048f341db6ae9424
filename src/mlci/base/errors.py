"""Turn bad input, and the errors that libraries raise on damaged files, into messages of one sentence.

A message names the file and the row, but never repeats a value, because it may be a patient's.
"""

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

# Libraries that read files and databases; their messages quote what they read.
READERS = ("pyarrow", "duckdb", "_duckdb", "zlib", "lzma", "_lzma", "gzip", "zipfile", "safetensors", "openpyxl")
READERS += ("xml", "pyexpat", "python_calamine", "psycopg", "pyspark", "py4j", "ibis", "sqlglot")
REFUSALS = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EISDIR: "is a folder; a file is needed",
    errno.ENOTDIR: "is not a folder",
    errno.EROFS: "the disk is read-only",
}
# Texts that are no names of columns: a number, a date, an ICD code.
_VALUE = re.compile(r"[-+]?[0-9.,]+|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}\b.*|[A-Z][0-9][0-9A-Z]\.?[0-9A-Z]{0,4}")
DAMAGE = (None, errno.EINVAL)  # error numbers of an OSError from a file with wrong offsets


class InputError(ValueError):
    """Bad input, in one sentence: what was wrong, where (file, column, row), and what is allowed."""


def sentence(error: BaseException) -> str | None:
    """Describe an error that the program did not cause in one sentence, without any value from a file.

    Args:
        error: the error.

    Returns:
        The sentence; None if the error is a fault of the program.

    >>> sentence(FileNotFoundError(2, "", "cohort.parquet"))
    'cohort.parquet: no such file or folder.'
    >>> sentence(KeyError("I50.9")) is None
    True
    """
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this input."
    if isinstance(error, RecursionError):
        return "the input is nested too deeply."
    if isinstance(error, UnicodeEncodeError):
        return "the name of a file is not UTF-8; give it another name."
    if reason := full(error):
        return f"{reason}."
    if isinstance(error, OSError) and error.errno:
        reason = REFUSALS.get(error.errno) or os.strerror(error.errno).lower()
        return f"{name_of(error.filename) or 'a file'}: {reason}."
    if isinstance(error, OSError | EOFError | UnicodeError) or type(error).__module__.split(".")[0] in READERS:
        return f"the input is damaged, or of another kind than its name says ({type(error).__name__})."
    return None


def full(error: BaseException) -> str:
    """Say that a disk is full, if an `error` means this; else return an empty text.

    >>> full(OSError(errno.ENOSPC, "")).startswith("the disk is full"), full(KeyError("I50.9"))
    (True, '')
    """
    if isinstance(error, OSError):
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    else:  # DuckDB's errors have no number
        is_full = type(error).__module__ in READERS and os.strerror(errno.ENOSPC) in str(error)
    temporary = f", or that of temporary files ({tempfile.tempdir})" if tempfile.tempdir else ""  # None: none were made
    return f"the disk is full{temporary}" if is_full else ""


@contextlib.contextmanager
def reading(path: str | os.PathLike, kind: str) -> Iterator[None]:
    """Turn errors that are raised while a file is read into an `InputError` that names the file.

    Args:
        path: the file that the block reads.
        kind: the expected kind of file, for messages: "a gzipped table".

    >>> with reading("a.csv.gz", "a gzipped table"):
    ...     raise EOFError("Compressed file ended")
    Traceback (most recent call last):
    mlci.base.errors.InputError: a.csv.gz: is not a gzipped table that can be read: it is damaged, or of another kind.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{name_of(path)}: is a pipe or a device; a file is needed.")  # reading one might never end
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # readers share no base class; `sentence` recognises their errors
        reason = sentence(error)
        if isinstance(error, OSError) and error.errno not in DAMAGE:
            error.filename = error.filename or os.fspath(path)  # Arrow does not name the file
            raise
        if reason is None:
            raise
        if isinstance(error, MemoryError | RecursionError | UnicodeEncodeError):
            raise InputError(f"{name_of(path)}: {reason}") from None
        raise InputError(
            f"{name_of(path)}: is not {kind} that can be read: it is damaged, or of another kind."
        ) from None


def name_of(path: Any) -> str:
    """Return a path as one line of text that any terminal can print.

    Args:
        path: text, bytes, a path, or None, which gives an empty text.

    >>> name_of("visits\\n.csv"), name_of(b"visits.csv"), name_of(None)
    ('visits�.csv', 'visits.csv', '')
    """
    text = os.fsdecode(path) if isinstance(path, bytes | os.PathLike) else str(path or "")
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def kind_of(value: Any) -> str:
    """Describe the kind of value that a cell holds, without the value itself, which may be a patient's.

    Args:
        value: a value of any type; None is empty.

    Returns:
        Words for a message.

    >>> kind_of("expired"), kind_of("17.5"), kind_of(2), kind_of(None)
    ('text of 7 characters', 'a number', 'a whole number', 'empty')
    """
    text = "" if value is None else str(value).strip()
    if text.lstrip("+-").isdigit():
        return "a whole number"
    try:
        float(text)
    except ValueError:
        return f"text of {len(text)} character{'s' * (len(text) > 1)}" if text else "empty"
    return "a number"


def columns_of(names: Iterable[str], known: Iterable[str]) -> str:
    """Name the columns of a table for a message, or only count its cells if its first line may be a patient's row.

    Args:
        names: the cells of the first line.
        known: names of columns; a header has at least one of them.

    Returns:
        The second half of a sentence.

    >>> columns_of(["visit_id", "codes"], ["codes"])
    'it has visit_id, codes'
    >>> columns_of(["17", "I50.9"], ["codes"])
    'its first line has 2 cells, and none is a column name that is known here'
    """
    names = list(names)
    if not {str(name).lower() for name in names} & {name.lower() for name in known}:
        return f"its first line has {len(names)} cells, and none is a column name that is known here"
    return f"it has {', '.join(map(name_of, names[:30]))}" + (", ..." if len(names) > 30 else "")


def looks_like_row(names: Iterable[str]) -> bool:
    """Return whether the first line of a table, `names`, is a patient's row rather than a header.

    >>> looks_like_row(["17", "I50.9", "Ann"]), looks_like_row(["case", "ICD 1"])
    (True, False)
    """
    return any(_VALUE.fullmatch(str(name).strip()) for name in names)


def header_of(names: Iterable[str]) -> str:
    """Name the columns of any table for a message, unless its first line looks like a patient's row.

    Args:
        names: the cells of the first line.

    Returns:
        The names, or the reason why they are not repeated.

    >>> header_of(["case", "ICD 1"])
    'case, ICD 1'
    >>> header_of(["17", "I50.9", "Ann"])
    '3 cells that look like a row, not like a header: the names of the columns belong in the first line'
    """
    names = list(names)
    if looks_like_row(names):
        reason = "the names of the columns belong in the first line"
        return f"{len(names)} cells that look like a row, not like a header: {reason}"
    return ", ".join(map(name_of, names[:60])) + (", ..." if len(names) > 60 else "") or "none"


def address(url: str) -> str:
    """Strip user, password and options from a database's address.

    Args:
        url: the address as the user typed it.

    Returns:
        Scheme, host, port and path.

    >>> address("postgres://ann:p@ss/word@db.example:5432/mimic?password=x")
    'postgres://db.example:5432/mimic'
    """
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("?")[2]:  # part of a password or of an option: this cannot be decided
        return f"{scheme}://..."
    rest = rest.rpartition("@")[2].partition("?")[0].partition("#")[0]
    return f"{scheme}://{re.sub(r':(?![0-9]+(/|$))[^/]*', '', rest)}"


def without_secrets(reason: str, url: str) -> str:
    """Return the first line of a driver's message, unless it holds a part of the password or of an option.

    Args:
        reason: the driver's message.
        url: the address that the message is about.

    Returns:
        The line, or an empty text.

    >>> without_secrets("host db.example is unknown", "postgres://ann:word@db.example/mimic")
    'host db.example is unknown'
    >>> without_secrets("password word is wrong", "postgres://ann:word@db.example/mimic")
    ''
    """

    def pieces(text: str) -> set[str]:
        return {piece for form in (text, unquote(text)) for piece in re.split(r"[:/@?&=#]", form) if piece}

    body = url.partition("://")[2]
    user = re.match(r"[^:/?#]*(?=.*@)", body)
    secrets = pieces(body) - pieces(address(url)) - {user[0] if user else ""}
    line = (reason.strip().splitlines() or [""])[0]
    return "" if any(secret in line for secret in secrets) else line
