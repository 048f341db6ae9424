"""What a fit is after: scores and outcomes of a batch in, values and the loss's gradient by the scores out.

Scores are models x admissions, as several models may be trained at once; outcomes are models x admissions x outcomes,
NaN where not known. For a binary outcome the centred Gram matrix of the delta kernel is 2 l l', with l the centred
outcome, so normalised HSIC needs one Gram matrix of scores per batch and none of outcomes: l'Kl / (|HKH| l'l). With the
kernel -|s - s'| the same expression is the squared distance correlation.
"""

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlci.config import ObjectiveConfig
from mlci.measures.alignment import FACTORS, nhsic

LARGE = 4096  # scores; beyond, their Gram matrix would be the cost of a step
TAIL = 8.8  # exp(-8.8^2 / 2) < 2e-17: a Gaussian and its Fourier transform end here


class Objective(Protocol):
    """What models are after; `weights` is models x outcomes."""

    weights: Tensor
    tensors: int  # that `labels` gives

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """What is needed of the outcomes (... x models x admissions x outcomes)."""
        ...

    def step(self, scores: Tensor, *labels: Tensor) -> tuple[Tensor, Tensor]:
        """models x outcomes values of a batch, and the gradient of the loss by the scores."""
        ...


class Judging(Objective, Protocol):
    """An objective that also says how good the scores of a whole split are."""

    def judge(self, weights: Tensor, scores: Tensor, *labels: Tensor) -> tuple[Tensor, Tensor]:
        """Each model's quality, outcomes counted by `weights` (larger is better), and the value of each outcome."""
        ...


def needs_bandwidth(config: ObjectiveConfig) -> bool:
    """Say whether the kernel has a sigma."""
    return config.kind == "alignment" and config.kernel != "energy"


def is_signless(config: ObjectiveConfig) -> bool:
    """Say whether a score and its negative are equally good."""
    return config.kind == "alignment"


def strength(config: ObjectiveConfig, quality: float) -> float:
    """Turn a Stage-1 quality into the nonnegative strength that Stage-2 weights are made of."""
    return max(quality if config.kind == "alignment" else math.log(2) + quality, 0.0)


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


