"""Risks from the heads of an encoder: by their definition, in the model file, and for files without heads."""

from dataclasses import asdict, replace

import numpy as np
import pytest

import mlci
from mlci.codes.admissions import Admissions
from mlci.config import CollapseConfig, DeepConfig, DistilConfig, EncoderConfig, PosteriorConfig
from mlci.index._deepsets import BLOCK, DeepSetsScorer
from mlci.index._reading import Reading
from mlci.index._slabs import ROWS
from mlci.index.estimator import MLCI
from mlci.index.model import load_model
from mlci.index.recalibrate import recalibrate
from mlci.tokens import Tokens, Vocabulary
from oracles import set_score
from toys import code_lists, random_state, toy_cohort

CODES = [["I5010", "I509", "E11"], ["I50", "I5010", "I5010"], ["ZZZ"], [], ["E1165", "I2", "I509"]]
VOCABULARY = Vocabulary.fit(Admissions.from_lists(CODES[:2], icd_version=10), depths=(3, 4, 8))
QUICK = DeepConfig(
    encoder=EncoderConfig(width=16),
    posterior=PosteriorConfig(members=2, epochs=2, learning_rate=0.01),
    collapse=CollapseConfig(method="sum"),
    distil=DistilConfig(epochs=2, learning_rate=0.01),
)


