import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.codes.admissions import Admissions
from mlci.index._deepsets import BLOCK, DeepSetsScorer
from mlci.index._slabs import ROWS
from mlci.tokens import Tokens, Vocabulary
from oracles import set_score
from toys import random_state

SIZE = 40
VOCABULARY = Vocabulary((), (), max_codes=256)
admission = st.lists(st.integers(1, SIZE - 1), max_size=12)


def flat(admissions) -> Tokens:
    ids = np.array([token for each in admissions for token in each], dtype=np.int32)
    return Tokens(ids, np.concatenate([[0], np.cumsum([len(each) for each in admissions])]).astype(np.int64))


def many(n: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, SIZE, rng.integers(0, 9)) for _ in range(n)]


@pytest.mark.parametrize("pooling", ["mean+max", "mean", "max", "sum", "max+sum+mean", "attention", "gated+max"])
@given(admissions=st.lists(admission, max_size=8))
@settings(max_examples=25, deadline=None)
def test_scores_follow_the_definition(pooling, admissions):
    state = random_state(SIZE, pools=len(pooling.split("+")), pooling=pooling)
    expected = [set_score(state, each, pooling.split("+")) for each in admissions]
    np.testing.assert_allclose(
        DeepSetsScorer(state, pooling, VOCABULARY).read(flat(admissions)).score, expected, atol=1e-5
    )


SHAPES = [
    *({"pooling": pooling} for pooling in ("mean+max", "mean", "sum", "attention", "gated", "attention+gated+max")),
    {"pooling": "gated", "phi_layers": 1, "rho_layers": 0},
    {"pooling": "mean+max", "phi_layers": 3, "rho_layers": 4},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scores_equal_the_torch_forward_pass(shape):
    import torch

    from mlci.fitting.encoders import DeepSets

    torch.manual_seed(3)
    model = DeepSets(SIZE, width=32, **shape)
    tokens = flat([[], *many(500), np.full(256, 7), []])
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens.ids).long(), torch.from_numpy(tokens.offsets)).numpy()
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    scorer = DeepSetsScorer(state, shape["pooling"], Vocabulary(tuple("abcdefgh"), (10,) * 8, max_codes=256))
    np.testing.assert_allclose(scorer.read(tokens).score, expected, atol=1e-5)


def test_features_far_from_zero_follow_the_definition():
    """LayerNorm subtracts the mean of a row, even if it is twenty times the standard deviation."""
    state, admissions = random_state(SIZE, width=128), [each for each in many(200) if len(each)]
    state["phi.2.bias"] = state["phi.2.bias"] + np.float32(3)
    scorer = DeepSetsScorer(state, "mean+max", VOCABULARY)
    assert scorer._features.mean() > 20 * scorer._features.std()
    expected = [set_score(state, each, ["mean", "max"]) for each in admissions]
    np.testing.assert_allclose(scorer.read(flat(admissions)).score, expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["attention", "gated"])
def test_logits_far_apart_do_not_overflow(pooling):
    state = random_state(SIZE, pools=1, pooling=pooling)
    name = "query" if pooling == "attention" else "gate.2.weight"
    state[name] = 1e4 * state[name]
    admissions = [[], [1], [2, 3, 4], list(range(1, SIZE))]
    expected = [set_score(state, each, [pooling]) for each in admissions]
    np.testing.assert_allclose(
        DeepSetsScorer(state, pooling, VOCABULARY).read(flat(admissions)).score, expected, atol=1e-4
    )


@pytest.mark.parametrize("pooling", ["mean+max", "attention+gated"])
@given(admissions=st.lists(admission, min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_scores_do_not_depend_on_the_order_of_codes(pooling, admissions, seed):
    rng = np.random.default_rng(seed)
    scorer = DeepSetsScorer(random_state(SIZE, width=128, pooling=pooling), pooling, VOCABULARY)
    shuffled = [rng.permutation(each) for each in admissions]
    np.testing.assert_array_equal(scorer.read(flat(admissions)).score, scorer.read(flat(shuffled)).score)


@pytest.mark.parametrize("pooling", ["mean+max", "attention+gated"])
def test_scores_do_not_depend_on_the_batch(pooling):
    scorer = DeepSetsScorer(random_state(SIZE, width=128, pooling=pooling), pooling, VOCABULARY)
    tokens = flat(many(2 * BLOCK * ROWS + 3))
    together = scorer.read(tokens).score
    order = np.random.default_rng(1).permutation(len(tokens))
    np.testing.assert_array_equal(scorer.read(tokens.take(order)).score, together[order])
    for row in (0, 1, ROWS - 1, ROWS, BLOCK * ROWS, len(tokens) - 1):
        assert scorer.read(tokens.take(np.array([row]))).score[0] == together[row]


@pytest.mark.parametrize("longest", [1, 256, 512, 513, 20_000])
def test_long_admissions_do_not_overflow(longest):
    state = random_state(SIZE)
    scorer = DeepSetsScorer(state, "mean+max", Vocabulary((), (), max_codes=longest))
    alone = scorer.read(flat([[token] for token in range(1, SIZE)])).score
    repeated = flat([[token] * longest for token in range(1, SIZE)])
    # Mean and maximum of equal values are that value.
    np.testing.assert_allclose(scorer.read(repeated).score, alone, atol=1e-5)
    summing = DeepSetsScorer(random_state(SIZE, pools=1), "sum", Vocabulary((), (), max_codes=longest))
    assert np.isfinite(summing.read(repeated).score).all()


@pytest.mark.parametrize("pooling", ["mean+max", "sum", "gated+max"])
def test_whole_codes_score_exactly_as_their_tokens(pooling):
    """The tokens of a code may be added in one row of the table, or looked up in a row each."""
    codes = [["I5010", "I509", "E11"], ["I50", "I5010", "I5010"], ["ZZZ"], [], ["E1165", "I2", "I509"]]
    admissions = Admissions.from_lists(codes, icd_version=10)
    form = {"depths": (3, 4, 8), "primary": True, "number_of_codes": True}
    vocabulary = Vocabulary.fit(Admissions.from_lists(codes[:2], icd_version=10), **form)
    state = random_state(len(vocabulary), pools=len(pooling.split("+")), pooling=pooling)
    scorer = DeepSetsScorer(state, pooling, vocabulary)
    plain, found = vocabulary.encode(admissions), scorer.encode(admissions)
    assert (len(found.ids) < len(plain.ids)) == (pooling != "gated+max")
    np.testing.assert_array_equal(scorer.read(found).score, scorer.read(plain).score)


def test_no_admissions_give_no_scores():
    assert DeepSetsScorer(random_state(SIZE), "mean+max", VOCABULARY).read(flat([])).score.shape == (0,)


def test_few_admissions_score_as_they_do_among_many():
    scorer = DeepSetsScorer(random_state(SIZE, width=128), "mean+max", VOCABULARY)
    tokens = flat(many(BLOCK * ROWS))
    together = scorer.read(tokens).score
    for size in (1, ROWS - 17, ROWS - 16, ROWS, ROWS + 1, 3 * ROWS):
        part = np.arange(7, 7 + size)
        np.testing.assert_array_equal(scorer.read(tokens.take(part)).score, together[part])
