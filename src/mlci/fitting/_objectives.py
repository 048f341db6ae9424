"""Objectives: turn the scores and outcomes of a minibatch into values per outcome and the gradient of the loss.

Scores are models x admissions, because several models may be trained at once. Outcomes are models x admissions x
outcomes, NaN where not known. The gradient is by the scores, in closed form where that is faster than autograd.

The alignment is normalised HSIC (paper, Methodology and appendix nHSIC computation): <K_c, L_c> / (|K_c| |L_c|) with
the centred Gram matrices of scores and labels. For a binary outcome L_c = 2 l l', where l is the centred outcome. So
nHSIC is l'Kl / (|HKH| l'l), and only the Gram matrix K of the scores is needed. With the energy kernel -|s - s'| the
same expression is the squared distance correlation.

- `gram_alignment`: by the Gram matrix, O(n²); for minibatches.
- `large_alignment`: in O(n) or O(n log n); for batches above `LARGE` and whole splits.
- `sorted_alignment`: for the energy kernel, by one sort and without synchronising with the GPU.
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

LARGE = 4096  # scores in a batch; above, the Gram matrix would dominate the cost of a step
TAIL = 8.8  # exp(-8.8^2 / 2) < 2e-17: beyond, a Gaussian and its Fourier transform are negligible
Array = TypeVar("Array", Tensor, np.ndarray)


class Objective(Protocol):
    """An objective of training; `weights` is models x outcomes."""

    weights: Tensor

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """Prepare what `step` needs of the outcomes (... x models x admissions x outcomes)."""
        ...

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the values of a minibatch (models x outcomes) and the gradient of the loss by the scores."""
        ...


