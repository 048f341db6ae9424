"""What follows a matrix product, in one launch each way: bias and ReLU."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["rows"])
def _activate(y, bias, rows, width, D: tl.constexpr, R: tl.constexpr):
    fit, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    line, wide = block * R + tl.arange(0, R), tl.arange(0, D)
    inside = (line < rows)[:, None] & (wide < width)[None, :]
    place = y + (fit * rows + line[:, None]) * width + wide[None, :]
    shift = tl.load(bias + fit * width + wide, mask=wide < width, other=0.0)
    tl.store(place, tl.maximum(tl.load(place, mask=inside, other=0.0) + shift[None, :], 0.0), mask=inside)


def activate(y: Tensor, bias: Tensor) -> Tensor:
    """Compute ReLU(y + bias) for each fit, in place."""
    fits, rows, width = y.shape
    _activate[fits, triton.cdiv(rows, 16)](y, bias, rows, width, D=triton.next_power_of_2(width), R=16)
    return y


@triton.jit(do_not_specialize=["rows"])
def _deactivate(gradient, y, out, sums, rows, width, D: tl.constexpr, R: tl.constexpr):
    fit, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    line, wide = block * R + tl.arange(0, R), tl.arange(0, D)
    inside = (line < rows)[:, None] & (wide < width)[None, :]
    place = (fit * rows + line[:, None]) * width + wide[None, :]
    alive = tl.load(y + place, mask=inside, other=0.0) > 0
    passed = tl.where(alive, tl.load(gradient + place, mask=inside, other=0.0), 0.0)
    tl.store(out + place, passed, mask=inside)
    tl.atomic_add(sums + fit * width + wide, tl.sum(passed, axis=0), mask=wide < width, sem="relaxed")


def deactivate(gradient: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Pass the gradient through the ReLU that gave y; also give its sum over rows, for each fit."""
    fits, rows, width = y.shape
    out, sums = torch.empty_like(y), y.new_zeros(fits, width)
    sizes = {"D": triton.next_power_of_2(width), "R": 32}
    _deactivate[fits, triton.cdiv(rows, 32)](gradient.contiguous(), y, out, sums, rows, width, **sizes)
    return out, sums
