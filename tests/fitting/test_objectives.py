import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracles
from mlci.config import ObjectiveConfig
from mlci.fitting._objectives import (
    Alignments,
    CrossEntropies,
    MeanLosses,
    entropy,
    large_alignment,
    sorted_alignment,
    squares,
)
from mlci.measures.alignment import distance_correlation

SIGMA = 0.7


def rbf(sigma):
    return lambda a, b: torch.exp(-((a - b) ** 2) / (2 * sigma**2))


KERNELS = {
    "rbf": rbf(SIGMA),
    "multi-rbf": lambda a, b: sum(rbf(factor * SIGMA)(a, b) for factor in (0.25, 0.5, 1, 2, 4)) / 5,
    "energy": lambda a, b: -(a - b).abs(),
}


def batch(seed: int, n: int = 40, outcomes: int = 3, missing: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    y = (rng.random((n, outcomes)) < 0.4).astype(float)
    y[rng.random(y.shape) < missing] = np.nan
    return torch.from_numpy(rng.normal(size=n)).requires_grad_(), torch.from_numpy(y)


class Aligned(torch.autograd.Function):
    """The values of `Alignments` as a torch function, whose backward uses the gradients that it returns."""

    @staticmethod
    def forward(ctx, scores, y, sigma, options):
        ctx.save_for_backward(scores, y)
        ctx.facts = sigma, options
        return Alignments(ObjectiveConfig(**options), [sigma], scores.new_ones(1, y.shape[1])).step(
            scores[None], [y[None]]
        )[0][0]

    @staticmethod
    def backward(ctx, grad):
        (scores, y), (sigma, options) = ctx.saved_tensors, ctx.facts
        objective = Alignments(ObjectiveConfig(**options), [sigma], -grad[None])
        return objective.step(scores[None], [y[None]])[1][0], None, None, None


def alignment(scores: torch.Tensor, y: torch.Tensor, *, sigma: float = 1.0, **options) -> torch.Tensor:
    return Aligned.apply(scores, y, sigma, options)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("validity", ["intersection", "outcome"])
@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=15)
def test_value_and_gradient_equal_the_definition(kernel, validity, seed):
    scores, y = batch(seed)
    known = ~y.isnan()
    rows = [known.all(1) if validity == "intersection" else column for column in known.T]
    assume(all(len(y[here, t].unique()) == 2 and here.sum() >= 3 for t, here in enumerate(rows)))
    values = alignment(scores, y, sigma=SIGMA, kernel=kernel, validity=validity)
    slow = torch.stack([oracles.gram_nhsic(scores[r], y[r, t], KERNELS[kernel]) for t, r in enumerate(rows)])
    torch.testing.assert_close(values, slow, rtol=1e-10, atol=1e-12)
    pull = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    ours, theirs = (torch.autograd.grad(each @ pull, scores, retain_graph=True)[0] for each in (values, slow))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_equal_finite_differences(kernel):
    scores, y = batch(1, n=12, missing=0.1)
    assert torch.autograd.gradcheck(lambda s: alignment(s, y, sigma=SIGMA, kernel=kernel), (scores,))


def test_the_energy_kernel_gives_squared_distance_correlation():
    scores, y = batch(2, missing=0)
    peer = distance_correlation(scores.detach().numpy(), y.numpy())
    np.testing.assert_allclose(alignment(scores, y, kernel="energy").detach(), peer**2, rtol=1e-9)


@given(shift=st.floats(-5, 5), seed=st.integers(0, 100))
@settings(deadline=None, max_examples=20)
def test_neither_shift_nor_sign_nor_order_matter(shift, seed):
    scores, y = batch(seed)
    scores = scores.detach()
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed))
    base = alignment(scores, y, sigma=SIGMA)
    for other in (alignment(scores + shift, y, sigma=SIGMA), alignment(-scores, y, sigma=SIGMA)):
        torch.testing.assert_close(other, base)
    torch.testing.assert_close(alignment(scores[order], y[order], sigma=SIGMA), base)
    torch.testing.assert_close(alignment(scores, 1 - y, sigma=SIGMA), base)


def test_nearly_flat_kernels_keep_their_digits_in_float32():
    # At the start of a fit all scores are within a few hundredths of a bandwidth.
    scores, y = batch(3, n=256, missing=0)
    near = 0.03 * scores.detach()
    exact = alignment(near, y, sigma=0.93)
    torch.testing.assert_close(alignment(near.float(), y.float(), sigma=0.93).double(), exact, rtol=1e-4, atol=1e-7)