class ValidationObjective(Objective, Protocol):
    """An objective that can also evaluate the scores of a whole split."""

    def evaluate(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return each model's quality (the sum of outcome values times `weights`; larger is better), and the values."""
        ...


def known_rows(outcomes: Array, validity: str) -> Array:
    """Return which rows count for each outcome: one column each, or one column for all with validity "intersection".

    >>> known_rows(np.array([[0, 1], [1, np.nan]]), "outcome").tolist()
    [[True, True], [True, False]]
    >>> known_rows(np.array([[0, 1], [1, np.nan]]), "intersection").tolist()
    [[True], [False]]
    """
    known: Any = outcomes == outcomes
    return known.all(1)[:, None] if validity == "intersection" else known


def kernel_less_one(gap: Tensor, widths: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return K - 1 and its derivative for score differences `gap`, K being the mean of RBF kernels of `widths`.

    Without widths K is the energy kernel -|gap|. Centring removes the constant 1; subtracting it first (expm1) keeps
    the digits of nearly equal scores.
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
        outcomes: admissions x outcomes; any number where not known.
        mask: 1 for the admissions that count, else 0.
        sigma: the kernel's bandwidth.
        config: kernel, floor and least number of rows.

    Returns:
        The value of each outcome (0 if fewer than `least_rows` rows count or the outcome has one class), and a function
        that turns a gradient by the values into one by the scores. The closed form passes over the n x n matrices a
        third as often as autograd.
    """
    rows = mask.sum().clamp(min=1)
    profiles = mask[:, None] * (outcomes - mask @ outcomes / rows)  # l
    energy = profiles.square().sum(0)  # l'l
    gram, slope = kernel_less_one(scores[:, None] - scores, [sigma * factor for factor in config.widths])
    # A few rows times a symmetric matrix is several times faster than the matrix times a few columns.
    sums = torch.cat([profiles.T, mask[None]]) @ gram
    forms = (profiles.T * sums[:-1]).sum(1)  # l'Kl
    # HKH: subtract the means of rows and of columns, add the overall mean (each `half` holds half of the latter).
    mean = sums[-1] / rows
    half = mean - mask @ mean / rows / 2
    centred = (gram - half[:, None]).sub_(half)
    size = (mask @ centred.square() @ mask).sqrt()
    least = max(config.floor, 1e-15)
    scale = torch.where((rows >= config.least_rows) & (energy > 0), 1 / (size.clamp(min=least) * energy), 0)
    values = forms * scale
    # Below the floor the norm is a constant and has no gradient.
    shrink = torch.where(size > least, values / size.square(), 0)

    def backward(gradient: Tensor) -> Tensor:
        # The gradient of l'Kl / (|HKH| l'l) by K is ll' / (|HKH| l'l) - value HKH / |HKH|²; K_ij depends on the
        # score i through K'(s_i - s_j), once as row and once as column.
        by_gram = torch.addcmul((profiles * (gradient * scale)) @ profiles.T, gradient @ shrink, centred, value=-1)
        return 2 * mask * ((by_gram * slope) @ mask)

    return values, backward


def large_alignment(scores: Tensor, outcomes: Tensor, *, sigma: float, config: ObjectiveConfig) -> Tensor:
    """Compute the same without a Gram matrix, in float64: by cosine features (RBF) or by one sort (energy).

    Time and memory grow linearly with the number of scores (up to the sort). Missing outcomes are NaN here. Autograd
    differentiates it.
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
    """Return l'Kl of each column and |HKH|² for K = -|s - s'|, as sums over the gaps between neighbouring scores.

    With gap g_k between the sorted scores k and k + 1, L_k the sum of l up to k and b_k = k + 1 scores below the gap:
    l'Kl = 2 Σ g_k L_k², and |HKH|² = 4 Σ_jk g_j g_k (min(b_j, b_k) (n - max(b_j, b_k)) / n)².
    """
    order = scores.argsort()
    gaps = scores[order].diff()
    below = torch.arange(1, len(scores), dtype=scores.dtype, device=scores.device)
    forms = 2 * gaps @ centred[order].cumsum(0)[:-1].square()
    own = gaps * (below / len(scores)).square()
    return forms, 4 * (gaps * (len(scores) - below).square() * (2 * own.cumsum(0) - own)).sum()


def _by_cosines(scores: Tensor, centred: Tensor, widths: list[float]) -> tuple[Tensor, Tensor]:
    """Return the same for a mean of RBFs, by cosine features.

    A Gaussian equals, to float64 precision, the trapezoid rule on its Fourier transform: a cosine sum whose period
    exceeds the range of the scores by `TAIL` bandwidths.
    """
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
    """Compute the same for the energy kernel, with its gradient, by one sort and without synchronising with the GPU.

    With g the gaps between neighbouring scores, n admissions that count and b of them below a gap, the squared norm of
    the centred Gram matrix is a double sum over gaps (`_by_sorting`). Its derivative by a gap is a sum over the gaps
    before it plus one over those after it, so cumulative sums give all of them.

    Returns:
        The value of each outcome, and the gradient by the scores of the loss: minus the sum of the values weighted by
        `weights`.
    """
    ordered, order = scores.double().sort()
    gaps = ordered.diff()
    # One row per outcome: a GPU sums along rows with all its threads, but down a column with one.
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
    """Maximise each model's weighted sum of normalised HSIC; `sigmas` are the bandwidths of the models' kernels."""

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
        together = len(outcomes.T) if len(masks) == 1 else 1  # the number of outcomes that share a mask
        parts = outcomes.to(scores.dtype).nan_to_num().split(together, dim=1)
        values, total = [], torch.zeros_like(scores)
        for y, mask, weight in zip(parts, masks, weights.split(together)):
            value, backward = gram_alignment(scores, y, mask, sigma=sigma, config=self.config)
            total -= backward(weight)
            values.append(value)
        return torch.cat(values), total

    def evaluate(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        found = [self._value(*model) for model in zip(scores, labels[0], self.sigmas)]
        values = torch.stack(found)
        return (values * weights).sum(1), values

    def _value(self, scores: Tensor, outcomes: Tensor, sigma: float) -> Tensor:
        """Return the value of a whole split, in float64."""
        if scores.is_cuda or self.config.widths != FACTORS.get(self.config.kernel, ()):
            return large_alignment(scores.double(), outcomes, sigma=sigma, config=self.config)
        known = np.where(known_rows(outcomes.numpy(), self.config.validity), outcomes, np.nan)
        options = {"sigma": sigma, "kernel": self.config.kernel, "floor": self.config.floor}
        return torch.from_numpy(np.atleast_1d(nhsic(scores.numpy().astype(np.float64), known, **options)))


def cross_entropy(logits: Tensor, outcomes: Tensor) -> Tensor:
    """Return the cross-entropy of each logit with its outcome, 0 where the outcome is not known."""
    known = outcomes == outcomes
    return F.binary_cross_entropy_with_logits(logits, outcomes.nan_to_num(), reduction="none") * known


class CrossEntropies:
    """Minimise each model's weighted cross-entropy, with its one score as the logit of every known outcome.

    The loss of a split is the mean over minibatches of size `batch`.
    """

    def __init__(self, batch: int, weights: Tensor) -> None:
        self.batch, self.weights = batch, weights

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        return (outcomes,)

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (outcomes,), logits = labels, scores[..., None]
        known = outcomes == outcomes
        _, values, rows = self._losses(self.weights, logits, outcomes)
        share = self.weights * (1 / _at_least_tiny((self.weights * rows).sum(-1, keepdim=True)))
        slopes = logits.expand_as(outcomes).sigmoid() - outcomes.nan_to_num()
        return values, (slopes * (share[:, None] * known)).sum(-1)

    def evaluate(self, weights: Tensor, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (outcomes,) = labels
        fill = -scores.shape[1] % self.batch
        logits = F.pad(scores.double(), (0, fill)).unflatten(1, (-1, self.batch))[..., None]
        outcomes = F.pad(outcomes.double(), (0, 0, 0, fill), value=math.nan).unflatten(1, (-1, self.batch))
        losses, values, _ = self._losses(weights[:, None], logits, outcomes)
        return -losses.mean(1), values.mean(1)

    @staticmethod
    def _losses(weights: Tensor, logits: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return each batch's loss, its value for each outcome, and the number of admissions with a known outcome."""
        sums = cross_entropy(logits.expand_as(outcomes), outcomes).sum(-2)
        rows = (outcomes == outcomes).sum(-2, dtype=logits.dtype)
        return (weights * sums).sum(-1) / _at_least_tiny((weights * rows).sum(-1)), sums / rows.clamp(min=1), rows


def _at_least_tiny(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).tiny)


class MeanLosses:
    """Minimise a loss summed over outcomes, each averaged over the admissions where it is known.

    A missing outcome thus costs nothing but itself. Here a model has one score per outcome. `loss` returns the loss of
    scores and outcomes, and its derivative by the scores.
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], weights: Tensor) -> None:
        self.loss, self.weights = loss, weights

    def labels(self, outcomes: Tensor) -> tuple[Tensor, ...]:
        """Return the outcomes, and the weight of each: 1 / (number of known ones), or 0 where not known."""
        known = outcomes == outcomes
        return outcomes.nan_to_num(), known / known.sum(-2, keepdim=True).clamp(min=1)

    def step(self, scores: Tensor, labels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        outcomes, share = labels
        values, slopes = self.loss(scores.view_as(outcomes), outcomes)
        return (values * share).sum(-2), (slopes * share).view_as(scores)


def entropy(logits: Tensor, outcomes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy and its derivative by the logit."""
    return cross_entropy(logits, outcomes), logits.sigmoid() - outcomes


def squares(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared error and its derivative."""
    return (scores - targets).square(), 2 * (scores - targets)
