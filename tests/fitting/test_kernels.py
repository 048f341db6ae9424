"""The GPU's kernels on a machine without one: Triton's interpreter (set in conftest.py) runs them on the processor.

With a GPU, TRITON_INTERPRET=0 in the environment runs them there.
"""

import os
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

if os.environ.get("MLCI_REQUIRE_ALL") != "1":
    pytest.importorskip("triton")

from mlci.config import EncoderConfig, ObjectiveConfig, OptimiserConfig, PaperConfig
from mlci.fitting import Split, _objectives, paper
from mlci.fitting._engines import kernels, stacked, stacked_adamw, stacked_models
from mlci.fitting._loop import Schedule
from mlci.fitting._objectives import Alignments
from mlci.tokens import PAD
from small_fits import random_split

DEVICE = torch.device("cuda" if os.environ["TRITON_INTERPRET"] == "0" else "cpu")


def near(found, wanted, **tolerance) -> None:
    np.testing.assert_allclose(found.cpu(), wanted.cpu(), **tolerance)


def outputs_and_gradients(function, *inputs):
    inputs = [x.to(DEVICE, copy=True).requires_grad_(x.is_floating_point()) for x in inputs]
    output = function(*inputs)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    (output * weights).sum().backward()
    return [output.detach().cpu(), *(x.grad.cpu() for x in inputs if x.grad is not None)]


@pytest.mark.parametrize(
    ("kernel", "validity"),
    [
        *(("rbf", "outcome"), ("multi-rbf", "intersection"), ("energy", "intersection")),
        pytest.param("rbf", "intersection", marks=pytest.mark.slow),
        pytest.param("multi-rbf", "outcome", marks=pytest.mark.slow),
        pytest.param("energy", "outcome", marks=pytest.mark.slow),
    ],
)
def test_alignments_and_their_gradients_equal_the_torch_form(kernel, validity, monkeypatch):
    monkeypatch.setattr(kernels.alignments, "TILE", 16)  # several tiles, the last one not full
    rng = torch.Generator().manual_seed(3)
    scores = torch.randn(3, 24, generator=rng) * torch.tensor([[1.0], [20.0], [1e-3]])
    outcomes = (torch.rand(3, 24, 2, generator=rng) < 0.3).float()
    outcomes[torch.rand(outcomes.shape, generator=rng) < 0.05] = torch.nan
    outcomes[1, :, 1] = 0  # one class
    scores, outcomes, weights = (x.to(DEVICE) for x in (scores, outcomes, torch.rand(3, 2, generator=rng)))
    facts = (ObjectiveConfig(kernel=kernel, validity=validity), [0.9, 0.7, 1.1], weights)
    slow, fast = Alignments(*facts), kernels.StackedAlignments(*facts)
    values, gradient = slow.step(scores.double(), [outcomes.double()])
    labels = fast.labels(outcomes)
    found, slope = fast.step(scores, labels)
    near(found, values, atol=1e-6)
    shares = torch.tensor([1.0, 2.0], device=DEVICE)
    quality, judged = fast.evaluate(shares[None], scores, labels)
    near(judged, values, atol=1e-6)
    near(quality, values @ shares.to(values.dtype), atol=2e-6)
    size = gradient.abs().amax(1, keepdim=True).clamp(min=1e-12)
    near(slope / size, gradient / size, atol=1e-5)