def test_the_floor_is_the_least_norm():
    scores, y = batch(4, missing=0)
    near = 1e-4 * scores.detach()
    norm = (alignment(near, y, floor=0) / alignment(near, y, floor=0.5)) ** -1 * 0.5
    torch.testing.assert_close(norm, norm[:1].expand(3))
    slow = torch.stack([oracles.gram_nhsic(near, outcome, rbf(1.0), floor=0.5) for outcome in y.T])
    torch.testing.assert_close(alignment(near, y, floor=0.5), slow, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "y",
    [
        torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),  # the first has one class
        torch.full((4, 2), math.nan),
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [math.nan, 1.0], [1.0, math.nan]]),  # two rows are left
    ],
)
def test_guards_give_zero(y):
    scores = torch.tensor([0.1, 0.5, -0.3, 0.2])
    values, gradient = aligned(torch.tensor([1.0, 0.0])).step(scores[None], [y[None]])
    assert values[0, 0] == 0
    assert gradient.eq(0).all()


def aligned(weights: torch.Tensor, **options) -> Alignments:
    return Alignments(ObjectiveConfig(**options), [SIGMA], weights[None])


def test_equal_scores_give_zero_and_a_finite_gradient():
    y = torch.tensor([[0.0], [1.0]]).repeat(3, 1)
    for kernel in KERNELS:
        values, gradient = aligned(torch.ones(1), kernel=kernel, floor=0.0).step(torch.zeros(1, 6), [y[None]])
        assert values == 0
        assert gradient.isfinite().all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("validity", ["intersection", "outcome"])
def test_the_gradient_is_of_the_weighted_sum(kernel, validity):
    scores, y = batch(4)
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    values, gradient = aligned(weights, kernel=kernel, validity=validity).step(scores.detach()[None], [y[None]])
    expected = alignment(scores, y, sigma=SIGMA, kernel=kernel, validity=validity)
    torch.testing.assert_close(values[0], expected.detach())
    torch.testing.assert_close(gradient[0], torch.autograd.grad(-(weights @ expected), scores)[0])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("validity", ["intersection", "outcome"])
def test_a_splits_quality_equals_the_value_of_one_batch_of_all_rows(kernel, validity):
    scores, y = batch(5, n=120)
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    objective = aligned(weights, kernel=kernel, validity=validity)
    values, _ = objective.step(scores.detach()[None], [y[None]])
    quality, each = objective.evaluate(weights[None], scores.detach()[None], [y[None]])
    np.testing.assert_allclose(each, values, rtol=1e-9)
    assert quality.item() == pytest.approx(float(weights @ values[0]), rel=1e-9)


def test_energy_quality_is_the_evaluation_metric():
    scores, y = batch(6)
    weights = torch.ones(1, 3)
    _, each = aligned(weights[0], kernel="energy", validity="outcome").evaluate(
        weights, scores.detach()[None], [y[None]]
    )
    peer = distance_correlation(scores.detach().numpy(), y.numpy())
    np.testing.assert_allclose(each[0].sqrt(), peer, rtol=1e-12)


def test_cross_entropy_is_the_weighted_mean_over_known_outcomes():
    scores, y = batch(7)
    weights = torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)

    def loss(s: torch.Tensor) -> torch.Tensor:
        total = rows = torch.zeros((), dtype=s.dtype)
        for weight, outcome in zip(weights, y.T):
            known = ~outcome.isnan()
            total = total + weight * torch.log1p(torch.exp(torch.where(outcome == 1, -s, s)))[known].sum()
            rows = rows + weight * known.sum()
        return total / rows

    objective = CrossEntropies(len(y), weights[None])
    values, gradient = objective.step(scores.detach()[None], [y[None]])
    assert values[0, 2] > 0
    torch.testing.assert_close(gradient[0], torch.autograd.grad(loss(scores), scores)[0])
    quality, judged = objective.evaluate(weights[None], scores.detach()[None], [y[None]])
    assert quality.item() == pytest.approx(-loss(scores).item())
    torch.testing.assert_close(judged, values)


def test_cross_entropy_of_a_split_is_the_mean_of_its_batches():
    scores, y = batch(8, n=25, outcomes=1)
    y[10:20] = math.nan  # a batch without a known outcome counts as 0
    one = torch.ones(1, 1)

    def quality(rows: slice, size: int) -> float:
        return CrossEntropies(size, one).evaluate(one, scores.detach()[None, rows], [y[None, rows]])[0].item()

    assert quality(slice(None), 10) == pytest.approx((quality(slice(10), 10) + quality(slice(20, 25), 5)) / 3)


def test_no_known_outcome_is_a_zero_loss():
    y = torch.full((1, 4, 2), math.nan)
    values, gradient = CrossEntropies(4, torch.ones(1, 2)).step(torch.zeros(1, 4), [y])
    assert values.eq(0).all()
    assert gradient.eq(0).all()


