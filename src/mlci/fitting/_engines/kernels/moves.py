"""A step of AdamW for several fits, each with its own rates."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["size"])
def _adamw(weight, gradient, moment, square, rates, size, B: tl.constexpr):
    fit, places = tl.program_id(1).to(tl.int64), tl.program_id(0) * B + tl.arange(0, B)
    inside, place, rates = places < size, fit * size + places, rates + fit * 5
    slope = tl.load(gradient + place, mask=inside, other=0.0)
    first = tl.load(moment + place, mask=inside, other=0.0)
    second = tl.load(square + place, mask=inside, other=0.0)
    first += (slope - first) * tl.load(rates + 1)
    second += (slope * slope - second) * tl.load(rates + 2)
    move = tl.load(rates + 3) * first / (tl.sqrt(second) * tl.load(rates + 4) + 1e-8)
    tl.store(moment + place, first, mask=inside)
    tl.store(square + place, second, mask=inside)
    tl.store(weight + place, tl.load(weight + place, mask=inside) * tl.load(rates) - move, mask=inside)


def adamw(weight: Tensor, gradient: Tensor, moment: Tensor, square: Tensor, rates: Tensor) -> None:
    """Take the step of `stacked.adamw` on a GPU."""
    fits, size = len(weight), weight[0].numel()
    _adamw[triton.cdiv(size, 1024), fits](weight, gradient.contiguous(), moment, square, rates, size, B=1024)
