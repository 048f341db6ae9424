"""The contract of every discovered model, and tests of single models."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from conftest import require
from mlci.benchmark import models as baselines
from mlci.benchmark.models import _bags
from mlci.codes.admissions import Admissions
from mlci.fitting import Split
from mlci.tokens import Tokens, Vocabulary

NAMES = ("mortality", "long_stay")
# The smallest settings with which a fit still takes every step.
SMALL = {"epochs": 1, "rounds": 3, "reference": 60, "k": 5, "width": 8, "members": 2, "risk_epochs": 1}


def small(model):
    known = {field.name for field in fields(model)}
    return replace(model, **{name: value for name, value in SMALL.items() if name in known})


def draw(n: int, seed: int) -> tuple[list[list[str]], np.ndarray]:
    """Return admissions: the first outcome depends on heart failure and sepsis, the second on the number of codes."""
    random = np.random.default_rng(seed)
    pool = np.array(["I509", "A419", "E119", "I10", "N179", "J449", "K219", "Z9981", "C799", "F329"])
    codes = [list(random.choice(pool, random.integers(1, 6), replace=False)) for _ in range(n)]
    sick = np.array([("I509" in admission) + ("A419" in admission) for admission in codes])
    death = random.random(n) < 0.08 + 0.35 * sick
    long = random.random(n) < 0.1 + 0.12 * np.array([len(admission) for admission in codes])
    outcomes = np.column_stack([death, long]).astype(np.float32)
    outcomes[random.random(outcomes.shape) < 0.05] = np.nan
    return codes, outcomes


def part(codes, outcomes, vocabulary: Vocabulary, names=NAMES) -> Split:
    admissions = Admissions.from_lists(codes, icd_version=10)
    return Split(vocabulary.encode(admissions), outcomes, names, len(vocabulary), admissions=admissions)


@pytest.fixture(scope="module")
def data():
    splits = {name: draw(n, seed) for seed, (name, n) in enumerate({"train": 300, "valid": 90, "test": 80}.items())}
    vocabulary = Vocabulary.fit(Admissions.from_lists(splits["train"][0]))
    return {name: part(*split, vocabulary) for name, split in splits.items()} | {"vocabulary": vocabulary}


@pytest.fixture(scope="module", params=list(baselines.discover()))
def fitted(request, data):
    model = small(baselines.discover()[request.param])
    require(not model.missing, str(model.missing))
    return model, model.fit(data["train"], data["valid"], seed=7)


def test_scores_are_finite_one_per_admission_and_in_order(fitted, data):
    model, state = fitted
    test = data["test"]
    score = model.score(state, test)
    assert score.shape == (len(test),)
    assert np.isfinite(score).all()
    assert np.ptp(score) > 0
    reverse = np.arange(len(test))[::-1]
    codes = [test.admissions.values[test.admissions.indices[a:b]] for a, b in pairwise(test.admissions.offsets)]
    reversed_test = part([list(codes[row]) for row in reverse], test.outcomes[reverse], data["vocabulary"])
    np.testing.assert_allclose(model.score(state, reversed_test), score[reverse], rtol=1e-5, atol=1e-6)


def test_equal_seeds_give_equal_scores(fitted, data):
    model, state = fitted
    again = model.fit(data["train"], data["valid"], seed=7)
    np.testing.assert_array_equal(model.score(again, data["test"]), model.score(state, data["test"]))


def test_scores_do_not_depend_on_the_order_of_codes(fitted, data):
    model, state = fitted
    random = np.random.default_rng(0)
    codes, outcomes = draw(40, 9)
    expected = model.score(state, part(codes, outcomes, data["vocabulary"]))
    mixed = [list(random.permutation(admission)) for admission in codes]
    shuffled = model.score(state, part(mixed, outcomes, data["vocabulary"]))
    np.testing.assert_allclose(shuffled, expected, rtol=1e-5, atol=1e-6)


def test_unknown_codes_and_empty_admissions_have_a_score(fitted, data):
    model, state = fitted
    codes = [[], ["Q999"], ["Q999", "I509"], ["I509"]]
    outcomes = np.full((4, 2), np.nan, dtype=np.float32)
    score = model.score(state, part(codes, outcomes, data["vocabulary"]))
    assert np.isfinite(score).all()
    alone = model.score(state, part(codes[:1], outcomes[:1], data["vocabulary"]))
    np.testing.assert_allclose(alone, score[:1], rtol=1e-5, atol=1e-6)


def test_validation_outcomes_are_used_for_selection_only(fitted, data):
    """With one outcome (no weights) and one candidate (no choice) they affect only the sign of the score."""
    model, _ = fitted
    if "rounds" in {field.name for field in fields(model)}:
        model = replace(model, rounds=1)
    one = {
        name: replace(data[name], outcomes=data[name].outcomes[:, :1], names=NAMES[:1])
        for name in ("train", "valid", "test")
    }
    other = one["valid"].outcomes.copy()
    np.random.default_rng(1).shuffle(other)
    score = model.score(model.fit(one["train"], one["valid"], seed=7), one["test"])
    blind = model.score(model.fit(one["train"], replace(one["valid"], outcomes=other), seed=7), one["test"])
    sign = np.sign(np.corrcoef(score, blind)[0, 1])
    np.testing.assert_allclose(sign * blind, score, rtol=1e-5, atol=1e-6)


def test_outcomes_that_nobody_has_cannot_be_learned(fitted, data):
    model, _ = fitted
    if model.family == "clinical":  # learns from no outcome
        return
    none = {name: replace(data[name], outcomes=0 * data[name].outcomes) for name in ("train", "valid")}
    with pytest.raises(baselines.InputError, match=r"([Oo]utcome .*both classes|anchor)"):
        model.fit(none["train"], none["valid"], seed=7)


def test_trees_need_the_outcomes_of_the_validation_split(data):
    trees = small(baselines.discover()["trees"])
    require(not trees.missing, str(trees.missing))
    unknown = replace(data["valid"], outcomes=np.full_like(data["valid"].outcomes, np.nan))
    with pytest.raises(baselines.InputError, match="an outcome is not known in the validation split"):
        trees.fit(data["train"], unknown, seed=7)


def test_save_and_load_round_trip(fitted, data, tmp_path):
    model, state = fitted
    baselines.save(tmp_path / "model.safetensors", model, state)
    loaded, loaded_state = baselines.load(tmp_path / "model.safetensors")
    assert loaded == model
    np.testing.assert_array_equal(loaded.score(loaded_state, data["test"]), model.score(state, data["test"]))


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"no model")
    with pytest.raises(baselines.InputError, match="is not a model file written by"):
        baselines.load(tmp_path / "model.safetensors")


def test_unknown_model_lists_the_known_ones():
    with pytest.raises(baselines.InputError, match=r"'knnn' is not known.*knn"):
        baselines.choose(["knnn"])


def test_families_choose_their_models():
    chosen = baselines.choose(["classical"])
    assert [model.title for model in chosen][:2] == ["kNN", "Multinomial Naive Bayes"]
    assert {model.family for model in chosen} == {"classical"}


def test_tfidf_equals_scikit_learn(data):
    from sklearn.feature_extraction.text import TfidfTransformer

    train, test = data["train"], data["test"]
    peer = TfidfTransformer().fit(_bags.counts(train))
    ours = _bags.tfidf(test, _bags.inverse_frequency(train))
    np.testing.assert_allclose(ours.toarray(), peer.transform(_bags.counts(test)).toarray(), rtol=1e-12)


def test_validation_loss_is_a_mean_over_batches():
    random = np.random.default_rng(0)
    logit, y = random.normal(size=700), random.integers(0, 2, 700).astype(float)
    y[256:512] = np.nan  # one batch without a known outcome counts as zero
    y[:5] = np.nan
    p = 1 / (1 + np.exp(-logit))
    loss = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    expected = (np.nanmean(loss[:256]) + 0 + np.nanmean(loss[512:])) / 3
    assert _bags.validation_loss(logit, y) == pytest.approx(expected, rel=1e-12)


def test_outcome_weights_follow_the_paper():
    losses = np.array([0.05, 0.4, np.nan, 0.8])
    strength = np.log(2) - losses[[0, 1]]
    raw = np.array([1.0, (strength[0] / strength[1]) ** 0.25, (strength[0] / 0.02) ** 0.25])
    weights = _bags.outcome_weights(losses)
    assert weights[2] == 0
    np.testing.assert_allclose(weights[[0, 1, 3]], raw / raw.mean())


def test_pooling_by_share_equals_copies_of_admissions(data):
    """The loss over copies of each admission, one per known outcome, is the loss with shares and summed weights."""
    train = data["train"]
    weights = np.array([0.7, 1.3])
    logit = np.random.default_rng(0).normal(size=len(train))
    copies = sum(w * np.nansum(_bags.cross_entropy(logit, y)) for w, y in zip(weights, train.outcomes.T.astype(float)))
    share, weight = _bags.pooled(train, weights)
    assert np.sum(weight * _bags.cross_entropy(logit, share)) == pytest.approx(copies, rel=1e-6)


def test_an_outcome_of_one_class_is_left_out(data):
    model = baselines.discover()["logistic"]
    constant = {name: replace(data[name], outcomes=data[name].outcomes.copy()) for name in ("train", "valid")}
    constant["train"].outcomes[:, 1] = 0
    alone = {name: replace(p, outcomes=p.outcomes[:, :1], names=NAMES[:1]) for name, p in constant.items()}
    with_it = model.score(model.fit(constant["train"], constant["valid"], seed=0), data["test"])
    without = model.score(model.fit(alone["train"], alone["valid"], seed=0), data["test"])
    np.testing.assert_allclose(with_it, without)


def test_factorization_machine_learns_an_interaction_of_codes():
    """The outcome depends on whether two codes agree, which no linear model can express."""
    random = np.random.default_rng(0)
    both = random.integers(0, 2, (4000, 2))
    y = (both[:, 0] == both[:, 1]).astype(np.float32)[:, None]
    tokens = Tokens((both * [2, 3]).ravel()[both.ravel() > 0], np.concatenate([[0], np.cumsum(both.sum(1))]))
    data = Split(tokens, y, ("mortality",), 4)
    model = baselines.discover()["factorization"]
    score = model.score(model.fit(data, data, seed=0), data)
    assert score[y[:, 0] == 1].min() > score[y[:, 0] == 0].max()
