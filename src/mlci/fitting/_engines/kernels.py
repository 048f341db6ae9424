"""GPU kernels for what torch does in many small ones: pooling codes, and the alignment with its gradient.

Tensors come in, tensors go out, equal to their torch counterparts in `stacks`, `stacked` and `_objectives` within
rounding. A step of stacked fits is mostly launching kernels: with these an alignment is three launches instead of
seventy. Triton comes with torch for CUDA; where it is missing, fits are made one by one.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from mlci.config import ObjectiveConfig

ROWS, TILE = 16, 256  # pairs of scores are taken ROWS x TILE at a time
CODES = 16  # codes of an admission that are pooled at a time
EPSILON = tl.constexpr(1e-5)  # of torch's LayerNorm


@triton.jit
def _pairs(gap, precisions, FACTORS: tl.constexpr):
    """Give the kernel of score differences less one, and its derivative (`_objectives.kernel_less_one`)."""
    if FACTORS == 0:  # energy
        value, slope = -tl.abs(gap), tl.where(gap > 0, -1.0, tl.where(gap < 0, 1.0, 0.0))
    else:
        value, slope = tl.zeros_like(gap), tl.zeros_like(gap)
        for factor in tl.static_range(FACTORS):
            precision = tl.load(precisions + factor)
            x = gap * gap * (-precision / 2)
            power = tl.exp(x)
            # Near zero by its series, so that near-equal scores keep their digits.
            value += tl.where(x > -0.03, x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4))), power - 1) / FACTORS
            slope -= power * precision * gap / FACTORS
    return value, slope


@triton.jit(do_not_specialize=["n"])
def _products(
    scores, columns, precisions, products, n, groups,
    FACTORS: tl.constexpr, W: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Multiply the Gram matrix by the columns, for R rows of one problem."""
    problem, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    scores += problem // groups * n
    columns += problem * n * W
    precisions += problem // groups * FACTORS
    rows, wide = block * R + tl.arange(0, R), tl.arange(0, W)
    own = tl.load(scores + rows, mask=rows < n, other=0.0)
    total = tl.zeros([R, W], dtype=tl.float32)
    for start in range(0, n, B):
        others = start + tl.arange(0, B)
        gap = own[:, None] - tl.load(scores + others, mask=others < n, other=0.0)[None, :]
        gram, _ = _pairs(gap, precisions, FACTORS)
        part = tl.load(columns + others[:, None] * W + wide[None, :], mask=others[:, None] < n, other=0.0)
        total = tl.dot(gram, part, total, input_precision="ieee")
    tl.store(products + problem * n * W + rows[:, None] * W + wide[None, :], total, mask=rows[:, None] < n)


@triton.jit
def _halves(columns, products, problem, n, W: tl.constexpr, B: tl.constexpr):
    """Count the rows that count; also halve the mean of the Gram matrix over them."""
    count, total = 0.0, 0.0
    for start in range(0, n, B):
        rows = start + tl.arange(0, B)
        place = problem * n * W + rows * W
        mask = tl.load(columns + place, mask=rows < n, other=0.0)
        count += tl.sum(mask)
        total += tl.sum(mask * tl.load(products + place, mask=rows < n, other=0.0))
    count = tl.maximum(count, 1.0)
    return count, total / count / count / 2


@triton.jit
def _centred(
    scores, columns, products, precisions, rows, others, n, count, half, FACTORS: tl.constexpr, W: tl.constexpr
):
    """Centre the Gram matrix between some rows and others of one problem; also give the kernel's derivative."""
    gap = (
        tl.load(scores + rows, mask=rows < n, other=0.0)[:, None]
        - tl.load(scores + others, mask=others < n, other=0.0)[None, :]
    )
    gram, slope = _pairs(gap, precisions, FACTORS)
    left = tl.load(products + rows * W, mask=rows < n, other=0.0) / count - half
    above = tl.load(products + others * W, mask=others < n, other=0.0) / count - half
    mask = (
        tl.load(columns + rows * W, mask=rows < n, other=0.0)[:, None]
        * tl.load(columns + others * W, mask=others < n, other=0.0)[None, :]
    )
    return (gram - left[:, None] - above[None, :]) * mask, slope


