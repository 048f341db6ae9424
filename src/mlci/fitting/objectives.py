"""What a fit is after: scores and outcomes of a batch in, a differentiable loss out.

Outcomes are a matrix with a column each, NaN where not known. For a binary outcome the centred Gram matrix of the
delta kernel is 2 l l', with l the centred outcome, so normalised HSIC needs one Gram matrix of scores per batch and
none of outcomes: l'Kl / (|HKH| l'l). With the kernel -|s - s'| the same expression is the squared distance correlation.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlci.measures.alignment import FACTORS, nhsic

LARGE = 4096  # scores; beyond, their Gram matrix would be the cost of a step
TAIL = 8.8  # exp(-8.8^2 / 2) < 2e-17: a Gaussian and its Fourier transform end here


class Objective(Protocol):
    """Qualities are larger for better scores, whatever the loss."""

    @property
    def signless(self) -> bool:
        """A score and its negative are equally good."""
        ...

    @property
    def needs_bandwidth(self) -> bool: ...

    def loss(self, scores: Tensor, outcomes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """What to minimise on a batch, and the value of each outcome for the record."""
        ...

    def gradient(self, scores: Tensor, outcomes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The value of each outcome, and the gradient of the loss by the scores."""
        ...

    def quality(self, scores: np.ndarray, outcomes: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """How good the scores of a whole split are, and the value of each outcome."""
        ...

    def strength(self, quality: float) -> float:
        """A Stage-1 quality as the nonnegative strength that Stage-2 weights are made of."""
        ...


class _Differentiated:
    """`gradient` by autograd."""

    def gradient(self: Objective, scores: Tensor, outcomes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores.detach().requires_grad_()
        loss, values = self.loss(scores, outcomes, weights)
        return values.detach(), torch.autograd.grad(loss, scores)[0]


def known_rows(outcomes: Tensor | np.ndarray, validity: str):
    """Which rows count for each outcome: a column each, or one column where all of them must be known."""
    known = outcomes == outcomes
    return known.all(1)[:, None] if validity == "intersection" else known


def kernel_less_one(gap: Tensor, kernel: str, sigma: float | Tensor) -> tuple[Tensor, Tensor]:
    """The kernel of score differences less a constant that centring removes (near-equal scores then keep their
    digits), and its derivative.
    """
    if kernel == "energy":
        return -gap.abs(), -gap.sign()
    precisions = [(factor * sigma) ** -2 for factor in FACTORS[kernel]]
    parts = [gap.square().mul_(-precision / 2).expm1_() for precision in precisions]
    slopes = [torch.addcmul(gap, part, gap).mul_(-precision) for part, precision in zip(parts, precisions)]
    if len(parts) == 1:
        return parts[0], slopes[0]
    return sum(parts) / len(parts), sum(slopes) / len(parts)  # pyright: ignore


class _Aligned(torch.autograd.Function):
    """Normalised HSIC with each outcome on the rows of one mask, and its gradient in closed form: autograd would pass
    over the n x n matrices three times as often. The outputs after the first are for the backward pass alone.
    """

    @staticmethod
    def forward(scores: Tensor, outcomes: Tensor, mask: Tensor, kernel: str, sigma: float | Tensor, floor: float):
        rows = mask.sum().clamp(min=1)
        profiles = mask[:, None] * (outcomes - mask @ outcomes / rows)
        energy = profiles.square().sum(0)
        gram, slope = kernel_less_one(scores[:, None] - scores, kernel, sigma)
        # Few rows times a symmetric matrix: several times faster than the matrix times few columns.
        sums = torch.cat([profiles.T, mask[None]]) @ gram
        forms = (profiles.T * sums[:-1]).sum(1)
        # H K H: less the means of rows and of columns, plus the mean of all.
        mean = sums[-1] / rows
        half = mean - mask @ mean / rows / 2
        centred = (gram - half[:, None]).sub_(half)
        size = (mask @ centred.square() @ mask).sqrt()
        least = max(floor, 1e-15)
        counts = (rows >= 3) & (energy > 0)
        scale = torch.where(counts, 1 / (size.clamp(min=least) * energy), 0)
        values = forms * scale
        # Below the floor the norm is a constant and has no gradient.
        shrink = torch.where(size > least, values / size.square(), 0)
        return values, slope, centred, profiles, scale, shrink

    @staticmethod
    def pull(
        grad: Tensor, mask: Tensor, slope: Tensor, centred: Tensor, profiles: Tensor, scale: Tensor, shrink: Tensor
    ) -> Tensor:
        """The gradient by the scores from that by the values, given what `forward` gives after these."""
        by_gram = torch.addcmul((profiles * (grad * scale)) @ profiles.T, grad @ shrink, centred, value=-1)
        return 2 * mask * ((by_gram * slope) @ mask)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[2], *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad: Tensor | None, *_):  # pyright: ignore[reportIncompatibleMethodOverride]
        if grad is None:
            return (None,) * 6
        return _Aligned.pull(grad, *ctx.saved_tensors), None, None, None, None, None


def _groups(scores: Tensor, outcomes: Tensor, validity: str) -> list[tuple[Tensor, Tensor]]:
    """Outcomes that share their rows, as (outcomes, mask)."""
    masks = known_rows(outcomes, validity).to(scores.dtype).T
    outcomes = outcomes.to(scores.dtype).nan_to_num()
    return list(zip([outcomes] if len(masks) == 1 else outcomes.split(1, dim=1), masks))


def alignment(
    scores: Tensor,
    outcomes: Tensor,
    *,
    sigma: float = 1.0,
    kernel: str = "rbf",
    floor: float = 1e-4,
    validity: str = "intersection",
) -> Tensor:
    """Normalised HSIC of the scores with each outcome; 0 with fewer than 3 rows that count, or one class in them.

    Up to LARGE scores by their Gram matrix, beyond in time and memory that grow with their number alone.
    """
    if len(scores) > LARGE:
        return large_alignment(scores, outcomes, sigma=sigma, kernel=kernel, floor=floor, validity=validity)
    groups = _groups(scores, outcomes, validity)
    return torch.cat([_Aligned.apply(scores, y, mask, kernel, sigma, floor)[0] for y, mask in groups])


def large_alignment(
    scores: Tensor, outcomes: Tensor, *, sigma: float, kernel: str, floor: float, validity: str
) -> Tensor:
    """`alignment` without a Gram matrix, in float64: by cosine features (RBF) or one sort (energy)."""
    known = known_rows(outcomes, validity)
    tiny = torch.finfo(torch.float64).tiny
    values = []
    for column, rows in enumerate(known.T):
        y = (outcomes if validity == "intersection" else outcomes[:, [column]])[rows].double()
        centred = y - y.mean(0)
        energy = centred.square().sum(0)
        if len(y) < 3:
            values.append(torch.zeros_like(energy))
            continue
        if kernel == "energy":
            forms, square = _by_sorting(scores[rows].double(), centred)
        else:
            forms, square = _by_cosines(scores[rows].double(), centred, [sigma * factor for factor in FACTORS[kernel]])
        norm = square.clamp(min=max(floor**2, tiny)).sqrt()
        values.append(torch.where(energy > 0, forms, 0) / (norm * energy.clamp(min=tiny)))
    return torch.cat(values).to(scores.dtype)


def _by_sorting(scores: Tensor, centred: Tensor) -> tuple[Tensor, Tensor]:
    """l'Kl of each column and |HKH|^2 for K = -|s - s'|: sums over the gaps between neighbours."""
    order = scores.argsort()
    gaps = scores[order].diff()
    below = torch.arange(1, len(scores), dtype=scores.dtype, device=scores.device)
    forms = 2 * gaps @ centred[order].cumsum(0)[:-1].square()
    own = gaps * (below / len(scores)).square()
    return forms, 4 * (gaps * (len(scores) - below).square() * (2 * own.cumsum(0) - own)).sum()


def _by_cosines(scores: Tensor, centred: Tensor, widths: list[float]) -> tuple[Tensor, Tensor]:
    """The same for a mean of RBFs: a Gaussian is its cosine sum (trapezoid rule) over a period beyond the range."""
    features = []
    for width in widths:
        x = (scores - scores.mean()) / width
        period = float((x.max() - x.min()).detach()) + TAIL
        count = int(TAIL * period / (2 * math.pi)) + 1
        frequencies = torch.arange(1, count + 1, dtype=x.dtype, device=x.device) * (2 * math.pi / period)
        heights = (2 * math.sqrt(2 * math.pi) / period / len(widths) * (-frequencies.square() / 2).exp()).sqrt()
        angles = x[:, None] * frequencies
        features += [heights * angles.cos(), heights * angles.sin()]
    whole = torch.cat(features, dim=1)
    whole = whole - whole.mean(0)
    return (whole.T @ centred).square().sum(0), (whole.T @ whole).square().sum()


@dataclass(frozen=True)
class Alignment(_Differentiated):
    """Maximise the weighted sum of normalised HSIC."""

    sigma: float = 1.0
    kernel: str = "rbf"
    floor: float = 1e-4
    validity: str = "intersection"

    signless = True

    @property
    def needs_bandwidth(self) -> bool:
        return self.kernel != "energy"

    def loss(self, scores: Tensor, outcomes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        values = alignment(
            scores, outcomes, sigma=self.sigma, kernel=self.kernel, floor=self.floor, validity=self.validity
        )
        return -(weights * values).sum(), values

    def gradient(self, scores: Tensor, outcomes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        if len(scores) > LARGE:
            return super().gradient(scores, outcomes, weights)  # pyright: ignore
        values, total = [], torch.zeros_like(scores)
        for y, mask in _groups(scores, outcomes, self.validity):
            value, *rest = _Aligned.forward(scores, y, mask, self.kernel, self.sigma, self.floor)
            total -= _Aligned.pull(weights[sum(map(len, values)) :][: len(value)].to(scores.dtype), mask, *rest)
            values.append(value)
        return torch.cat(values), total

    def quality(self, scores: np.ndarray, outcomes: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        outcomes = np.where(known_rows(outcomes, self.validity), outcomes, np.nan)
        values = np.asarray(nhsic(scores, outcomes, sigma=self.sigma, kernel=self.kernel, floor=self.floor))
        return float(weights @ values), values

    def strength(self, quality: float) -> float:
        return max(quality, 0.0)


@dataclass(frozen=True)
class CrossEntropy(_Differentiated):
    """Minimise the weighted cross-entropy of the score as a logit, over the outcomes that are known."""

    batch: int = 256  # a split's loss is the mean over batches of so many consecutive admissions

    signless = False
    needs_bandwidth = False

    def loss(self, scores: Tensor, outcomes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        mask = known_rows(outcomes, "outcome").to(scores.dtype)
        logits = scores[:, None].expand_as(outcomes)
        each = F.binary_cross_entropy_with_logits(logits, outcomes.nan_to_num(), weight=mask, reduction="none").sum(0)
        rows = mask.sum(0)
        total = (weights * rows).sum().clamp(min=torch.finfo(scores.dtype).tiny)
        return (weights * each).sum() / total, each.detach() / rows.clamp(min=1)

    def quality(self, scores: np.ndarray, outcomes: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        parts = zip(
            torch.as_tensor(scores).split(self.batch), torch.as_tensor(outcomes).to(torch.float64).split(self.batch)
        )
        both = [self.loss(s.to(torch.float64), y, torch.as_tensor(weights)) for s, y in parts]
        loss = torch.stack([loss for loss, _ in both]).mean()
        return -float(loss), torch.stack([values for _, values in both]).mean(0).numpy()

    def strength(self, quality: float) -> float:
        return max(math.log(2) + quality, 0.0)
