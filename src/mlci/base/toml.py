"""Read settings from TOML files, and write them as TOML."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlci.base.errors import InputError

_BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that need no quotation marks


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; a file that is not TOML raises an `InputError`.

    Args:
        path: the file. It may begin with a byte-order mark, which some editors write.

    Returns:
        Its values by key.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "own.toml").write_text("[penalty]\\nfolds = 3")
    ...     read_toml(Path(folder, "own.toml"))
    {'penalty': {'folds': 3}}
    """
    try:
        return tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not TOML: {error}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text in UTF-8.") from None


def toml_line(key: str, value: Any) -> str:
    """Return the line that sets a key.

    Args:
        key: any text; it is quoted if necessary.
        value: a text, number or Boolean, or a list or dictionary of these.

    >>> print(toml_line("codes", ["DX1", "DX2"]))
    codes = ["DX1", "DX2"]
    >>> print(toml_line("importance", {"mortality": 2.0, "long stay": 0.5}))
    importance = {mortality = 2.0, "long stay" = 0.5}
    """
    return f"{key if _BARE.fullmatch(key) else _value(key)} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(toml_line(name, part) for name, part in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
