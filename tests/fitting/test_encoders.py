"""Every encoder against its definition, admission by admission; all implementations of DeepSets against each other."""

import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import oracles
from conftest import PATIENCE
from mlci.base.errors import InputError
from mlci.config import EncoderConfig
from mlci.fitting import Split, encoders
from mlci.fitting._engines import by_hand, stacked_models
from mlci.fitting._engines.layout import Resident
from mlci.fitting._loop import seeded
from mlci.fitting.encoders import DeepSets, build, dropout_mask, predict
from mlci.index._deepsets import DeepSetsScorer
from mlci.tokens import UNK, Tokens, Vocabulary

SETS = [[2, 5, 5, 9], [3], [], [7, 2, 8, 4, 6, 1]]
SIZE, WIDTH = 11, 8
NAMES = ["deepsets", "bag_mlp", "attention_mil", "deep_cross", "star_gat", "set_transformer"]
POOLINGS = ["sum", "mean", "attention", "gated", "mean+max"]
ANY_SETS = st.lists(st.lists(st.integers(1, 11), max_size=6), min_size=1, max_size=6)


def flat(sets: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sets])])
    ids = np.array([token for one in sets for token in one], dtype=np.int64)
    return torch.from_numpy(ids), torch.from_numpy(offsets)


def encoder(**options) -> DeepSets:
    torch.manual_seed(3)
    return DeepSets(12, width=8, **options).double()


@given(ANY_SETS)
@settings(deadline=None, max_examples=25)
def test_scores_and_gradients_equal_the_padded_form(sets):
    ours, padded = encoder(), encoder()
    a, b = ours(*flat(sets)), oracles.padded_deepsets(padded, sets)
    torch.testing.assert_close(a, b)
    pull = torch.linspace(-1, 1, len(sets), dtype=torch.float64)
    (a @ pull).backward()
    (b @ pull).backward()
    for (name, one), two in zip(ours.named_parameters(), padded.parameters()):
        none = torch.zeros_like(one)
        torch.testing.assert_close(
            none if one.grad is None else one.grad, none if two.grad is None else two.grad, msg=name
        )


@given(ANY_SETS, st.randoms())
@settings(deadline=None, max_examples=25)
def test_scores_do_not_depend_on_the_order_of_codes_or_on_other_admissions(sets, random):
    model = encoder()
    shuffled = [random.sample(one, len(one)) for one in sets]
    together = model(*flat(sets))
    torch.testing.assert_close(model(*flat(shuffled)), together)
    alone = torch.cat([model(*flat([one])) for one in sets])
    torch.testing.assert_close(alone, together)


def test_an_admission_without_codes_has_a_score():
    model = encoder()
    zero = torch.zeros(1, 16, dtype=torch.float64)
    torch.testing.assert_close(model(*flat([[]])), model.rho(model.norm(zero)).squeeze(1))


def test_tensor_names_are_those_of_the_model_file():
    names = {name.split(".")[0] for name in encoder().state_dict()}
    assert names == {"embedding", "phi", "norm", "rho"}
    assert encoder().embedding.weight[0].eq(0).all()


def test_poolings_can_be_combined():
    assert encoder(pooling="sum").norm.normalized_shape == (8,)
    one, twice = encoder(pooling="mean"), encoder(pooling="sum")
    torch.testing.assert_close(one(*flat([[4, 4]])), one(*flat([[4]])))
    assert not torch.allclose(twice(*flat([[4, 4]])), twice(*flat([[4]])))


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match=r"deepsets.*star_gat"):
        build(EncoderConfig(name="deepset"), 5)
    with pytest.raises(InputError, match="mean, max, sum"):
        build(EncoderConfig(pooling="mean+median"), 5)


