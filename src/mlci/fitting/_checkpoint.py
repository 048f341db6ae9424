"""Checkpoints: one safetensors file of named entries, from which an interrupted fit continues.

An entry holds facts (anything that JSON can represent) and arrays. The file is replaced atomically. Every process of a
fit reads it; the first one writes it. Needs no torch.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.base.files import check_writable
from mlci.base.tensors import digest, read_tensors, write_tensors
from mlci.fitting._data import Split, fingerprint
from mlci.fitting._processes import ALONE, Group

KEY = "mlci.checkpoint"


@dataclass(frozen=True)
class Entry:
    """What one part of a fit needs to continue."""

    facts: Any
    arrays: Mapping[str, np.ndarray]


class Checkpoint:
    """The entries of a fit by name; several threads may share it.

    Nothing is written without a `path`, or with `writes` off (in all processes but the first).
    """

    def __init__(self, path: Path | None, fingerprint: str, *, writes: bool = True) -> None:
        self.path, self.fingerprint, self.writes = path, fingerprint, writes and path is not None
        self.entries: dict[str, Entry] = {}
        self.lock = threading.RLock()
        self.written = time.monotonic()
        if path is not None:
            check_writable(path)
            if path.exists():
                self.entries = _read(path, fingerprint)

    def keep(self, name: str, facts: Any, arrays: Mapping[str, np.ndarray], *, interval: float = 0.0) -> None:
        """Set the entry of that name, and write the file unless that was done less than `interval` seconds ago."""
        with self.lock:
            self.entries[name] = Entry(facts, arrays)
            if self.writes and time.monotonic() >= self.written + interval:
                self._write()
                self.written = time.monotonic()

    def _write(self) -> None:
        facts = {name: entry.facts for name, entry in self.entries.items()}
        arrays = {f"{name}/{key}": array for name, entry in self.entries.items() for key, array in entry.arrays.items()}
        facts = json.loads(json.dumps({"fingerprint": self.fingerprint, "entries": facts}))
        header = {"sha256": digest(facts, arrays), "facts": facts}
        write_tensors(self.path, arrays, key=KEY, facts=header)  # pyright: ignore[reportArgumentType]


def open_checkpoint(path: Path | None, train: Split, valid: Split, *facts: object, group: Group = ALONE) -> Checkpoint:
    """Open a checkpoint, which must be of a fit with the same data and `facts`; all processes must agree on it."""
    key = fingerprint(train, valid, *facts) if path is not None or group.count > 1 else ""
    saved = Checkpoint(path, key, writes=group.rank == 0)
    group.agree(json.dumps([key, {name: entry.facts for name, entry in saved.entries.items()}]))
    return saved


def _read(path: Path, fingerprint: str) -> dict[str, Entry]:
    header, found = read_tensors(path, key=KEY, kind="the checkpoint of a fit; remove it or name another file")
    try:
        facts = header["facts"]
        if header["sha256"] != digest(facts, found):
            raise InputError(f"{path}: is damaged: its contents do not match its checksum; remove it to start over.")
        arrays: dict[str, dict[str, np.ndarray]] = {name: {} for name in facts["entries"]}
        for key, array in found.items():
            name, _, rest = key.partition("/")
            arrays[name][rest] = array
        entries = {name: Entry(fact, arrays[name]) for name, fact in facts["entries"].items()}
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: is not the checkpoint of a fit; remove it or name another file.") from None
    if facts["fingerprint"] != fingerprint:
        raise InputError(
            f"{path}: is the checkpoint of a fit with other data, settings or seed; remove it or name another file."
        )
    return entries