def with_heads(size: int, *, width: int = 16, outcomes: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights of an encoder with heads."""
    rng, state = np.random.default_rng(seed), random_state(size, width=width, seed=seed)
    shapes = {"weight": (outcomes, width), "bias": (outcomes,), "tokens": (size, outcomes)}
    heads = {f"heads.{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**state, **heads, "calibration": rng.normal(1, 0.1, (outcomes, 2))}


def log_odds_of(state, tokens) -> np.ndarray:
    """Return log-odds by the definition, in float64: outputs of the last layer plus a term for each token."""
    last = [
        {**state, "rho.4.weight": weight[None], "rho.4.bias": bias[None]}
        for weight, bias in zip(state["heads.weight"], state["heads.bias"])
    ]
    return np.array([set_score(each, tokens) for each in last]) + state["heads.tokens"][tokens].sum(axis=0, dtype=float)


def risk_of(state, tokens) -> np.ndarray:
    shift, slope = state["calibration"].T
    return 1 / (1 + np.exp(-shift - slope * log_odds_of(state, tokens)))


@pytest.fixture(scope="module")
def index() -> MLCI:
    return MLCI(config=QUICK, seed=3).fit(toy_cohort(900))


def test_log_odds_follow_the_definition_and_do_not_change_the_score():
    state, admissions = with_heads(len(VOCABULARY)), Admissions.from_lists(CODES, icd_version=10)
    scorer, plain = DeepSetsScorer(state, "mean+max", VOCABULARY), VOCABULARY.encode(admissions)
    scorer.check(2)
    bare = DeepSetsScorer(random_state(len(VOCABULARY)), "mean+max", VOCABULARY)
    expected = [log_odds_of(state, plain.ids[a:b]) for a, b in zip(plain.offsets, plain.offsets[1:])]
    for tokens in (plain, scorer.encode(admissions)):
        found = scorer.read(tokens)
        np.testing.assert_allclose(found.log_odds, expected, atol=1e-5)
        np.testing.assert_array_equal(found.score, bare.read(tokens).score)
    assert bare.read(plain).log_odds is None
    assert bare.risks(bare.read(plain)).shape == (5, 0)


def test_log_odds_depend_neither_on_order_nor_on_the_batch():
    rng = np.random.default_rng(1)
    lists = [rng.integers(1, 40, rng.integers(0, 9)) for _ in range(BLOCK * ROWS + 300)]
    ends = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    scorer = DeepSetsScorer(with_heads(40, width=128), "mean+max", Vocabulary((), ()))
    tokens = Tokens(np.concatenate(lists).astype(np.int32), ends)
    together = scorer.read(tokens).log_odds
    other = Tokens(np.concatenate([rng.permutation(each) for each in lists]).astype(np.int32), ends)
    np.testing.assert_array_equal(scorer.read(other).log_odds, together)
    for some in ([0], [BLOCK * ROWS], np.arange(70), rng.permutation(600)):
        np.testing.assert_array_equal(scorer.read(tokens.take(np.array(some))).log_odds, together[some])


def test_no_risk_is_0_or_1():
    scorer = DeepSetsScorer(with_heads(40), "mean+max", Vocabulary((), ()))
    risks = scorer.risks(Reading(np.zeros(3), np.array([[-1e300, 1e300], [0.0, 0.0], [40.0, -40.0]])))
    assert ((risks > 0) & (risks < 1)).all()


@pytest.mark.parametrize("name", ["heads.tokens", "heads.weight", "calibration", "heads.bias"])
def test_heads_that_do_not_fit_are_refused(name):
    state = with_heads(40)
    vocabulary = Vocabulary(tuple(f"A{number:02}" for number in range(38)), (10,) * 38)
    DeepSetsScorer(state, "mean+max", vocabulary).check(2)
    for changed in ({name: state[name][:1]}, {name: np.full_like(state[name], np.nan)}):
        with pytest.raises(ValueError, match=r"tensors|finite"):
            DeepSetsScorer({**state, **changed}, "mean+max", vocabulary).check(2)
    with pytest.raises(ValueError, match="tensors"):
        DeepSetsScorer({key: state[key] for key in state if key != name}, "mean+max", vocabulary).check(2)
    with pytest.raises(ValueError, match="tensors"):
        DeepSetsScorer(state, "mean+max", vocabulary).check(1)


def test_a_deep_index_keeps_its_risks_in_file_and_columns(index, tmp_path):
    index.save(tmp_path / "deep.safetensors")
    model, lists = load_model(tmp_path / "deep.safetensors"), code_lists(60, seed=9)
    table = mlci.load(tmp_path / "deep.safetensors").table(lists, icd_version=10)
    tokens = model.vocabulary.encode(Admissions.from_lists(lists, icd_version=10))
    expected = np.array([risk_of(model.state, tokens.ids[a:b]) for a, b in zip(tokens.offsets, tokens.offsets[1:])])
    found = table[[f"risk_{name}" for name in model.outcomes]].to_numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    by_curve = np.column_stack([model.curves[name](table["score"]) for name in model.outcomes])
    assert np.abs(found - by_curve).max() > 0.01  # from heads, not from curves over the score
    assert list(model.learned) == list(model.outcomes)
    for name, (low, high) in model.intervals(model.read(Admissions.from_lists(lists, icd_version=10))).items():
        assert table[f"risk_{name}"].between(low, high, inclusive="neither").all()


def test_a_file_without_heads_has_risks_by_the_curve_over_its_score(index, tmp_path):
    """Earlier versions of the recipe `deep` wrote such files."""
    bare = {name: array for name, array in index.model_.state.items() if not name.startswith(("heads.", "calibration"))}
    config = {name: part for name, part in index.model_.card["config"].items() if name != "heads"}
    earlier = replace(index.model_, state=bare, bands={}, card={**index.model_.card, "config": config})
    earlier.save(tmp_path / "earlier.safetensors")
    again, lists = mlci.load(tmp_path / "earlier.safetensors"), code_lists(60, seed=9)
    np.testing.assert_array_equal(again.score(lists, icd_version=10), index.score(lists, icd_version=10))
    for name, risk in again.risk(lists, icd_version=10).items():
        np.testing.assert_array_equal(risk, index.model_.curves[name](index.score(lists, icd_version=10)))
    assert again.explain(lists[0], icd_version=10).log_odds is None


def test_effect_on_log_odds_is_the_change_when_a_code_is_left_out(index):
    codes = ["A000", "I012", "A000", "J021"]
    found, model = index.explain(codes, icd_version=10), index.model_
    assert not found.additive
    variants = [codes, *(codes[:place] + codes[place + 1 :] for place in range(4)), []]
    log_odds = model.read(Admissions.from_lists(variants, icd_version=10)).log_odds
    for column, name in enumerate(model.outcomes):
        assert [effect.log_odds[name] for effect in found] == (log_odds[0] - log_odds[1:5])[:, column].tolist()
        assert (found.log_odds[name], found.base_log_odds[name]) == (log_odds[0, column], log_odds[5, column])
        shift, slope = found.calibration[name]
        assert found.risk_log_odds[name] == pytest.approx(shift + slope * found.log_odds[name])
        risk = index.risk([codes], icd_version=10)[name][0]
        assert np.log(risk / (1 - risk)) == pytest.approx(found.risk_log_odds[name])
    for part in ("do not add up", "log-odds"):
        assert part in found._repr_html_()


def test_risks_of_heads_are_recalibrated(index):
    """Scores and log-odds stay the same; mean risks move towards the observed rates."""
    cohort = toy_cohort(1500, seed=4)
    recalibrated = recalibrate(index.model_, cohort).model
    admissions = cohort.admissions()
    before, after = index.model_.read(admissions), recalibrated.read(admissions)
    np.testing.assert_array_equal(before.score, after.score)
    np.testing.assert_array_equal(before.log_odds, after.log_odds)
    for name, risk in recalibrated.risks(after).items():
        y = cohort.labels(name)[:, 0]
        assert abs(risk.mean() - np.nanmean(y)) <= abs(index.model_.risks(before)[name].mean() - np.nanmean(y))


def test_the_settings_of_heads_are_saved(index):
    assert asdict(QUICK)["heads"] == index.model_.card["config"]["heads"]