def test_every_implementation_of_deepsets_gives_the_same_scores():
    """With autograd, hand-written passes, stacked, and NumPy (docs/architecture.md says why there are four)."""
    torch.manual_seed(3)
    models = [DeepSets(SIZE, width=WIDTH) for _ in range(2)]
    offsets = np.concatenate([[0], np.cumsum([len(tokens) for tokens in SETS])])
    tokens = Tokens(np.concatenate(SETS).astype(np.int32), offsets)
    split = Split(tokens, np.zeros((len(SETS), 1), np.float32), ("mortality",), SIZE)
    together = stacked_models.build(models, 6).predict(Resident.of(split, torch.device("cpu")))
    for model, stacked in zip(models, together, strict=True):
        expected = predict(model, tokens)
        torch.testing.assert_close(stacked, expected)
        state = {name: weight.numpy().copy() for name, weight in model.state_dict().items()}
        scorer = DeepSetsScorer(state, "mean+max", Vocabulary((), (), max_codes=6))
        np.testing.assert_allclose(scorer.read(tokens).score, expected, rtol=1e-5, atol=1e-6)
        hand = by_hand.ByHand(model)
        torch.testing.assert_close(hand.forward(hand.lay_out(tokens)), expected)


def make(name: str, pooling: str = "mean+max"):
    torch.manual_seed(3)
    return build(EncoderConfig(name=name, width=WIDTH, pooling=pooling), SIZE).double()


def pooled(model, how: str, h: torch.Tensor) -> torch.Tensor:
    """Pool one admission's token features as defined."""
    if not len(h):
        return torch.zeros(WIDTH, dtype=h.dtype)
    if how == "attention":
        return torch.softmax(h @ model.query / math.sqrt(WIDTH), 0) @ h
    if how == "gated":
        gates = torch.sigmoid(model.gate(h))
        return (gates * h).sum(0) / gates.sum()
    return {"sum": h.sum(0), "mean": h.mean(0), "max": h.max(0).values}[how]


def graph_attention(h: torch.Tensor, weight, attention) -> torch.Tensor:
    """Compute a layer on the star with its full adjacency matrix; node 0 is the centre."""
    h = h @ weight.T
    logits = F.leaky_relu((h @ attention[1])[:, None] + h @ attention[0], 0.2)
    sees = torch.eye(len(h), dtype=torch.bool)
    sees[0, :] = sees[:, 0] = True
    return F.elu(torch.softmax(logits.masked_fill(~sees, -math.inf), 1) @ h)


def attend(block, queries: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Use torch's own multi-head attention."""
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


def test_negate_changes_the_sign_of_every_score():
    for name in NAMES:
        model = make(name)
        before = model(*flat(SETS))
        model.negate()
        torch.testing.assert_close(model(*flat(SETS)), -before)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.9])
def test_dropout_drops_a_random_share_and_keeps_the_mean(share):
    drawn = dropout_mask(torch.empty(1001, 999), share, torch.Generator().manual_seed(3))
    zeros = (drawn == 0).double()
    deviation = (share * (1 - share) / drawn.numel()) ** 0.5
    assert abs(float(zeros.mean()) - share) < 4 * deviation
    assert set(drawn.unique().tolist()) == {0.0, float(torch.tensor(1.0) / torch.tensor(1 - share))}
    for step in (1, 2, 4, 999):  # neighbouring entries are independent
        flat = zeros.flatten()
        both = float((flat[:-step] * flat[step:]).mean())
        assert abs(both - share**2) < 8 * share * deviation


def test_a_model_is_not_loaded_while_another_thread_draws_random_weights(monkeypatch):
    """Torch has one random generator for all threads: a loaded model would draw from it in between."""
    config, begun, build = EncoderConfig(width=4), threading.Event(), encoders.build
    state = build(config, 9).state_dict()
    monkeypatch.setattr(encoders, "build", lambda *given: begun.set() or build(*given))
    thread = threading.Thread(target=encoders.loaded, args=(config, state))
    with seeded(1, device=torch.device("cpu")):
        thread.start()
        assert not begun.wait(0.2)
    thread.join(PATIENCE)
    assert begun.is_set()