def test_a_missing_outcome_is_left_out():
    y = torch.tensor([[[1, 0], [0, math.nan], [1, 1], [0, math.nan]]])
    losses = MeanLosses(entropy, torch.ones(1, 2))
    values, gradient = losses.step(torch.zeros(1, 4, 2), losses.labels(y))
    assert float(values.sum()) == pytest.approx(2 * math.log(2))
    np.testing.assert_allclose(gradient[0], [[-0.125, 0.25], [0.125, 0], [-0.125, -0.25], [0.125, 0]])


@pytest.mark.parametrize("loss", [entropy, squares])
def test_mean_losses_have_the_gradient_of_autograd_and_an_empty_batch_has_none(loss):
    rng = torch.Generator().manual_seed(1)
    columns = 1 if loss is squares else 3
    scores, y = (torch.randn(3, 20, columns, generator=rng, dtype=torch.float64) for _ in range(2))
    y = (y > 0).double() if loss is entropy else y
    y[2] = torch.nan
    if loss is entropy:
        y[0, 5:, 1], y[1, :, 2] = torch.nan, torch.nan
    losses = MeanLosses(loss, torch.ones(3, columns))
    values, gradient = losses.step(scores.squeeze(2), losses.labels(y))
    for model in range(2):
        own, known = scores[model].clone().requires_grad_(), ~y[model].isnan()
        each = torch.where(known, loss(own, y[model].nan_to_num())[0], 0).sum(0) / known.sum(0).clamp(min=1)
        torch.testing.assert_close(values[model], each.detach())
        slope = torch.autograd.grad(each.sum(), own)[0]
        torch.testing.assert_close(gradient[model].view_as(own), slope)
    assert not values[2].any()
    assert not gradient[2].any()


@pytest.mark.parametrize("kernel", ["rbf", "multi-rbf", "energy"])
@pytest.mark.parametrize("validity", ["intersection", "outcome"])
def test_large_batches_give_the_gram_matrix_form_and_its_gradient(kernel, validity):
    rng = np.random.default_rng(5)
    scores = torch.tensor(np.r_[rng.normal(size=60), 2.0, 2.0, 9.0], requires_grad=True)
    outcomes = torch.tensor((rng.random((63, 3)) < 0.3).astype(float))
    outcomes[:4, 1] = torch.nan
    options = {"kernel": kernel, "validity": validity}
    large = partial(large_alignment, sigma=0.7, config=ObjectiveConfig(**options))
    expected, found = alignment(scores, outcomes, sigma=0.7, **options), large(scores, outcomes)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    gradients = [torch.autograd.grad(each @ weights, scores)[0] for each in (expected, found)]
    smooth_at = slice(60 if kernel == "energy" else None)  # |s - s'| has no derivative where scores are equal
    torch.testing.assert_close(*(each[smooth_at] for each in gradients), rtol=1e-8, atol=1e-11)
    if kernel == "energy":  # as on a GPU
        values, slopes = sorted_alignment(scores.detach(), outcomes, weights, config=ObjectiveConfig(**options))
        torch.testing.assert_close(values, expected, rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(-slopes[smooth_at], gradients[0][smooth_at], rtol=1e-8, atol=1e-11)
    smooth = torch.tensor(rng.normal(size=12), requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: large(s, outcomes[10:22]), (smooth,))


def test_factors_and_least_rows_follow_the_config():
    """Other widths than the paper's, in a batch and over a whole split; and how many rows a batch must have."""
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(40, generator=rng, dtype=torch.float64)
    y = (scores[:, None] + torch.randn(40, 2, generator=rng, dtype=torch.float64) > 0).double()
    config = ObjectiveConfig(kernel="multi-rbf", factors=(0.5, 3.0), floor=0.0)

    def kernel(a, b):
        return sum(torch.exp(-((a - b) ** 2) / (2 * (0.7 * factor) ** 2)) for factor in (0.5, 3.0)) / 2

    expected = [float(oracles.gram_nhsic(scores, column, kernel)) for column in y.T]
    aims = Alignments(config, [0.7], torch.ones(1, 2))
    values, _ = aims.step(scores[None], (y[None],))
    _, judged = aims.evaluate(torch.ones(1, 2), scores[None], (y[None],))
    np.testing.assert_allclose(values[0].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(judged[0].numpy(), expected, rtol=1e-6)
    few = slice(0, 5)
    strict = Alignments(ObjectiveConfig(least_rows=6), [0.7], torch.ones(1, 2))
    free = Alignments(ObjectiveConfig(least_rows=5), [0.7], torch.ones(1, 2))
    y[0], y[1] = 0, 1
    assert (strict.step(scores[None, few], (y[None, few],))[0] == 0).all()
    assert (free.step(scores[None, few], (y[None, few],))[0] > 0).all()
