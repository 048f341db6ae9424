"""The alignment with its gradient (`_objectives.gram_alignment`) in three kernel launches instead of torch's seventy.

The Gram matrix is never stored: each kernel recalculates the tiles that it needs. A *problem* is one model with the
outcomes that share a mask: all outcomes (intersection validity), or one. Its `columns` (n x W) are the mask, then each
outcome's centred profile, then zeros.

1. `_products`: the Gram matrix times the columns.
2. `_squares`: the squared norm of the centred Gram matrix.
3. `_gradients`: the values and the gradient by the scores.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from mlci.config import ObjectiveConfig

ROWS, TILE = 16, 256  # pairs of scores are taken ROWS x TILE at a time


@triton.jit
def _pairs(gap, precisions, FACTORS: tl.constexpr):
    """Return the kernel of score differences less 1, and its derivative (`_objectives.kernel_less_one`)."""
    if FACTORS == 0:  # energy
        value, slope = -tl.abs(gap), tl.where(gap > 0, -1.0, tl.where(gap < 0, 1.0, 0.0))
    else:
        value, slope = tl.zeros_like(gap), tl.zeros_like(gap)
        for factor in tl.static_range(FACTORS):
            precision = tl.load(precisions + factor)
            x = gap * gap * (-precision / 2)
            power = tl.exp(x)
            # Near zero by the series of expm1, so that nearly equal scores keep their digits.
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
    """Return the number of rows that count, and half of the mean of the Gram matrix over them."""
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
    """Return a tile of the centred Gram matrix (some rows x others of one problem), and the kernel's derivative."""
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
    """Sum the squares of the centred Gram matrix over R rows of one problem."""
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
    """Return the values of one problem, and R entries of the gradient of their sum weighted by `pulls`."""
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
    """Return the normalised HSIC of each model's scores with its outcomes, and the gradient of their weighted sum.

    Args:
        scores: models x admissions.
        columns: models x problems x admissions x W, as `StackedAlignments.labels` returns them.
        units: models x problems x W: 1 / l'l of each outcome, 0 where it does not count.
        precisions: models x widths: 1 / bandwidth².
        floor: the least norm of the centred Gram matrix.
        pulls: the weight of each value in the gradient, like `units`; None: no gradient.
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
        """Select models x outcomes from models x problems x W."""
        alone = self.config.validity != "intersection"
        return problems[:, :, 1] if alone else problems[:, 0, 1 : 1 + self.weights.shape[1]]

    def labels(self, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        """Prepare outcomes (... x admissions x outcomes, NaN where not known) for `alignment`.

        Returns:
            The columns of each problem (... x problems x admissions x W): the mask of the admissions that count, then
            each outcome less its mean over them; and ... x problems x W: one over each outcome's sum of squares, 0
            where it does not count.
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

    def evaluate(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        values, _ = alignment(scores, *labels, precisions=self.precisions, floor=self.config.floor)
        return (self.among(values) * weights).sum(1), self.among(values)
