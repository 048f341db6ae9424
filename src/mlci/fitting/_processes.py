"""Data parallelism: several processes, started by `torchrun`, that train one model together.

Every process holds the same weights and draws the same minibatches. Each computes the scores of its share of a
minibatch; the scores are gathered, so that the loss sees all of them; and the gradients are summed. A step is thus that
of one process, up to rounding. Functions take a `Group` of processes; without torchrun it is `ALONE`. Torch is imported
when needed.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlci.base.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class OwnError(InputError):
    """An error of this process, perhaps of no other."""


class LostError(OwnError):
    """Another process has ended."""


@dataclass(frozen=True)
class Group:
    """The processes that work together: their number, and the rank of this one."""

    rank: int = 0
    count: int = 1

    def share(self, rows: int) -> slice:
        """Return this process's share of so many rows.

        >>> Group(rank=1, count=2).share(25)
        slice(12, 25, None)
        """
        return slice(rows * self.rank // self.count, rows * (self.rank + 1) // self.count)

    def gather(self, own: "Tensor", rows: int) -> "Tensor":
        """Gather the scores of all rows from the processes' shares."""
        if self.count == 1:
            return own
        whole = own.new_zeros(rows, *own.shape[1:])
        whole[self.share(rows)] = own
        self._reduce(whole)
        return whole

    def sum(self, own: np.ndarray) -> np.ndarray:
        """Sum the arrays of all processes, in place."""
        if self.count > 1:
            import torch

            self._reduce(torch.from_numpy(own))
        return own

    def sum_gradients(self, parameters: "Iterable[torch.nn.Parameter]") -> None:
        """Sum the gradients of all processes, each by its own scores: the result is that of the whole minibatch."""
        if self.count == 1:
            return
        import torch

        parts = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([part.flatten() for part in parts])
        self._reduce(flat)
        for part, summed in zip(parts, flat.split([part.numel() for part in parts])):
            part.copy_(summed.view_as(part))

    def agree(self, fact: str) -> None:
        """Raise an error unless `fact` is the same in all processes."""
        if self.count == 1:
            return
        import torch

        number = int.from_bytes(hashlib.sha256(fact.encode()).digest()[:7], "big")
        extremes = torch.tensor([number, -number])
        self._reduce(extremes, largest=True)
        if int(extremes.sum()):
            raise InputError(
                "The processes do not see the same data, settings and checkpoint; give all of them the same files."
            )

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.agree("here")

    def _reduce(self, tensor: "Tensor", *, largest: bool = False) -> None:
        from torch import distributed as dist

        try:
            dist.all_reduce(tensor, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
        except RuntimeError as error:
            raise LostError(
                f"process {self.rank + 1} of {self.count}: another process has ended, so this one ends too; run the "
                "same command again to continue after the last finished epoch."
            ) from error


ALONE = Group()


def world() -> Group:
    """Return the group of processes that torchrun started and `joined` initialised, or this process alone."""
    if "torch.distributed" in sys.modules:
        from torch import distributed as dist

        if dist.is_available() and dist.is_initialized():
            return Group(dist.get_rank(), dist.get_world_size())
    return ALONE


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Turn errors of the block into those of this process alone: each process works by itself there."""
    try:
        yield
    except InputError as error:
        raise OwnError(str(error)) from error


def check_device(device: str) -> None:
    """Raise an error for a device that this machine does not have."""
    if device == "cpu":
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device is {device!r}, which this machine does not offer; cpu always works.") from None


@contextlib.contextmanager
def joined(device: str) -> Iterator[tuple[str, Group]]:
    """Initialise the process group if torchrun started this process.

    Yields the device of this process and the group. An error that all processes have is reported by the first alone.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield device, ALONE
        return
    import torch
    from torch import distributed as dist

    check_device(device)
    if device == "cuda":
        place, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if place >= there:
            raise InputError(
                f"process {place + 1} on this machine needs a GPU of its own, and the machine has {there}."
            )
        device = f"cuda:{place}"
        torch.cuda.set_device(device)
    # CPU tensors are exchanged as well (`agree`, `sum`), so gloo is needed next to NCCL.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    group = world()
    try:
        yield device, group
    except InputError as error:
        if group.rank and not isinstance(error, OwnError):
            sys.exit(2)
        raise
    finally:
        dist.destroy_process_group()
