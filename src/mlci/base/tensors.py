"""Arrays and facts in one safetensors file, with a checksum over both; reading one never runs anything.

Model files, checkpoints and fitted baselines are such files. Each keeps its facts, as JSON, under one key of the
header. What is damaged, foreign, too large or not a file at all is refused in one sentence.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mlci.base.errors import InputError, name_of, reading
from mlci.base.files import atomic

MOST_HEADER = 16 << 20  # bytes; the largest honest one has about two million


def write_tensors(path: str | Path, arrays: Mapping[str, np.ndarray], *, key: str, facts: Any) -> None:
    """Write a file of arrays and facts, whole or not at all.

    Args:
        path: the file to write.
        arrays: by name.
        key: where the header keeps the facts.
        facts: what JSON can say, without NaN.

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
        # Not save_file: killed, it would leave a temporary file of its own.
        temporary.write_bytes(save(ordered, metadata={key: header}))


def read_tensors(path: str | Path, *, key: str, kind: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Read the facts and the arrays of a file.

    Args:
        path: the file; one that is damaged, too large in its header or of another program is an `InputError`.
        key: where its header keeps the facts.
        kind: what the file should be, for messages: "a model file; `mlci fit` makes one".

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
    """Refuse NaN and Infinity, which are no JSON; made for `parse_constant` of `json.loads`.

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
        facts: what JSON can say.
        arrays: by name; values, types and shapes all count.

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
