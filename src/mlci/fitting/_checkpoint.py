"""What an interrupted fit leaves behind: one safetensors file of named entries, from which the same fit goes on.

An entry holds facts (anything JSON can say) and arrays. The file is written whole or not at all. Needs no torch.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mlci.base.errors import InputError
from mlci.base.files import atomic, check_writable

KEY = "mlci.checkpoint"


@dataclass(frozen=True)
class Entry:
    """What one part of a fit needs to go on."""

    facts: Any
    arrays: Mapping[str, np.ndarray]


class Checkpoint:
    """The entries of a fit by name; several threads may share it.

    Without a `path`, or with `writes` off (in all processes but the first), nothing is written.
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

    def keep(self, name: str, facts: Any, arrays: Mapping[str, np.ndarray], *, pause: float = 0.0) -> None:
        """Put an entry in the place of the one of that name, and write all unless that was done `pause` seconds ago."""
        with self.lock:
            self.entries[name] = Entry(facts, arrays)
            if self.writes and time.monotonic() >= self.written + pause:
                self._write()
                self.written = time.monotonic()

    def _write(self) -> None:
        facts = {name: entry.facts for name, entry in self.entries.items()}
        header = json.dumps({"fingerprint": self.fingerprint, "entries": facts})
        arrays = {f"{name}/{key}": array for name, entry in self.entries.items() for key, array in entry.arrays.items()}
        with atomic(self.path) as temporary:  # pyright: ignore[reportArgumentType]
            # Not save_file: killed, it would leave a temporary file of its own.
            temporary.write_bytes(save(arrays, metadata={KEY: header}))


def _read(path: Path, fingerprint: str) -> dict[str, Entry]:
    try:
        with safe_open(path, "numpy") as file:
            header = json.loads((file.metadata() or {})[KEY])
            arrays: dict[str, dict[str, np.ndarray]] = {name: {} for name in header["entries"]}
            for key in file.keys():  # noqa: SIM118 (not a mapping)
                name, _, rest = key.partition("/")
                arrays[name][rest] = file.get_tensor(key)
        entries = {name: Entry(facts, arrays[name]) for name, facts in header["entries"].items()}
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError):
        raise InputError(f"{path}: is not the checkpoint of a fit; remove it or name another file.") from None
    if header["fingerprint"] != fingerprint:
        raise InputError(
            f"{path}: is the checkpoint of a fit with other data, settings or seed; remove it or name another file."
        )
    return entries
