"""Encoders trained side by side are those trained one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mlci.config import EncoderConfig, LearningConfig
from mlci.fitting import encoders, learning, stacked
from mlci.fitting.learning import ENTROPY, SQUARES, AdamW, Lesson, Means
from mlci.fitting.stacks import Layout, Resident, Sets
from mlci.fitting.training import Data, predict
from small_fits import made

CPU, SIZE = torch.device("cpu"), 40
TRAIN, VALID = made(320, 1), made(90, 2)
OPTIONS = LearningConfig(epochs=3, batch=64, steps=1, learning_rate=0.01, dropout=0.0, token_dropout=0.2)


def lesson(loss=ENTROPY, after=lambda *_: None, **options) -> Lesson:
    return Lesson(replace(OPTIONS, **options), EncoderConfig(width=16), SIZE, CPU, loss, VALID, after)


def both_ways(one: Lesson, data: Data, rows: list[np.ndarray], monkeypatch) -> list[list[encoders.DeepSets]]:
    found = []
    for kinds in ((), ("cpu",)):
        monkeypatch.setattr(stacked, "PAYS", kinds)
        found.append(one.learn(data, rows, [(7, number) for number in range(len(rows))]))
    return found


def same(alone: list[encoders.DeepSets], together: list[encoders.DeepSets]) -> None:
    for one, other in zip(alone, together, strict=True):
        for name, weight in one.state_dict().items():
            np.testing.assert_allclose(other.state_dict()[name], weight, rtol=1e-6, atol=1e-8, err_msg=name)


def test_side_by_side_is_one_by_one(monkeypatch, float64):
    """With other numbers of admissions, hence of steps and, of the last, of admissions in a batch."""
    told = []
    rows = [np.arange(320), np.arange(2, 250), np.arange(0, 320, 2), np.arange(100)]
    one = lesson(after=lambda *heard: told.append(heard), steps=2)
    alone, together = both_ways(one, TRAIN, rows, monkeypatch)
    same(alone, together)
    alone, together = told[:12], told[12:]
    for epoch, (scores, number, loss) in enumerate(together):
        expected = alone[epoch::3]
        assert {number} == {each[1] for each in expected}
        assert loss == pytest.approx(np.mean([each[2] for each in expected]))
        np.testing.assert_allclose(scores, np.stack([each[0] for each in expected]), rtol=1e-6, atol=1e-8)


def test_one_of_one_outcome_with_dropout_is_that_alone(monkeypatch, float64):
    """Full batches draw the same units."""
    wanted = Data(TRAIN.tokens, np.random.default_rng(1).normal(size=(320, 1)).astype(np.float32))
    same(*both_ways(lesson(SQUARES, dropout=0.4), wanted, [np.arange(320)], monkeypatch))


def test_dropout_is_for_training_alone(float64):
    models = [lesson(dropout=0.4)._start(3, (1, number)) for number in range(2)]
    stack, data = Sets(models), Resident.of(VALID, CPU)
    layout = Layout.of(data, torch.arange(90).repeat(2, 1), 90, SIZE, lambda outcomes: (outcomes,))
    expected = np.stack([predict(model, VALID.tokens) for model in models])
    assert expected.shape == (2, 90, 3)
    np.testing.assert_allclose(stack.predict(data), expected, atol=1e-12)
    torch.manual_seed(1)
    first, second = (stack.scores(*(part[0] for part in layout.parts[:3])).detach().numpy() for _ in range(2))
    for other in (second, expected):
        assert (first != other).mean() > 0.9  # not where both drop the same, or nothing that matters


def test_steps_are_those_of_torch(float64):
    """AdamW with a one-cycle rate, all steps of two schedules, of which the shorter has one step less in each epoch."""
    options, counts, rng = replace(OPTIONS, weight_decay=0.3), (4, 3), torch.Generator().manual_seed(1)
    start, gradients = torch.randn(2, 3, 5, generator=rng), torch.randn(3, 4, 2, 3, 5, generator=rng)
    rates = torch.tensor([1.0, 0, 0, 0, 0]).repeat(3, 4, 2, 1)
    for fit, count in enumerate(counts):
        rates[:, :count, fit] = learning.cycle(options, 3 * count).view(3, count, 5)
    weight = start.clone()
    optimiser = AdamW([weight], rates.flatten(0, 1))
    for weight.grad in gradients.flatten(0, 1):
        optimiser.step()
    for fit, count in enumerate(counts):
        other = start[fit].clone()
        adam = torch.optim.AdamW([other], lr=options.learning_rate, weight_decay=0.3)
        rate = torch.optim.lr_scheduler.OneCycleLR(adam, options.learning_rate, total_steps=3 * count)
        for other.grad in gradients[:, :count, fit].flatten(0, 1):
            adam.step()
            rate.step()
        np.testing.assert_allclose(weight[fit], other, rtol=1e-12)


def test_a_missing_outcome_costs_only_itself():
    logits, outcomes = torch.zeros(4, 2, requires_grad=True), torch.tensor([[1, 0], [0, np.nan], [1, 1], [0, np.nan]])
    loss = learning.cross_entropy(logits, outcomes)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(2 * np.log(2))
    np.testing.assert_allclose(logits.grad, [[-0.125, 0.25], [0.125, 0], [-0.125, -0.25], [0.125, 0]])


@pytest.mark.parametrize("loss", [ENTROPY, SQUARES])
def test_losses_side_by_side_are_those_alone(loss, float64):
    """The last fit has an empty batch."""
    rng = torch.Generator().manual_seed(1)
    columns = 1 if loss is SQUARES else 3
    scores, outcomes = torch.randn(3, 20, columns, generator=rng), torch.rand(3, 20, columns, generator=rng).round()
    outcomes[2] = torch.nan
    if loss is ENTROPY:
        outcomes[0, 5:, 1], outcomes[1, :, 2] = torch.nan, torch.nan
    means = Means(loss, 3, columns, CPU)
    values, gradient = means.step(scores.squeeze(2), *means.labels(outcomes))
    for fit in range(2):
        own = scores[fit].clone().requires_grad_()
        value = loss.whole(own, outcomes[fit])
        value.backward()
        assert float(values[fit].sum()) == pytest.approx(float(value.detach()))
        np.testing.assert_allclose(gradient[fit].view_as(own), own.grad, atol=1e-12)
    assert not values[2].any()
    assert not gradient[2].any()


def test_thinning_drops_tokens_but_no_admission():
    tokens = learning.thin(TRAIN.tokens, 0.25, np.random.default_rng(0))
    assert len(tokens) == len(TRAIN)
    assert len(tokens.ids) / len(TRAIN.tokens.ids) == pytest.approx(0.75, abs=0.05)
    assert (tokens.counts <= TRAIN.tokens.counts).all()
    assert set(tokens.take(np.array([9])).ids) <= set(TRAIN.tokens.take(np.array([9])).ids)
    same = learning.thin(TRAIN.tokens, 0.0, np.random.default_rng(0))
    np.testing.assert_array_equal(same.offsets, TRAIN.tokens.offsets)


@pytest.mark.parametrize(("steps", "size"), [(1, 64), (10, 32), (100, 16)])
def test_few_admissions_come_in_small_batches(steps, size, monkeypatch):
    seen = []
    monkeypatch.setattr(learning, "thin", lambda tokens, *_: seen.append(len(tokens)) or tokens)
    lesson(epochs=1, steps=steps).learn(TRAIN, [np.arange(320)], [(1,)])
    assert seen == [size] * (320 // size)