@triton.jit(do_not_specialize=["n"])
def _squares(
    scores, columns, precisions, products, squares, n, groups,
    FACTORS: tl.constexpr, W: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Sum the squares of the centred Gram matrix, over R rows of one problem."""
    problem, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    count, half = _halves(columns, products, problem, n, W, B)
    scores += problem // groups * n
    columns += problem * n * W
    products += problem * n * W
    precisions += problem // groups * FACTORS
    rows = block * R + tl.arange(0, R)
    total = tl.zeros([R], dtype=tl.float32)
    for start in range(0, n, B):
        others = start + tl.arange(0, B)
        centred, _ = _centred(scores, columns, products, precisions, rows, others, n, count, half, FACTORS=FACTORS, W=W)
        total += tl.sum(centred * centred, axis=1)
    tl.store(squares + problem * tl.num_programs(1) + block, tl.sum(total))


@triton.jit(do_not_specialize=["n"])
def _gradients(
    scores, columns, precisions, products, squares, units, pulls, values, gradient, n, groups, blocks, floor,
    FACTORS: tl.constexpr, W: tl.constexpr, R: tl.constexpr, B: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Give the values of one problem, and the gradient of their sum weighted by `pulls` for R of its scores."""
    problem, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    count, half = _halves(columns, products, problem, n, W, B)
    scores += problem // groups * n
    columns += problem * n * W
    products += problem * n * W
    precisions += problem // groups * FACTORS
    rows, wide = block * R + tl.arange(0, R), tl.arange(0, W)
    forms = tl.zeros([W], dtype=tl.float32)
    for start in range(0, n, B):
        others = start + tl.arange(0, B)
        place = others[:, None] * W + wide[None, :]
        inside = others[:, None] < n
        forms += tl.sum(
            tl.load(columns + place, mask=inside, other=0.0) * tl.load(products + place, mask=inside, other=0.0), axis=0
        )
    parts = tl.arange(0, BLOCKS)
    size = tl.sqrt(tl.sum(tl.load(squares + problem * blocks + parts, mask=parts < blocks, other=0.0)))
    scale = tl.load(units + problem * W + wide) / tl.maximum(size, floor)
    value = forms * scale
    pull = tl.load(pulls + problem * W + wide)
    # Below the floor the norm is a constant and has no gradient.
    shrink = tl.where(size > floor, tl.sum(pull * value) / (size * size), 0.0)
    own = tl.load(columns + rows[:, None] * W + wide[None, :], mask=rows[:, None] < n, other=0.0)
    own *= (pull * scale)[None, :]
    total = tl.zeros([R], dtype=tl.float32)
    for start in range(0, n, B):
        others = start + tl.arange(0, B)
        centred, slope = _centred(
            scores, columns, products, precisions, rows, others, n, count, half, FACTORS=FACTORS, W=W
        )
        theirs = tl.load(columns + others[:, None] * W + wide[None, :], mask=others[:, None] < n, other=0.0)
        products_of = tl.dot(own, tl.trans(theirs), input_precision="ieee")
        total += tl.sum((products_of - shrink * centred) * slope, axis=1)
    tl.store(gradient + problem * n + rows, 2 * total, mask=rows < n)
    if block == 0:
        tl.store(values + problem * W + wide, value)


def alignment(
    scores: Tensor, columns: Tensor, units: Tensor, *, precisions: Tensor, floor: float, pulls: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Normalised HSIC of each fit's scores (fits x admissions) with its outcomes, as fits x problems x W like `units`;
    and the gradient of their sum weighted by `pulls`, if given.
    """
    fits, n = scores.shape
    groups, width = units.shape[1:]
    grid = (fits * groups, triton.cdiv(n, ROWS))
    sizes = {"FACTORS": precisions.shape[1], "W": width, "R": ROWS, "B": TILE}
    products, squares = torch.empty_like(columns), columns.new_empty(grid)
    common, least = (scores, columns, precisions, products), max(floor, 1e-15)
    _products[grid](*common, n, groups, **sizes)
    _squares[grid](*common, squares, n, groups, **sizes)
    if pulls is None:
        size = squares.double().sum(1).sqrt().clamp(min=least).view(fits, groups, 1)
        return ((columns * products).sum(2, dtype=torch.float64) * units / size), None
    values, gradient = torch.empty_like(units), columns.new_empty(fits, groups, n)
    found = (squares, units, pulls, values, gradient)
    _gradients[grid](*common, *found, n, groups, grid[1], least, **sizes, BLOCKS=triton.next_power_of_2(grid[1]))
    return values, gradient.sum(1) if groups > 1 else gradient.squeeze(1)


class StackedAlignments:
    """`_objectives.Alignments` on a GPU."""

    def __init__(self, config: ObjectiveConfig, sigmas: Sequence[float | None], weights: Tensor) -> None:
        self.config, self.weights = config, weights
        widths = weights.new_tensor([sigma or 1.0 for sigma in sigmas])
        self.precisions = (widths[:, None] * widths.new_tensor(config.widths)) ** -2
        fits, outcomes = weights.shape
        together = config.validity == "intersection"
        width = max(16, triton.next_power_of_2(1 + outcomes)) if together else 16
        self.pulls = weights.new_zeros(fits, 1 if together else outcomes, width)
        self.among(self.pulls)[:] = -weights

    def among(self, problems: Tensor) -> Tensor:
        """Pick fits x outcomes out of fits x problems x W."""
        alone = self.config.validity != "intersection"
        return problems[:, :, 1] if alone else problems[:, 0, 1 : 1 + self.weights.shape[1]]

    def labels(self, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        """Prepare what an alignment needs of outcomes (... x admissions x outcomes, NaN where not known).

        Returns the columns of each problem, ... x problems x admissions x W: which admissions count, then each outcome
        less its mean over them; and ... x problems x W: one over each outcome's sum of squares, 0 where it does not
        count. A problem is all outcomes, judged where all are known, or one of them.
        """
        known = outcomes == outcomes
        if self.config.validity == "intersection":
            mask, y = known.all(-1, keepdim=True).unsqueeze(-3), outcomes.unsqueeze(-3)
        else:
            mask, y = known.mT.unsqueeze(-1), outcomes.mT.unsqueeze(-1)
        mask = mask.to(outcomes.dtype)
        rows = mask.sum(-2, keepdim=True)
        y = y.nan_to_num() * mask
        profiles = (y - y.sum(-2, keepdim=True) / rows.clamp(min=1)) * mask
        energy = profiles.square().sum(-2)
        counts = (rows.squeeze(-2) >= self.config.least_rows) & (energy > 0)
        width = max(16, triton.next_power_of_2(1 + y.shape[-1]))
        columns = torch.cat([mask, profiles, mask.new_zeros(*y.shape[:-1], width - 1 - y.shape[-1])], dim=-1)
        units = mask.new_zeros(*y.shape[:-2], width)
        units[..., 1 : 1 + y.shape[-1]] = torch.where(counts, 1 / energy, 0)
        return columns, units

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        facts = {"precisions": self.precisions, "floor": self.config.floor, "pulls": self.pulls}
        values, gradient = alignment(scores, *labels, **facts)
        return self.among(values), gradient

    def judge(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        values, _ = alignment(scores, *labels, precisions=self.precisions, floor=self.config.floor)
        return (self.among(values) * weights).sum(1), self.among(values)


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
    average = 0.0  # of what the rows would change
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
    """`stacks.pooled` on a GPU. The gradient of a max goes to its winner alone."""

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
        ctx.save_for_backward(*given, *found)
        return normed.view(fits, -1, size)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        table, logits, _, offsets, weight, *_ = ctx.saved_tensors
        weighted = ctx.fixed["WEIGHTED"]
        by_table, by_logits = torch.zeros_like(table), torch.zeros_like(logits) if weighted else table
        weights, biases = gradient.new_zeros(2, *weight.shape)
        found = (by_table, by_logits, weights, biases)
        _unpool[(len(offsets) - 1,)](gradient.contiguous(), *ctx.saved_tensors, *found, *ctx.sizes, **ctx.fixed)
        return by_table, by_logits if weighted else None, None, None, weights, biases, None, None


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