@pytest.mark.parametrize("most", [False, True])
@pytest.mark.parametrize("how", ["mean", "sum", "weighted"])
def test_pooling_equals_torchs(how, most):
    rng = torch.Generator().manual_seed(5)
    table = torch.randn(30, 24, generator=rng).relu()  # as after phi; a width that is no power of two
    logits = torch.randn(30, generator=rng) * 20
    offsets = torch.tensor([0, 3, 3, 23, 40])
    where = torch.randint(0, 30, (45,), generator=rng)  # the last places are filler
    norm = torch.randn(2, 2, 48 if most else 24, generator=rng)

    def with_logits(function, table, logits, *rest):
        return function(table, logits if how == "weighted" else None, *rest, how == "sum", most)

    both = [
        outputs_and_gradients(partial(with_logits, function), table, logits, where, offsets, *norm)
        for function in (stacked_models.pool_and_normalise, kernels.Pool.apply)
    ]
    for each in both:
        each[1] = each[1] * (
            table > 0
        )  # a feature that is 0 everywhere has no winner, and no gradient through the ReLU
    for one, other in zip(*both, strict=True):
        near(one, other, atol=1e-5)


@pytest.mark.parametrize("widths", [(24, 40), (130, 1), (5, 150)])
def test_layers_equal_torchs(widths, monkeypatch):
    """The kernel adds to existing gradients."""
    monkeypatch.setattr(kernels.layers, "PROGRAMS", 6)  # a program has several tiles
    rng, (inputs, outputs) = torch.Generator().manual_seed(5), widths
    x, weight = torch.randn(3, 140, inputs, generator=rng), torch.randn(3, outputs, inputs, generator=rng)
    bias, gradient = torch.randn(3, outputs, generator=rng), torch.randn(3, 140, outputs, generator=rng)
    y = stacked_models.layer(x, weight, bias)
    wanted = stacked_models.layer_back(gradient, (x, weight, bias, y), True)
    x, weight, bias, gradient = (tensor.to(DEVICE) for tensor in (x, weight, bias, gradient))
    found = kernels.layer(x, weight, bias)
    near(found, y, atol=1e-4)
    for one, other in zip(kernels.layer_back(gradient, (x, weight, bias, found), True), wanted, strict=True):
        near(one, other, atol=1e-4)
    weight.grad, bias.grad = torch.zeros_like(weight), torch.ones_like(bias)
    assert kernels.layer_back(gradient, (x, weight, bias, found), False) == (None, None, None)
    near(weight.grad, wanted[1], atol=1e-4)
    near(bias.grad, wanted[2] + 1, atol=1e-4)


def test_factors_for_tensor_cores_are_rounded_not_truncated():
    """Truncated factors would make products smaller by a share of 0.0007."""
    rng = torch.Generator().manual_seed(5)
    x, weight = (torch.randn(2, 128, 64, generator=rng).to(DEVICE) for _ in range(2))
    with stacked.tensor_cores():
        found = kernels.layer(x, weight, weight.new_zeros(2, 128)).double()
    exact = torch.bmm(x.double(), weight.double().mT).relu()
    size = exact.square().mean()
    assert 1e-4 < ((found - exact).square().mean() / size).sqrt() < 5e-4
    assert abs(((found - exact) * exact).mean() / size) < 5e-5


RATES = [[[0.9, 0.1, 0.001, 0.02, 3.0], [1, 0, 0, 0, 0]], [[0.95, 0.2, 0.002, 0.03, 2.0], [0.9, 0.3, 0.01, 0.01, 1.5]]]


def test_optimiser_steps_equal_torchs():
    rng = torch.Generator().manual_seed(5)
    slow = [*torch.randn(4, 1440, generator=rng), torch.arange(1440, dtype=torch.int32) % 2]
    slow[3].square_()
    fast = [each.to(DEVICE, copy=True) for each in slow]
    for flat, step in ((slow, stacked_adamw.adamw), (fast, kernels.adamw)):
        before, gradient = flat[0][1::2].clone(), flat[1].clone()
        for number in range(2):
            flat[1].copy_(gradient)
            step(tuple(flat), torch.tensor(RATES).to(gradient), torch.tensor([number]).to(gradient.device))
            assert not flat[1].any()
            if not number:  # the second fit has no first step
                near(flat[0][1::2], before, rtol=0)
    for one, other in zip(slow, fast):
        near(other, one, atol=1e-6)


