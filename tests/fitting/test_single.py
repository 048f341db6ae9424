"""The engine of one model."""

import numpy as np
import pytest
import torch

from mlci.config import EncoderConfig
from mlci.fitting._engines import single
from mlci.fitting._loop import Schedule, new_encoder
from mlci.fitting._objectives import MeanLosses, entropy
from small_fits import random_split

TRAIN = random_split(320, 1)


def test_token_dropout_drops_tokens_but_no_admission():
    tokens = single.drop_tokens(TRAIN.tokens, 0.25, np.random.default_rng(0))
    assert len(tokens) == len(TRAIN)
    assert len(tokens.ids) / len(TRAIN.tokens.ids) == pytest.approx(0.75, abs=0.05)
    assert (tokens.counts <= TRAIN.tokens.counts).all()
    assert set(tokens.take(np.array([9])).ids) <= set(TRAIN.tokens.take(np.array([9])).ids)


@pytest.mark.parametrize(("steps", "size"), [(1, 64), (10, 32), (100, 16)])
def test_with_few_admissions_batches_are_small(steps, size, monkeypatch):
    seen = []
    monkeypatch.setattr(single, "drop_tokens", lambda tokens, *_: seen.append(len(tokens)) or tokens)
    model = new_encoder(EncoderConfig(width=8), 40, (1,), torch.device("cpu"), outputs=3)
    engine = single.autograd_engine(model, TRAIN, Schedule(64, 0.01, steps=steps, token_dropout=0.1), (1,))
    engine.set_objective(MeanLosses(entropy, torch.ones(1, 3)))
    engine.train_epoch(1)
    assert seen == [size] * (320 // size)


def test_even_batches_have_about_the_requested_size():
    assert Schedule(100, 0.01, even=True).batch_bounds(260).tolist() == [0, 87, 174, 260]
    assert Schedule(100, 0.01).batch_bounds(260).tolist() == [0, 100, 200, 260]
