"""The encoders of baselines and ablations: flat and tabulated here, admission by admission in the test."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mlci.base.errors import InputError
from mlci.config import EncoderConfig
from mlci.fitting.encoders import build
from mlci.tokens import UNK

SETS = [[2, 5, 5, 9], [3], [], [7, 2, 8, 4, 6, 1]]
SIZE, WIDTH = 11, 8
NAMES = ["deepsets", "bag_mlp", "attention_mil", "deep_cross", "star_gat", "set_transformer"]
POOLINGS = ["sum", "mean", "attention", "gated", "mean+max"]


def flat(sets: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor([token for tokens in sets for token in tokens], dtype=torch.int64)
    return ids, torch.tensor(np.concatenate([[0], np.cumsum([len(tokens) for tokens in sets])]))


def make(name: str, pooling: str = "mean+max"):
    torch.manual_seed(3)
    return build(EncoderConfig(name=name, width=WIDTH, pooling=pooling), SIZE).double()


def pooled(model, how: str, h: torch.Tensor) -> torch.Tensor:
    """One admission's token features to one vector, as the definitions read."""
    if not len(h):
        return torch.zeros(WIDTH, dtype=h.dtype)
    if how == "attention":
        return torch.softmax(h @ model.query / math.sqrt(WIDTH), 0) @ h
    if how == "gated":
        gates = torch.sigmoid(model.gate(h))
        return (gates * h).sum(0) / gates.sum()
    return {"sum": h.sum(0), "mean": h.mean(0), "max": h.max(0).values}[how]


def graph_attention(h: torch.Tensor, weight, attention) -> torch.Tensor:
    """A layer on the star with its adjacency matrix written out; node 0 is the centre."""
    h = h @ weight.T
    logits = F.leaky_relu((h @ attention[1])[:, None] + h @ attention[0], 0.2)
    sees = torch.eye(len(h), dtype=torch.bool)
    sees[0, :] = sees[:, 0] = True
    return F.elu(torch.softmax(logits.masked_fill(~sees, -math.inf), 1) @ h)


def attend(block, queries: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """By torch's own multi-head attention."""
    h = block.norm1(queries + block.attention(queries, others, others, need_weights=False)[0])
    return block.norm2(h + block.feed(h))


def slow(model, name: str, tokens: list[int]) -> torch.Tensor:
    e = model.embedding.weight[torch.tensor(tokens, dtype=torch.int64)]
    if name == "deepsets":
        return model.rho(model.norm(torch.cat([pooled(model, how, model.phi(e)) for how in model.poolings])))
    if name == "bag_mlp":
        return model.rho(model.norm(e.sum(0)))
    if name == "attention_mil":
        return model.rho(model.norm((torch.softmax(model.attention(e), 0) * e).sum(0)))
    if name == "deep_cross":
        x0 = x = model.norm(e.mean(0) if tokens else torch.zeros(WIDTH, dtype=e.dtype))
        for w, b in zip(model.cross, model.shift):
            x = x0 * (x @ w) + b + x
        return model.rho(torch.cat([x, model.tower(x0)]))
    if name == "star_gat":
        h = torch.cat([torch.zeros(1, WIDTH, dtype=e.dtype), e])
        for layer, attention in zip((model.first, model.second), model.attention):
            h = graph_attention(h, layer.weight, attention)
        return model.rho(model.norm(h[0]))
    x = model.embedding.weight[torch.tensor(tokens or [UNK])][None]
    for points, gather, spread in zip(model.points, model.gather, model.spread):
        x = attend(spread, x, attend(gather, points[None], x))
    return model.rho(attend(model.pool, model.seed[None], x)[0, 0])


@pytest.mark.parametrize(
    ("name", "pooling"), [("deepsets", pooling) for pooling in POOLINGS] + [(name, "mean+max") for name in NAMES[1:]]
)
def test_equals_the_definition_admission_by_admission(name, pooling):
    model = make(name, pooling)
    scores = model(*flat(SETS))
    expected = torch.cat([slow(model, name, tokens) for tokens in SETS])
    torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_parameter_and_are_finite(name):
    model = make(name)
    model(*flat(SETS)).square().sum().backward()
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None, label
        assert torch.isfinite(parameter.grad).all(), label


@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_that_of_the_definition(name):
    model = make(name, "attention+gated")
    model(*flat(SETS)).square().sum().backward()
    fast = {label: parameter.grad.clone() for label, parameter in model.named_parameters()}
    model.zero_grad()
    torch.cat([slow(model, name, tokens) for tokens in SETS]).square().sum().backward()
    for label, parameter in model.named_parameters():
        torch.testing.assert_close(fast[label], parameter.grad, rtol=1e-8, atol=1e-10, msg=label)


def test_large_attention_logits_do_not_overflow():
    model = make("deepsets", "attention")
    with torch.no_grad():
        model.query.mul_(1e6)
    assert torch.isfinite(model(*flat(SETS))).all()


def test_negate_turns_every_score_around():
    for name in NAMES:
        model = make(name)
        before = model(*flat(SETS))
        model.negate()
        torch.testing.assert_close(model(*flat(SETS)), -before)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="star_gat"):
        build(EncoderConfig(name="star"), 5)
    with pytest.raises(InputError, match="gated"):
        build(EncoderConfig(pooling="median"), 5)