def test_lazily_updated_rows_equal_those_updated_at_every_step():
    """Twenty steps and three more, each of which uses some rows of two models."""
    rng, fits, vocabulary, width = np.random.default_rng(3), 2, 9, 5
    start = torch.from_numpy(rng.normal(size=(fits, vocabulary, width))).float()
    start[:, PAD] = 0
    schedule = Schedule(64, 0.05, weight_decay=0.1)
    rates = partial(stacked_adamw.stacked_rates, schedule, [4, 3])

    slow, fast = (
        {
            name: weight.to(device, copy=True).requires_grad_()
            for name, weight in (("table", start), ("bias", start[:, 0]))
        }
        for device in ("cpu", DEVICE)
    )
    optimisers = [stacked_adamw.StackedAdamW(slow, rates), stacked_adamw.StackedAdamW(fast, rates, ["table"])]
    for steps in (20, 3):
        for optimiser in optimisers:
            optimiser.begin_run(steps)
        for _ in range(steps):
            used = [
                rng.choice(np.arange(1, vocabulary - 1), 3, replace=False) + fit * vocabulary for fit in range(fits)
            ]
            tokens = torch.from_numpy(np.pad(used, ((0, 0), (0, 2)), constant_values=PAD))  # filled by padding
            gradient = torch.from_numpy(rng.normal(size=(fits, 5, width))).float()
            gradient[:, 3:] = 0
            picked = optimisers[1].look_up(tokens.to(DEVICE), "table")
            near(picked.detach(), slow["table"].detach().flatten(0, 1)[tokens.flatten()].view_as(picked), atol=1e-6)
            (picked * gradient.to(DEVICE)).sum().backward()
            slow["table"].grad.index_put_((tokens // vocabulary, tokens % vocabulary), gradient, accumulate=True)
            for optimiser in optimisers:
                optimiser.step()
        for optimiser in optimisers:
            optimiser.end_run(steps)
        near(fast["table"].detach(), slow["table"].detach(), atol=1e-6)
        for name in ("moment", "square"):
            near(
                getattr(optimisers[1].rows["table"], name),
                optimisers[0].state[0][name][:90].view(start.shape),
                atol=1e-6,
            )


@pytest.mark.slow
def test_stacked_fits_with_kernels_equal_those_without(monkeypatch):
    config = PaperConfig(
        encoder=EncoderConfig(width=8, pooling="gated+max"),
        optimiser=OptimiserConfig(batch=20, stage1_epochs=1, stage2_epochs=1),
    )
    train, valid = (two_outcomes(random_split(rows, seed)) for rows, seed in ((40, 1), (30, 2)))
    facts = {"config": config, "seed": 11, "stack": True}
    plain = paper.fit(train, valid, **facts)
    monkeypatch.setattr(_objectives, "Alignments", kernels.StackedAlignments)
    for name in ("layer", "layer_back"):
        monkeypatch.setattr(stacked_models, name, getattr(kernels, name))
    monkeypatch.setattr(stacked_adamw, "adamw", kernels.adamw)
    monkeypatch.setattr(stacked, "LAZY_DEVICES", (DEVICE.type,))
    monkeypatch.setattr(stacked_models, "pool_and_normalise", kernels.Pool.apply)
    monkeypatch.setattr(stacked, "tensor_cores", nullcontext)  # on a GPU they would round more
    fast = paper.fit(train, valid, **facts, device=DEVICE.type)
    for one, other in zip(*((*fit.record.stage1.values(), fit.record.stage2) for fit in (fast, plain))):
        assert one.epoch == other.epoch
        assert one.bandwidth == pytest.approx(other.bandwidth, rel=1e-5)
        assert one.history[0].objective == pytest.approx(other.history[0].objective, rel=1e-3)
        assert one.quality == pytest.approx(other.quality, rel=1e-2)


def two_outcomes(split: Split) -> Split:
    return split.only(["mortality", "long_stay"])
