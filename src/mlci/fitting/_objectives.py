"""What a fit is after: scores and outcomes of a batch in, values and the loss's gradient by the scores out.

Scores are models x admissions, as several models may be trained at once; outcomes are models x admissions x outcomes,
NaN where not known. For a binary outcome the centred Gram matrix of the delta kernel is 2 l l', with l the centred
outcome, so normalised HSIC needs one Gram matrix of scores per batch and none of outcomes: l'Kl / (|HKH| l'l). With the
kernel -|s - s'| the same expression is the squared distance correlation.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mlci.config import ObjectiveConfig
from mlci.measures.alignment import FACTORS, nhsic

LARGE = 4096  # scores; beyond, their Gram matrix would be the cost of a step
TAIL = 8.8  # exp(-8.8^2 / 2) < 2e-17: a Gaussian and its Fourier transform end here
Array = TypeVar("Array", Tensor, np.ndarray)


class Objective(Protocol):
    """What models are after; `weights` is models x outcomes."""

    weights: Tensor

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """Prepare what `step` needs of the outcomes (... x models x admissions x outcomes)."""
        ...

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Give the values of a batch, models x outcomes, and the gradient of the loss by the scores."""
        ...


class Judging(Objective, Protocol):
    """An objective that also says how good the scores of a whole split are."""

    def judge(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Give each model's quality, outcomes counted by `weights` (larger is better), and each outcome's value."""
        ...


def known_rows(outcomes: Array, validity: str) -> Array:
    """Mark the rows that count for each outcome: a column each, or one column where all of them must be known.

    >>> known_rows(np.array([[0, 1], [1, np.nan]]), "outcome").tolist()
    [[True, True], [True, False]]
    >>> known_rows(np.array([[0, 1], [1, np.nan]]), "intersection").tolist()
    [[True], [False]]
    """
    known: Any = outcomes == outcomes
    return known.all(1)[:, None] if validity == "intersection" else known


def kernel_less_one(gap: Tensor, widths: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Give the kernel of score differences less a constant that centring removes, and its derivative.

    It is the mean of RBFs of these widths, or without any the energy kernel. Without the constant, near-equal scores
    keep their digits.
    """
    if not widths:
        return -gap.abs(), -gap.sign()
    precisions = [width**-2 for width in widths]
    parts = [gap.square().mul_(-precision / 2).expm1_() for precision in precisions]
    slopes = [torch.addcmul(gap, part, gap).mul_(-precision) for part, precision in zip(parts, precisions)]
    if len(parts) == 1:
        return parts[0], slopes[0]
    return sum(parts[1:], parts[0]) / len(parts), sum(slopes[1:], slopes[0]) / len(parts)


def gram_alignment(
    scores: Tensor, outcomes: Tensor, mask: Tensor, *, sigma: float, config: ObjectiveConfig
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Compute the normalised HSIC of scores with each outcome by their Gram matrix, on the rows of one mask.

    Args:
        scores: one per admission.
        outcomes: admissions x outcomes, any number where not known.
        mask: 1 for the admissions that count, else 0.
        sigma: the kernel's width.
        config: kernel and floor.

    Returns:
        The value of each outcome, 0 with fewer than `least_rows` that count or one class in them; and what turns a
        gradient by the values into one by the scores, in closed form: autograd would pass over the n x n matrices three
        times as often.
    """
    rows = mask.sum().clamp(min=1)
    profiles = mask[:, None] * (outcomes - mask @ outcomes / rows)
    energy = profiles.square().sum(0)
    gram, slope = kernel_less_one(scores[:, None] - scores, [sigma * factor for factor in config.widths])
    # Few rows times a symmetric matrix: several times faster than the matrix times few columns.
    sums = torch.cat([profiles.T, mask[None]]) @ gram
    forms = (profiles.T * sums[:-1]).sum(1)
    # H K H: less the means of rows and of columns, plus the mean of all.
    mean = sums[-1] / rows
    half = mean - mask @ mean / rows / 2
    centred = (gram - half[:, None]).sub_(half)
    size = (mask @ centred.square() @ mask).sqrt()
    least = max(config.floor, 1e-15)
    scale = torch.where((rows >= config.least_rows) & (energy > 0), 1 / (size.clamp(min=least) * energy), 0)
    values = forms * scale
    # Below the floor the norm is a constant and has no gradient.
    shrink = torch.where(size > least, values / size.square(), 0)

    def pull(gradient: Tensor) -> Tensor:
        by_gram = torch.addcmul((profiles * (gradient * scale)) @ profiles.T, gradient @ shrink, centred, value=-1)
        return 2 * mask * ((by_gram * slope) @ mask)

    return values, pull


def large_alignment(scores: Tensor, outcomes: Tensor, *, sigma: float, config: ObjectiveConfig) -> Tensor:
    """Compute the same without a Gram matrix, in float64: by cosine features (RBF) or one sort (energy).

    Time and memory grow with the number of scores alone. Missing outcomes are NaN here, and torch can differentiate it.
    """
    tiny = torch.finfo(torch.float64).tiny
    values = []
    for column, rows in enumerate(known_rows(outcomes, config.validity).T):
        y = (outcomes if config.validity == "intersection" else outcomes[:, [column]])[rows].double()
        centred = y - y.mean(0)
        energy = centred.square().sum(0)
        if len(y) < config.least_rows:
            values.append(torch.zeros_like(energy))
            continue
        if not config.widths:
            forms, square = _by_sorting(scores[rows].double(), centred)
        else:
            widths = [sigma * factor for factor in config.widths]
            forms, square = _by_cosines(scores[rows].double(), centred, widths)
        norm = square.clamp(min=max(config.floor**2, tiny)).sqrt()
        values.append(torch.where(energy > 0, forms, 0) / (norm * energy.clamp(min=tiny)))
    return torch.cat(values).to(scores.dtype)


def _by_sorting(scores: Tensor, centred: Tensor) -> tuple[Tensor, Tensor]:
    """Give l'Kl of each column and |HKH|^2 for K = -|s - s'|: sums over the gaps between neighbours."""
    order = scores.argsort()
    gaps = scores[order].diff()
    below = torch.arange(1, len(scores), dtype=scores.dtype, device=scores.device)
    forms = 2 * gaps @ centred[order].cumsum(0)[:-1].square()
    own = gaps * (below / len(scores)).square()
    return forms, 4 * (gaps * (len(scores) - below).square() * (2 * own.cumsum(0) - own)).sum()


def _by_cosines(scores: Tensor, centred: Tensor, widths: list[float]) -> tuple[Tensor, Tensor]:
    """Give the same for a mean of RBFs: a Gaussian is its cosine sum (trapezoid rule) over a period beyond the data."""
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


def sorted_alignment(
    scores: Tensor, outcomes: Tensor, weights: Tensor, *, config: ObjectiveConfig
) -> tuple[Tensor, Tensor]:
    """Compute the same for the energy kernel with its gradient, by one sort and without waiting for a GPU.

    With g the gaps between neighbouring scores, n admissions that count and b of them below a gap, the squared norm of
    the centred Gram matrix is a double sum over gaps, whose derivative by a gap is a sum of those before it and one of
    those after it.

    Returns:
        The value of each outcome, and the gradient of the loss, their sum by `weights`, by the scores.
    """
    ordered, order = scores.double().sort()
    gaps = ordered.diff()
    # A row for each outcome: a GPU sums along rows with all its threads, down a column with one.
    mask = known_rows(outcomes, config.validity).T[:, order].double()
    y = outcomes.T[:, order].double().nan_to_num() * mask
    n = mask.sum(1, keepdim=True)
    centred = (y - y.sum(1, keepdim=True) / n.clamp(min=1)) * mask
    energy = centred.square().sum(1, keepdim=True)
    below = mask.cumsum(1)[:, :-1]
    low, high = (below / n.clamp(min=1)).square(), (n - below).square()
    before, after = (gaps * low).cumsum(1), (gaps * high).flip(1).cumsum(1).flip(1)
    square = 4 * (gaps * high * (2 * before - gaps * low)).sum(1, keepdim=True)
    by_square = 8 * (high * before + low * after - gaps * low * high)
    least = max(config.floor**2, torch.finfo(torch.float64).tiny)
    norm = square.clamp(min=least).sqrt()
    scale = torch.where((n >= config.least_rows) & (energy > 0), 1 / (norm * energy), 0)
    by_forms = 2 * centred.cumsum(1)[:, :-1].square()
    values = (gaps * by_forms).sum(1, keepdim=True) * scale
    shrink = torch.where(square > least, values / (2 * norm.square()), 0)
    by_gaps = weights.double() @ (by_square * shrink - by_forms * scale)
    gradient = torch.zeros_like(ordered).scatter_(0, order, F.pad(by_gaps, (1, 0)) - F.pad(by_gaps, (0, 1)))
    return values.flatten().to(scores.dtype), gradient.to(scores.dtype)


class Alignments:
    """Maximise each model's weighted sum of normalised HSIC; `sigmas` are the kernels' widths."""

    def __init__(self, config: ObjectiveConfig, sigmas: Sequence[float | None], weights: Tensor) -> None:
        self.config, self.sigmas, self.weights = config, [sigma or 1.0 for sigma in sigmas], weights

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return (outcomes,)

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        models = zip(scores, labels[0], self.sigmas, self.weights.to(scores.dtype))
        values, gradients = zip(*(self._model_step(*model) for model in models))
        return torch.stack(values), torch.stack(gradients)

    def _model_step(self, scores: Tensor, outcomes: Tensor, sigma: float, weights: Tensor) -> tuple[Tensor, Tensor]:
        if scores.is_cuda and not self.config.widths:
            return sorted_alignment(scores, outcomes, weights, config=self.config)
        if len(scores) > LARGE:
            scores = scores.detach().requires_grad_()
            values = large_alignment(scores, outcomes, sigma=sigma, config=self.config)
            return values.detach(), torch.autograd.grad(-(weights * values).sum(), scores)[0]
        masks = known_rows(outcomes, self.config.validity).to(scores.dtype).T
        together = len(outcomes.T) if len(masks) == 1 else 1  # outcomes that share their rows
        parts = outcomes.to(scores.dtype).nan_to_num().split(together, dim=1)
        values, total = [], torch.zeros_like(scores)
        for y, mask, weight in zip(parts, masks, weights.split(together)):
            value, pull = gram_alignment(scores, y, mask, sigma=sigma, config=self.config)
            total -= pull(weight)
            values.append(value)
        return torch.cat(values), total

    def judge(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        found = [self._value(*model) for model in zip(scores, labels[0], self.sigmas)]
        values = torch.stack(found)
        return (values * weights).sum(1), values

    def _value(self, scores: Tensor, outcomes: Tensor, sigma: float) -> Tensor:
        """Give the value of a whole split, in float64."""
        if scores.is_cuda or self.config.widths != FACTORS.get(self.config.kernel, ()):
            return large_alignment(scores.double(), outcomes, sigma=sigma, config=self.config)
        known = np.where(known_rows(outcomes.numpy(), self.config.validity), outcomes, np.nan)
        options = {"sigma": sigma, "kernel": self.config.kernel, "floor": self.config.floor}
        return torch.from_numpy(np.atleast_1d(nhsic(scores.numpy().astype(np.float64), known, **options)))


def cross_entropy(logits: Tensor, outcomes: Tensor) -> Tensor:
    """Give the cross-entropy of each logit with its outcome, 0 where that is not known."""
    known = outcomes == outcomes
    return F.binary_cross_entropy_with_logits(logits, outcomes.nan_to_num(), reduction="none") * known


class CrossEntropies:
    """Minimise each model's weighted cross-entropy of its one score as the logit of every outcome that is known."""

    def __init__(self, batch: int, weights: Tensor) -> None:
        self.batch, self.weights = batch, weights  # a split's loss is the mean over batches of so many admissions

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return (outcomes,)

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (outcomes,), logits = labels, scores[..., None]
        known = outcomes == outcomes
        _, values, rows = self._losses(self.weights, logits, outcomes)
        share = self.weights * (1 / _least((self.weights * rows).sum(-1, keepdim=True)))
        slopes = logits.expand_as(outcomes).sigmoid() - outcomes.nan_to_num()
        return values, (slopes * (share[:, None] * known)).sum(-1)

    def judge(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (outcomes,) = labels
        fill = -scores.shape[1] % self.batch
        logits = F.pad(scores.double(), (0, fill)).unflatten(1, (-1, self.batch))[..., None]
        outcomes = F.pad(outcomes.double(), (0, 0, 0, fill), value=math.nan).unflatten(1, (-1, self.batch))
        losses, values, _ = self._losses(weights[:, None], logits, outcomes)
        return -losses.mean(1), values.mean(1)

    @staticmethod
    def _losses(weights: Tensor, logits: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give each batch's loss, its value for each outcome, and how many admissions it is known of."""
        sums = cross_entropy(logits.expand_as(outcomes), outcomes).sum(-2)
        rows = (outcomes == outcomes).sum(-2, dtype=logits.dtype)
        return (weights * sums).sum(-1) / _least((weights * rows).sum(-1)), sums / rows.clamp(min=1), rows


def _least(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).tiny)


class MeanLosses:
    """Minimise a loss summed over outcomes, each a mean over the admissions where it is known: what is missing costs
    only itself. Here a model has a score for every outcome.
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], weights: Tensor) -> None:
        self.loss, self.weights = loss, weights  # `loss` gives the loss of scores and outcomes, and its slope

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """Give the outcomes, and how much each one counts."""
        known = outcomes == outcomes
        return outcomes.nan_to_num(), known / known.sum(-2, keepdim=True).clamp(min=1)

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        outcomes, share = labels
        values, slopes = self.loss(scores.view_as(outcomes), outcomes)
        return (values * share).sum(-2), (slopes * share).view_as(scores)


def entropy(logits: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
    """Give the cross-entropy and its slope by the logit."""
    return cross_entropy(logits, outcomes), logits.sigmoid() - outcomes


def squares(scores: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Give the squared error and its slope."""
    return (scores - wanted).square(), 2 * (scores - wanted)
