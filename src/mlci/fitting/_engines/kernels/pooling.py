"""Pooling of the codes of admissions with the LayerNorm that follows, in one kernel launch each way."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mlci.fitting._engines.kernels.layers import into

CODES = 16  # codes of an admission that are processed at a time
EPSILON = tl.constexpr(1e-5)  # of torch's LayerNorm


@triton.jit(do_not_specialize=["batch"])
def _pool(
    table, logits, where, offsets, weight, bias, normed, units, scales, masses, winners, batch, width,
    WEIGHTED: tl.constexpr, SUMS: tl.constexpr, MOST: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    bag = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    wide = tl.arange(0, D)
    real = wide < width
    total = tl.zeros([D], dtype=tl.float32)
    mass, peak = 0.0, -float("inf")
    best = tl.full([D], -float("inf"), dtype=tl.float32)
    winner = tl.full([D], -1, dtype=tl.int64)
    for start in range(begin, end, C):
        places = start + tl.arange(0, C)
        rows = tl.load(where + places, mask=places < end, other=-1)
        inside = (places < end)[:, None] & real[None, :]
        part = tl.load(table + rows[:, None] * width + wide[None, :], mask=inside, other=-float("inf"))
        if WEIGHTED:
            logit = tl.load(logits + rows, mask=places < end, other=-float("inf"))
            higher = tl.maximum(peak, tl.max(logit))
            share = tl.exp(logit - higher)
            shrink = tl.exp(peak - higher)
            total = total * shrink + tl.sum(tl.where(inside, part, 0.0) * share[:, None], axis=0)
            mass, peak = mass * shrink + tl.sum(share), higher
        else:
            total += tl.sum(tl.where(inside, part, 0.0), axis=0)
        if MOST:
            top = tl.max(part, axis=0)
            first = tl.max(tl.where(part == top[None, :], rows[:, None], -1), axis=0)
            winner = tl.where(top > best, first, winner)
            best = tl.maximum(top, best)
    count = tl.maximum(end - begin, 1).to(tl.float32)
    if WEIGHTED:
        mean = total / tl.where(end > begin, mass, 1.0)
        tl.store(masses + bag, peak + tl.log(tl.where(end > begin, mass, 1.0)))
    else:
        mean = total if SUMS else total / count
    # LayerNorm over all features.
    if MOST:
        best = tl.where(winner >= 0, best, 0.0)
        centre = (tl.sum(mean) + tl.sum(best)) / (2 * width)
        mean, best = tl.where(real, mean - centre, 0.0), tl.where(real, best - centre, 0.0)
        scale = 1 / tl.sqrt((tl.sum(mean * mean) + tl.sum(best * best)) / (2 * width) + EPSILON)
        place, own = bag * 2 * width + wide, bag // batch * 2 * width + wide
        best *= scale
        tl.store(units + place + width, best, mask=real)
        best = best * tl.load(weight + own + width, mask=real) + tl.load(bias + own + width, mask=real)
        tl.store(normed + place + width, best, mask=real)
        tl.store(winners + bag * width + wide, winner, mask=real)
    else:
        mean = tl.where(real, mean - tl.sum(mean) / width, 0.0)
        scale = 1 / tl.sqrt(tl.sum(mean * mean) / width + EPSILON)
        place, own = bag * width + wide, bag // batch * width + wide
    mean *= scale
    tl.store(units + place, mean, mask=real)
    mean = mean * tl.load(weight + own, mask=real) + tl.load(bias + own, mask=real)
    tl.store(normed + place, mean, mask=real)
    tl.store(scales + bag, scale)


@triton.jit(do_not_specialize=["batch"])
def _unpool(
    gradient, table, logits, where, offsets, weight, units, scales, masses, winners,
    by_table, by_logits, weights, biases, batch, width,
    WEIGHTED: tl.constexpr, SUMS: tl.constexpr, MOST: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    bag = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    wide = tl.arange(0, D)
    real = wide < width
    size = 2 * width if MOST else width
    place, own = bag * size + wide, bag // batch * size + wide
    scale = tl.load(scales + bag)
    mean = tl.load(gradient + place, mask=real, other=0.0)
    unit = tl.load(units + place, mask=real, other=0.0)
    tl.atomic_add(biases + own, mean, mask=real, sem="relaxed")
    tl.atomic_add(weights + own, mean * unit, mask=real, sem="relaxed")
    mean *= tl.load(weight + own, mask=real, other=0.0)
    level, tilt = tl.sum(mean) / size, tl.sum(mean * unit) / size
    if MOST:
        best = tl.load(gradient + place + width, mask=real, other=0.0)
        best_unit = tl.load(units + place + width, mask=real, other=0.0)
        tl.atomic_add(biases + own + width, best, mask=real, sem="relaxed")
        tl.atomic_add(weights + own + width, best * best_unit, mask=real, sem="relaxed")
        best *= tl.load(weight + own + width, mask=real, other=0.0)
        level, tilt = level + tl.sum(best) / size, tilt + tl.sum(best * best_unit) / size
        best = (best - level - best_unit * tilt) * scale
        winner = tl.load(winners + bag * width + wide, mask=real, other=-1)
        tl.atomic_add(by_table + winner * width + wide, best, mask=(winner >= 0) & real, sem="relaxed")
    mean = (mean - level - unit * tilt) * scale
    if not (SUMS or WEIGHTED):
        mean /= tl.maximum(end - begin, 1).to(tl.float32)
    average = 0.0  # Σ share * (row · gradient), the term that the softmax's backward subtracts
    if WEIGHTED:
        mass = tl.load(masses + bag)
        for start in range(begin, end, C):
            places = start + tl.arange(0, C)
            rows = tl.load(where + places, mask=places < end, other=0)
            inside = (places < end)[:, None] & real[None, :]
            part = tl.load(table + rows[:, None] * width + wide[None, :], mask=inside, other=0.0)
            share = tl.exp(tl.load(logits + rows, mask=places < end, other=-float("inf")) - mass)
            average += tl.sum(share * tl.sum(part * mean[None, :], axis=1))
    for start in range(begin, end, C):
        places = start + tl.arange(0, C)
        rows = tl.load(where + places, mask=places < end, other=0)
        inside = (places < end)[:, None] & real[None, :]
        spread = tl.broadcast_to(mean[None, :], (C, D))
        if WEIGHTED:
            share = tl.exp(tl.load(logits + rows, mask=places < end, other=-float("inf")) - mass)
            part = tl.load(table + rows[:, None] * width + wide[None, :], mask=inside, other=0.0)
            pull = share * (tl.sum(part * mean[None, :], axis=1) - average)
            tl.atomic_add(by_logits + rows, pull, mask=places < end, sem="relaxed")
            spread = spread * share[:, None]
        tl.atomic_add(by_table + rows[:, None] * width + wide[None, :], spread, mask=inside, sem="relaxed")


class Pool(torch.autograd.Function):
    """`stacked_models.pool_and_normalise` on a GPU.

    The gradient of a maximum goes to its winner alone. Gradients that the norm's weights already have are added to.
    """

    @staticmethod
    def forward(
        ctx, table: Tensor, logits: Tensor | None, where: Tensor, offsets: Tensor, weight: Tensor, bias: Tensor,
        sums: bool, most: bool,
    ) -> Tensor:  # fmt: skip
        bags, (fits, size), width = len(offsets) - 1, weight.shape, table.shape[1]
        normed, units = (table.new_empty(bags, size) for _ in range(2))
        scales, masses = table.new_empty(2, bags)
        winners = where.new_empty(bags if most else 0, width)
        ctx.sizes = (bags // fits, width)
        ctx.fixed = {"WEIGHTED": logits is not None, "SUMS": sums, "MOST": most}
        ctx.fixed |= {"D": triton.next_power_of_2(width), "C": CODES, "num_warps": 1}
        given = (table, table if logits is None else logits, where, offsets, weight)
        found = (units, scales, masses, winners)
        _pool[(bags,)](*given, bias, normed, *found, *ctx.sizes, **ctx.fixed)
        ctx.save_for_backward(*given, *found, bias)
        return normed.view(fits, -1, size)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        *given, bias = ctx.saved_tensors
        table, logits, _, offsets, weight, *_ = given
        weighted = ctx.fixed["WEIGHTED"]
        by_table, by_logits = torch.zeros_like(table), torch.zeros_like(logits) if weighted else table
        norm = [into(own) for own in (weight, bias)]
        found = (by_table, by_logits, *norm)
        _unpool[(len(offsets) - 1,)](gradient.contiguous(), *given, *found, *ctx.sizes, **ctx.fixed)
        norm = [None if own.grad is not None else found for own, found in zip((weight, bias), norm)]
        return by_table, by_logits if weighted else None, None, None, *norm, None, None
