"""What a fit leaves behind at the end of each epoch: its record, and a file from which a stopped run goes on.

Records and tensors come in, one safetensors file goes out, and comes back as what it was.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mlci.base.errors import InputError
from mlci.base.files import atomic, check_writable
from mlci.fitting import processes
from mlci.fitting._result import Epoch, Trained


class Stateful(Protocol):
    """A model, or several."""

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object: ...


@dataclass
class Checkpoint:
    """The fits so far by their number, and the tensors of those that need them; written whole at the end of each epoch.

    Fits in several threads may share it.
    """

    path: Path | None
    fingerprint: str
    fits: dict[int, Trained] = field(default_factory=dict)
    tensors: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def open(cls, path: Path | None, fingerprint: str) -> "Checkpoint":
        """What was saved under `path` by the same fit, or an empty one."""
        if path is not None:
            check_writable(path)
        if path is None or not path.exists():
            return cls(path, fingerprint)
        try:
            with safe_open(path, "pt") as file:
                facts = json.loads((file.metadata() or {})["mlci.checkpoint"])
                tensors: dict[int, dict[str, Tensor]] = {}
                for key in file.keys():  # noqa: SIM118
                    number, name = key.split(".", 1)
                    tensors.setdefault(int(number), {})[name] = file.get_tensor(key)
            fits = {
                int(number): Trained(
                    **{**each, "history": tuple(Epoch(tuple(a), tuple(b), q) for a, b, q in each["history"])}
                )
                for number, each in facts["fits"].items()
            }
        except (SafetensorError, KeyError, ValueError, TypeError, AttributeError):
            raise InputError(f"{path}: is not the checkpoint of a fit; remove it or name another file.") from None
        if facts["fingerprint"] != fingerprint:
            raise InputError(
                f"{path}: is the checkpoint of a fit with other data, settings or seed; remove it or name another file."
            )
        return cls(path, fingerprint, fits, tensors)

    @property
    def epochs(self) -> int:
        return sum(len(trained.history) for trained in self.fits.values())

    def done(self, number: int) -> int:
        """Epochs of a fit."""
        return len(self.fits[number].history) if number in self.fits else 0

    def part(self, number: int, name: str) -> dict[str, Tensor]:
        start = f"{name}."
        tensors = self.tensors.get(number, {}).items()
        return {key.removeprefix(start): tensor for key, tensor in tensors if key.startswith(start)}

    def keep(self, number: int, trained: Trained, model: Stateful, optimiser: torch.optim.Optimizer) -> None:
        """Take over a fit's state at the end of an epoch, and write all."""
        with self.lock:
            self.fits[number] = trained
            kept = trained.epoch == len(trained.history)
            self.hold(number, model, model.state_dict() if kept else self.part(number, "best"), optimiser)
            self.write()

    def hold(self, number: int, model: Stateful, best: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> None:
        """A copy, as the next epoch changes the tensors while another fit may write."""
        moments = {
            f"{parameter}.{name}": tensor
            for parameter, values in optimiser.state_dict()["state"].items()
            for name, tensor in values.items()
        }
        parts = {"model": model.state_dict(), "best": best, "adam": moments}
        self.tensors[number] = {
            f"{part}.{name}": tensor.to("cpu", copy=True)
            for part, tensors in parts.items()
            for name, tensor in tensors.items()
        }

    def drop(self, number: int) -> None:
        """The tensors of a finished fit, whose record alone is needed."""
        with self.lock:
            self.tensors.pop(number, None)

    def write(self) -> None:
        if self.path is None or processes.rank():
            return
        fits = {
            number: {**asdict(each), "history": [(e.objective, e.validation, e.quality) for e in each.history]}
            for number, each in self.fits.items()
        }
        facts = {"fingerprint": self.fingerprint, "fits": fits}
        tensors = {f"{number}.{name}": each for number, of in self.tensors.items() for name, each in of.items()}
        with atomic(self.path) as temporary:
            # Not save_file: killed, it would leave a temporary file of its own.
            temporary.write_bytes(save(tensors, metadata={"mlci.checkpoint": json.dumps(facts)}))

    def restore(self, number: int, model: Stateful, optimiser: torch.optim.Optimizer) -> None:
        model.load_state_dict(self.part(number, "model"))
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in self.part(number, "adam").items():
            parameter, name = key.split(".")
            state.setdefault(int(parameter), {})[name] = tensor.clone()
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
