"""Several processes that train one model together, as `torchrun` starts them: who takes what, and what they exchange.

Every process holds the same weights and draws the same batches. Each scores its share of a batch, the scores are put
together so that the loss sees all of them, and the gradients are summed: a step is that of one process, up to rounding.
Without torchrun there is one process, and nothing is exchanged.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from mlci.base.errors import InputError


class Own(InputError):
    """Wrong for this process, and perhaps for no other."""


class Lost(Own):
    """Another process is gone."""


def check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"device is {device!r}, which this machine does not offer; cpu always works.") from None


@contextlib.contextmanager
def joined(device: str) -> Iterator[str]:
    """Meet the other processes of a torchrun, if that is how this one was started; gives the device of this one.

    What is wrong for all of them is told by the first alone.
    """
    if not (dist.is_available() and dist.is_torchelastic_launched()):
        yield device
        return
    check_device(device)
    if device == "cuda":
        place, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if place >= there:
            raise InputError(f"process {place + 1} on this machine needs a GPU of its own, and there are {there}.")
        device = f"cuda:{place}"
        torch.cuda.set_device(device)
    # Facts travel as tensors of the host, whatever trains: torch itself would join the GPUs alone.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    try:
        yield device
    except InputError as error:
        if rank() and not isinstance(error, Own):
            sys.exit(2)
        raise
    finally:
        dist.destroy_process_group()


_apart = False


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """In the block each process works for itself, as if there were no others."""
    global _apart
    before, _apart = _apart, True
    try:
        yield
    except InputError as error:
        raise Own(str(error)) from error
    finally:
        _apart = before


def count() -> int:
    return dist.get_world_size() if not _apart and dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if count() > 1 else 0


def share(rows: int) -> slice:
    """Which of so many rows are this process's."""
    return slice(rows * rank() // count(), rows * (rank() + 1) // count())


def gather(own: Tensor, rows: int) -> Tensor:
    """The scores of all rows, from each process's own; only through the own ones do gradients flow."""
    if count() == 1:
        return own
    whole = own.new_zeros(rows)
    whole[share(rows)] = own.detach()
    _reduce(whole)
    whole[share(rows)] = own
    return whole


def shared(own: np.ndarray) -> np.ndarray:
    """The sum of the arrays of all processes."""
    if count() == 1:
        return own
    whole = torch.from_numpy(own.copy())
    _reduce(whole)
    return whole.numpy()


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Each process has the gradient through its own scores: their sum is that of the whole batch."""
    if count() == 1:
        return
    parts = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([part.flatten() for part in parts])
    _reduce(flat)
    for part, summed in zip(parts, flat.split([part.numel() for part in parts])):
        part.copy_(summed.view_as(part))


def agree(fact: str) -> None:
    """Refuse to go on unless all processes say the same."""
    if count() == 1:
        return
    number = int.from_bytes(hashlib.sha256(fact.encode()).digest()[:7], "big")
    extremes = torch.tensor([number, -number])
    _reduce(extremes, dist.ReduceOp.MAX)
    if int(extremes.sum()):
        raise InputError(
            "The processes do not see the same data, settings and checkpoint; give all of them the same files."
        )


def wait() -> None:
    """Until all processes are here."""
    agree("here")


def _reduce(tensor: Tensor, operation=None) -> None:
    try:
        dist.all_reduce(tensor, operation or dist.ReduceOp.SUM)
    except RuntimeError as error:
        raise Lost(
            f"process {rank() + 1} of {count()}: another one has ended, so this one ends too; the same command goes on "
            "after the last epoch that was finished."
        ) from error
