"""Several processes that train one model together, as `torchrun` starts them: who takes what, and what they exchange.

Every process holds the same weights and draws the same batches. Each scores its share of a batch, the scores are put
together so that the loss sees all of them, and the gradients are summed: a step is that of one process, up to rounding.
Whoever needs to know the others is given a `Group`; without torchrun it is `ALONE`. Torch is imported when needed.
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
    """Wrong for this process, and perhaps for no other."""


class LostError(OwnError):
    """Another process is gone."""


@dataclass(frozen=True)
class Group:
    """The processes that work together: how many, and which of them this one is."""

    rank: int = 0
    count: int = 1

    def share(self, rows: int) -> slice:
        """Say which of so many rows are this process's.

        >>> Group(rank=1, count=2).share(25)
        slice(12, 25, None)
        """
        return slice(rows * self.rank // self.count, rows * (self.rank + 1) // self.count)

    def gather(self, own: "Tensor", rows: int) -> "Tensor":
        """Bring together the scores of all rows, from each process's own."""
        if self.count == 1:
            return own
        whole = own.new_zeros(rows, *own.shape[1:])
        whole[self.share(rows)] = own
        self._reduce(whole)
        return whole

    def sum(self, own: np.ndarray) -> np.ndarray:
        """Sum the arrays of all processes into this one's."""
        if self.count > 1:
            import torch

            self._reduce(torch.from_numpy(own))
        return own

    def sum_gradients(self, parameters: "Iterable[torch.nn.Parameter]") -> None:
        """Sum the gradients of all processes, each through its own scores: that is the gradient of the whole batch."""
        if self.count == 1:
            return
        import torch

        parts = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([part.flatten() for part in parts])
        self._reduce(flat)
        for part, summed in zip(parts, flat.split([part.numel() for part in parts])):
            part.copy_(summed.view_as(part))

    def agree(self, fact: str) -> None:
        """Refuse to go on unless all processes say the same."""
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
        """Go on when all processes are here."""
        self.agree("here")

    def _reduce(self, tensor: "Tensor", *, largest: bool = False) -> None:
        from torch import distributed as dist

        try:
            dist.all_reduce(tensor, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
        except RuntimeError as error:
            raise LostError(
                f"process {self.rank + 1} of {self.count}: another one has ended, so this one ends too; the same "
                "command goes on after the last epoch that was finished."
            ) from error


ALONE = Group()


def world() -> Group:
    """Find everybody that torchrun started and `joined` brought together, or this process alone."""
    if "torch.distributed" in sys.modules:
        from torch import distributed as dist

        if dist.is_available() and dist.is_initialized():
            return Group(dist.get_rank(), dist.get_world_size())
    return ALONE


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Say of what is wrong in the block that it is wrong for this process: each works for itself there."""
    try:
        yield
    except InputError as error:
        raise OwnError(str(error)) from error


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    if device == "cpu":
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device is {device!r}, which this machine does not offer; cpu always works.") from None


@contextlib.contextmanager
def joined(device: str) -> Iterator[tuple[str, Group]]:
    """Meet the other processes of a torchrun, if that is how this one was started.

    Gives the device of this process and the group. What is wrong for all of them is told by the first alone.
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
            raise InputError(f"process {place + 1} on this machine needs a GPU of its own, and there are {there}.")
        device = f"cuda:{place}"
        torch.cuda.set_device(device)
    # Facts travel as tensors of the host, whatever trains: torch itself would join the GPUs alone.
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
