"""Write arrays and facts to a safetensors file with a checksum over both, and read them without running any code.

Model files, checkpoints and fitted baselines are such files. The facts are JSON under one key of the header. A file
that is damaged, of another program or too large raises an error of one sentence.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mlci.base.errors import InputError, name_of, reading
from mlci.base.files import atomic

MOST_HEADER = 16 << 20  # bytes; the largest real header has about two million


def write_tensors(path: str | Path, arrays: Mapping[str, np.ndarray], *, key: str, facts: Any) -> None:
    """Write a file of arrays and facts, completely or not at all.

    Args:
        path: the file to write.
        arrays: the arrays by name.
        key: the key of the facts in the header.
        facts: values that JSON can hold, without NaN.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "model.safetensors")
    ...     write_tensors(file, {"weights": np.ones(2)}, key="mlci", facts={"seed": 11})
    ...     read_tensors(file, key="mlci", kind="a model file")
    ({'seed': 11}, {'weights': array([1., 1.])})
    """
    from safetensors.numpy import save

    header = json.dumps(facts, allow_nan=False)
    if len(header) > MOST_HEADER:
        raise InputError(
            f"{name_of(path)}: the facts of this file would take {len(header):,} bytes; they are too many."
        )
    ordered = {name: np.asarray(arrays[name], order="C") for name in sorted(arrays)}
    with atomic(path) as temporary:
        # Not save_file: if killed, it would leave a temporary file of its own.
        temporary.write_bytes(save(ordered, metadata={key: header}))


def read_tensors(path: str | Path, *, key: str, kind: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Read the facts and the arrays of a file.

    Args:
        path: the file. A damaged file, a file of another program or too large a header raises an `InputError`.
        key: the key of the facts in the header.
        kind: the expected kind of file, for messages: "a model file; `mlci fit` makes one".

    Returns:
        The facts, and the arrays by name.

    >>> read_tensors(__file__, key="mlci", kind="a model file")
    Traceback (most recent call last):
    mlci.base.errors.InputError: ...: is not a model file.
    """
    from safetensors import SafetensorError, safe_open

    refused = InputError(f"{name_of(path)}: is not {kind}.")
    with reading(path, kind.partition(";")[0]):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
        if size > MOST_HEADER:
            raise refused
        try:
            with safe_open(path, framework="numpy") as file:
                header = (file.metadata() or {}).get(key)
                if header is None:
                    raise InputError(f"{name_of(path)}: is a file of another program, not {kind}.")
                facts = json.loads(header, parse_constant=refuse_constant)
                return facts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        except InputError:
            raise
        except (SafetensorError, ValueError, TypeError, AttributeError):
            raise refused from None


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which are not JSON; for `parse_constant` of `json.loads`.

    Args:
        name: the constant that was read.

    >>> json.loads('{"seed": NaN}', parse_constant=refuse_constant)
    Traceback (most recent call last):
    ValueError: NaN is no number
    """
    raise ValueError(f"{name} is no number")


def digest(facts: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """Compute a checksum of facts and arrays together.

    Args:
        facts: values that JSON can hold.
        arrays: the arrays by name; values, types and shapes all count.

    Returns:
        A SHA-256 as 64 hexadecimal digits.

    >>> digest({"seed": 11}, {"weights": np.ones(2)}) == digest({"seed": 12}, {"weights": np.ones(2)})
    False
    """
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).data)
    return found.hexdigest()
