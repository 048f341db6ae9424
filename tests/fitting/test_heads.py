"""Heads on a frozen encoder: they learn an ensemble's risks, and are calibrated on other admissions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mlci.config import EncoderConfig, HeadsConfig
from mlci.fitting import Split, _heads, encoders
from mlci.fitting._calibrate import calibrate
from mlci.tokens import Tokens

SIZE, NAMES = 50, ("mortality", "long_stay")


def hospital(seed: int, n: int) -> tuple[Split, np.ndarray]:
    """Return outcomes, some unknown, with their log-odds; tokens raise one outcome and lower the other."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.poisson(5, n))])
    ids = rng.integers(2, SIZE, offsets[-1]).astype(np.int32)
    weight = np.random.default_rng(99).normal(0, 0.8, (SIZE, 2))
    sums = np.zeros((n, 2))
    np.add.at(sums, np.repeat(np.arange(n), np.diff(offsets)), weight[ids])
    log_odds = sums - [2.0, 0.5]
    outcomes = (rng.random((n, 2)) < 1 / (1 + np.exp(-log_odds))).astype(np.float32)
    outcomes[rng.random((n, 2)) < 0.2] = np.nan
    return Split(Tokens(ids, offsets), outcomes, NAMES, SIZE), log_odds


def noisy_ensemble(true: np.ndarray, valid: np.ndarray) -> _heads.EnsembleLogits:
    """Return logits of members that are too high by 0.7 and have independent noise."""
    rng = np.random.default_rng(4)
    noise = [rng.normal(0, 0.5, shape) for shape in (true.shape, (5, *valid.shape))]
    return _heads.EnsembleLogits(true + 0.7, true + 0.7 + noise[0], valid + 0.7 + noise[1])


@pytest.fixture(scope="module")
def learned():
    (train, true), (valid, true_valid) = hospital(1, 3000), hospital(2, 800)
    torch.manual_seed(0)
    encoder = encoders.build(EncoderConfig(width=16), SIZE)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    epochs = []
    found = _heads.fit_heads(
        encoder,
        noisy_ensemble(true, true_valid),
        (train, valid),
        options=HeadsConfig(epochs=4),
        seed=(5, 4),
        metric=lambda scores: ([-1.0], [[0.5, 0.5]]),
        on_epoch=lambda epoch, _: epochs.append(epoch),
    )
    assert epochs == [1, 2, 3, 4]
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())
    return encoder, found, valid


def test_the_stacked_engine_learns_the_same_heads():
    (train, true), (valid, true_valid) = hospital(1, 300), hospital(2, 50)
    facts = {"options": HeadsConfig(epochs=2, batch=128, steps=1), "seed": (5, 4), "on_epoch": lambda *_: None}
    found = []
    for stack in (False, True):
        torch.manual_seed(0)
        encoder = encoders.build(EncoderConfig(width=16), SIZE)
        metric = lambda scores: ([0.0], [[float(scores.mean())]])  # noqa: E731
        found.append(
            _heads.fit_heads(
                encoder, noisy_ensemble(true, true_valid), (train, valid), metric=metric, stack=stack, **facts
            )
        )
    for name, array in found[0].state.items():
        np.testing.assert_allclose(found[1].state[name], array, atol=1e-5)
    np.testing.assert_allclose(found[1].entropy, found[0].entropy, atol=1e-5)


def test_heads_follow_the_ensemble(learned):
    encoder, found, _ = learned
    test, true = hospital(3, 2000)
    heads = encoders.RiskHeads(encoder, torch.zeros(2))
    arrays = {name.removeprefix("heads."): torch.from_numpy(array) for name, array in found.state.items()}
    heads.load_state_dict({name: arrays[name] for name in ("tokens", "weight", "bias")}, strict=False)
    log_odds = encoders.predict(heads, test.tokens).numpy()
    assert np.corrcoef(log_odds[:, 0], true[:, 0])[0, 1] > 0.97
    assert np.corrcoef(log_odds[:, 1], true[:, 1])[0, 1] > 0.97
    shift, slope = found.state["calibration"].T
    assert (shift < -0.3).all()
    assert ((slope > 0.75) & (slope < 1.05)).all()  # the members' calibration, and what the validation split adds
    risk = 1 / (1 + np.exp(-shift - slope * log_odds))
    assert np.abs(risk.mean(0) - (1 / (1 + np.exp(-true))).mean(0)).max() < 0.05


def test_validation_risks_use_the_calibration_of_the_other_half(learned):
    _, found, valid = learned
    assert found.valid_risks.shape == valid.outcomes.shape
    assert ((found.valid_risks > 0) & (found.valid_risks < 1)).all()
    for outcome, risk in zip(valid.outcomes.T, found.valid_risks.T):
        known = ~np.isnan(outcome)
        assert abs(risk[known].mean() - outcome[known].mean()) < 0.05


def test_composed_lines_equal_one_after_the_other():
    first, second = np.array([[1.0, 2.0]]), np.array([[-3.0, 0.5]])
    x = np.array([[0.0], [4.0]])
    np.testing.assert_allclose(
        _heads._apply(_heads._compose(first, second), x), _heads._apply(second, _heads._apply(first, x))
    )


def test_without_known_outcomes_calibration_changes_nothing():
    assert calibrate(np.zeros(3), np.full(3, np.nan)).tolist() == [0.0, 1.0]


def test_without_validation_outcomes_heads_are_calibrated_to_the_members():
    (train, true), (valid, true_valid) = hospital(1, 1500), hospital(2, 400)
    torch.manual_seed(0)
    encoder, ensemble = encoders.build(EncoderConfig(width=8), SIZE), noisy_ensemble(true, true_valid)
    found = _heads.fit_heads(
        encoder,
        ensemble,
        (train, replace(valid, outcomes=np.full_like(valid.outcomes, np.nan))),
        options=HeadsConfig(epochs=2),
        seed=(5, 4),
        metric=lambda scores: ([-1.0], [[0.5, 0.5]]),
        on_epoch=lambda *_: None,
    )
    lines = np.stack([calibrate(column, outcome) for column, outcome in zip(ensemble.out_of_fold.T, train.outcomes.T)])
    expected = 1 / (1 + np.exp(-lines[:, 0] - lines[:, 1] * ensemble.valid))
    np.testing.assert_allclose(found.valid_risks.mean(0), expected.mean((0, 1)), atol=0.01)
