import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from mlci.base.errors import InputError
from mlci.config import EncoderConfig
from mlci.fitting.encoders import DeepSets, build

SETS = st.lists(st.lists(st.integers(1, 11), max_size=6), min_size=1, max_size=6)


def flat(sets: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sets])])
    ids = np.array([token for one in sets for token in one], dtype=np.int64)
    return torch.from_numpy(ids), torch.from_numpy(offsets)


def encoder(**options) -> DeepSets:
    torch.manual_seed(3)
    return DeepSets(12, width=8, **options).double()


@given(SETS)
@settings(deadline=None, max_examples=40)
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


@given(SETS, st.randoms())
@settings(deadline=None, max_examples=40)
def test_the_order_of_codes_and_the_company_of_admissions_do_not_matter(sets, random):
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


def test_negate_turns_every_score():
    model = encoder()
    before = model(*flat([[1, 2], [3]])).detach()
    model.negate()
    torch.testing.assert_close(model(*flat([[1, 2], [3]])).detach(), -before)


def test_poolings_may_be_joined():
    assert encoder(pooling="sum").norm.normalized_shape == (8,)
    one, twice = encoder(pooling="mean"), encoder(pooling="sum")
    torch.testing.assert_close(one(*flat([[4, 4]])), one(*flat([[4]])))
    assert not torch.allclose(twice(*flat([[4, 4]])), twice(*flat([[4]])))


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="deepsets"):
        build(EncoderConfig(name="deepset"), 5)
    with pytest.raises(InputError, match="mean, max, sum"):
        build(EncoderConfig(pooling="mean+median"), 5)
