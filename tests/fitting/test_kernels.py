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
from mlci.fitting._engines import kernels, stacked, stacks
from mlci.fitting._objectives import Alignments
from small_fits import made

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
def test_alignments_and_their_gradients_are_those_of_the_slow_form(kernel, validity, monkeypatch):
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
    quality, judged = fast.judge(shares[None], scores, labels)
    near(judged, values, atol=1e-6)
    near(quality, values @ shares.to(values.dtype), atol=2e-6)
    size = gradient.abs().amax(1, keepdim=True).clamp(min=1e-12)
    near(slope / size, gradient / size, atol=1e-5)


@pytest.mark.parametrize("most", [False, True])
@pytest.mark.parametrize("how", ["mean", "sum", "weighted"])
def test_pooling_is_that_of_torch(how, most):
    rng = torch.Generator().manual_seed(5)
    table = torch.randn(30, 24, generator=rng).relu()  # as after phi; a width that is no power of two
    logits = torch.randn(30, generator=rng) * 20
    offsets = torch.tensor([0, 3, 3, 23, 40])
    where = torch.randint(0, 30, (45,), generator=rng)  # the last places are filling
    norm = torch.randn(2, 2, 48 if most else 24, generator=rng)

    def with_logits(function, table, logits, *rest):
        return function(table, logits if how == "weighted" else None, *rest, how == "sum", most)

    both = [
        outputs_and_gradients(partial(with_logits, function), table, logits, where, offsets, *norm)
        for function in (stacks.pooled, kernels.Pool.apply)
    ]
    for each in both:
        each[1] = each[1] * (table > 0)  # a feature that is 0 everywhere has no winner, and ReLU no gradient for it
    for one, other in zip(*both, strict=True):
        near(one, other, atol=1e-5)


def test_activation_is_that_of_torch():
    rng = torch.Generator().manual_seed(5)
    y, bias = torch.randn(3, 50, 24, generator=rng), torch.randn(3, 24, generator=rng)
    active = stacks.activate(y, bias)
    there = [x.to(DEVICE) for x in (y, active)]
    near(kernels.activate(there[0].clone(), bias.to(DEVICE)), active, rtol=0)
    for one, other in zip(stacks.deactivate(y, active), kernels.deactivate(*there), strict=True):
        near(other, one, atol=1e-5)


def test_steps_of_the_optimiser_are_those_of_torch():
    rng = torch.Generator().manual_seed(5)
    slow = list(torch.randn(3, 2, 24, 60, generator=rng))
    slow[2].square_()
    fast = [each.to(DEVICE, copy=True) for each in slow]
    rates = torch.tensor([[0.9, 0.1, 0.001, 0.02, 3.0], [1, 0, 0, 0, 0]])  # the second fit has no step
    gradient = torch.randn(2, 24, 60, generator=rng)
    for tensors, step in ((slow, stacked.adamw), (fast, kernels.adamw)):
        before, given = tensors[0][1].clone(), (gradient.to(tensors[0]), rates.to(tensors[0]))
        step(tensors[0], given[0], *tensors[1:], given[1])
        near(tensors[0][1], before, rtol=0)
    for one, other in zip(slow, fast):
        near(other, one, atol=1e-6)


@pytest.mark.slow
def test_stacked_fits_by_kernels_are_those_without(monkeypatch):
    config = PaperConfig(
        encoder=EncoderConfig(width=8, pooling="gated+max"),
        optimiser=OptimiserConfig(batch=20, stage1_epochs=1, stage2_epochs=1),
    )
    train, valid = (two_outcomes(made(rows, seed)) for rows, seed in ((40, 1), (30, 2)))
    facts = {"config": config, "seed": 11, "stack": True}
    plain = paper.fit(train, valid, **facts)
    monkeypatch.setattr(_objectives, "Alignments", kernels.StackedAlignments)
    for name in ("activate", "deactivate"):
        monkeypatch.setattr(stacks, name, getattr(kernels, name))
    monkeypatch.setattr(stacks, "pooled", kernels.Pool.apply)
    monkeypatch.setattr(stacked, "tensor_cores", nullcontext)  # on a GPU they would round more
    fast = paper.fit(train, valid, **facts, device=DEVICE.type)
    for one, other in zip(*((*fit.record.stage1.values(), fit.record.stage2) for fit in (fast, plain))):
        assert one.epoch == other.epoch
        assert one.bandwidth == pytest.approx(other.bandwidth, rel=1e-5)
        assert one.history[0].objective == pytest.approx(other.history[0].objective, rel=1e-3)
        assert one.quality == pytest.approx(other.quality, rel=1e-2)


def two_outcomes(split: Split) -> Split:
    return split.only(["mortality", "long_stay"])