class Alignments:
    """Maximise each model's weighted sum of normalised HSIC; `sigmas` are the kernels' widths."""

    tensors = 1

    def __init__(self, config: ObjectiveConfig, sigmas: Sequence[float | None], weights: Tensor) -> None:
        self.config, self.sigmas, self.weights = config, [sigma or 1.0 for sigma in sigmas], weights

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return (outcomes,)

    def step(self, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        found = [self._one(*each) for each in zip(scores, outcomes, self.sigmas, self.weights)]
        values, gradients = zip(*found)
        return torch.stack(values), torch.stack(gradients)

    def _one(self, scores: Tensor, outcomes: Tensor, sigma: float, weights: Tensor) -> tuple[Tensor, Tensor]:
        config, weights = self.config, weights.to(scores.dtype)
        if len(scores) > LARGE:
            scores = scores.detach().requires_grad_()
            values = alignment(scores, outcomes, sigma=sigma, **self._options)
            return values.detach(), torch.autograd.grad(-(weights * values).sum(), scores)[0]
        values, total = [], torch.zeros_like(scores)
        for y, mask in _groups(scores, outcomes, config.validity):
            value, *rest = _Aligned.forward(scores, y, mask, config.kernel, sigma, config.floor)
            total -= _Aligned.pull(weights[sum(map(len, values)) :][: len(value)], mask, *rest)
            values.append(value)
        return torch.cat(values), total

    def judge(self, weights: Tensor, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        each = zip(scores, outcomes, self.sigmas)
        if scores.is_cuda:
            values = torch.stack([alignment(s.double(), y, sigma=sigma, **self._options) for s, y, sigma in each])
        else:
            values = torch.from_numpy(np.stack([self._exact(s.numpy(), y.numpy(), sigma) for s, y, sigma in each]))
        return (values * weights).sum(1), values

    def _exact(self, scores: np.ndarray, outcomes: np.ndarray, sigma: float) -> np.ndarray:
        outcomes = np.where(known_rows(outcomes, self.config.validity), outcomes, np.nan)
        options = {"sigma": sigma, "kernel": self.config.kernel, "floor": self.config.floor}
        return np.atleast_1d(nhsic(scores.astype(np.float64), outcomes, **options))

    @property
    def _options(self) -> dict:
        return {"kernel": self.config.kernel, "floor": self.config.floor, "validity": self.config.validity}


def cross_entropy(logits: Tensor, outcomes: Tensor) -> Tensor:
    """Of each logit with its outcome, 0 where that is not known."""
    known = outcomes == outcomes
    return F.binary_cross_entropy_with_logits(logits, outcomes.nan_to_num(), reduction="none") * known


class CrossEntropies:
    """Minimise each model's weighted cross-entropy of its one score as the logit of every outcome that is known."""

    tensors = 1

    def __init__(self, batch: int, weights: Tensor) -> None:
        self.batch, self.weights = batch, weights  # a split's loss is the mean over batches of so many admissions

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return (outcomes,)

    def step(self, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        known, logits = outcomes == outcomes, scores[..., None]
        _, values, rows = self._losses(self.weights, logits, outcomes)
        share = self.weights * (1 / _least((self.weights * rows).sum(-1, keepdim=True)))
        slopes = logits.expand_as(outcomes).sigmoid() - outcomes.nan_to_num()
        return values, (slopes * (share[:, None] * known)).sum(-1)

    def judge(self, weights: Tensor, scores: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
        fill = -scores.shape[1] % self.batch
        logits = F.pad(scores.double(), (0, fill)).unflatten(1, (-1, self.batch))[..., None]
        outcomes = F.pad(outcomes.double(), (0, 0, 0, fill), value=math.nan).unflatten(1, (-1, self.batch))
        losses, values, _ = self._losses(weights[:, None], logits, outcomes)
        return -losses.mean(1), values.mean(1)

    @staticmethod
    def _losses(weights: Tensor, logits: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each batch: the loss, its value for each outcome, and how many admissions it is known of."""
        each = cross_entropy(logits.expand_as(outcomes), outcomes).sum(-2)
        rows = (outcomes == outcomes).sum(-2, dtype=logits.dtype)
        return (weights * each).sum(-1) / _least((weights * rows).sum(-1)), each / rows.clamp(min=1), rows


def _least(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).tiny)


class MeanLosses:
    """Minimise a loss summed over outcomes, each a mean over the admissions where it is known: what is missing costs
    only itself. Here a model has a score for every outcome.
    """

    tensors = 2

    def __init__(self, each: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], weights: Tensor) -> None:
        self.each, self.weights = each, weights  # `each` gives the loss of scores and outcomes, and its slope

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """The outcomes, and how much each one counts."""
        known = outcomes == outcomes
        return outcomes.nan_to_num(), known / known.sum(-2, keepdim=True).clamp(min=1)

    def step(self, scores: Tensor, outcomes: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = self.each(scores.view_as(outcomes), outcomes)
        return (values * share).sum(-2), (slopes * share).view_as(scores)


def entropy(logits: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy and its slope by the logit."""
    return cross_entropy(logits, outcomes), logits.sigmoid() - outcomes


def squares(scores: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error and its slope."""
    return (scores - wanted).square(), 2 * (scores - wanted)


class Mixture:
    """Models with different objectives, neighbours alike."""

    def __init__(self, parts: Sequence[tuple[slice, Objective]]) -> None:
        self.parts, self.weights = parts, torch.cat([part.weights for _, part in parts])
        self.tensors = sum(part.tensors for _, part in parts)

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return tuple(label for models, part in self.parts for label in part.labels(outcomes[..., models, :, :]))

    def step(self, scores: Tensor, *labels: Tensor) -> tuple[Tensor, Tensor]:
        each = iter(labels)
        found = [part.step(scores[models], *islice(each, part.tensors)) for models, part in self.parts]
        values, gradients = zip(*found)
        return torch.cat(values), torch.cat(gradients)
