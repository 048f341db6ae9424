"""Start a backward pass from a gradient that is known already.

`tensor.backward(gradient)` does the same, but imports torch's symbolic shapes to compare two shapes, which takes one to
two seconds.
"""

from functools import cache

import torch
from torch import Tensor


class _Known(torch.autograd.Function):
    """A zero whose gradient by the scores is the given one."""

    @staticmethod
    def forward(ctx, scores: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return scores.new_zeros(())

    @staticmethod
    def backward(ctx, _: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.saved_tensors[0], None


def backward(scores: Tensor, gradient: Tensor) -> None:
    """Backpropagate a `gradient` by the `scores` to the parameters that they were computed from.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> backward(3 * weight, torch.tensor([1.0, 5.0]))
    >>> weight.grad
    tensor([ 3., 15.])
    """
    _attach(scores.device)
    _Known.apply(scores, gradient.view_as(scores)).backward()


@cache
def _attach(device: torch.device) -> None:
    """Attach torch's backward thread to the context of a GPU: torch warns if cuBLAS is the first to need it there."""
    if device.type == "cuda":
        torch.ones(1, device=device, requires_grad=True).square().backward()
