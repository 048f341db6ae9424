"""The recipe `deep` on small synthetic hospitals."""

import json
import signal
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pytest

import mlci
from forked import Fits
from mlci.base.errors import InputError
from mlci.codes.icd import title
from mlci.codes.outcome import outcome_codes
from mlci.codes.zeros import heading
from mlci.config import CollapseConfig, DeepConfig, EncoderConfig, PaperConfig, config_from
from mlci.fitting import Split, encoders
from mlci.fitting import deep as recipe
from mlci.fitting._engines import stacked
from mlci.fitting._result import Fit
from mlci.index.estimator import MLCI
from mlci.measures.alignment import distance_correlation
from small_fits import LEARNING, split_and_logits
from toys import code_lists, toy_cohort, toy_outcomes

NAMES = ("mortality", "long_stay")

# For what does not depend on how well the risks were learned.
QUICK = replace(
    LEARNING, posterior=replace(LEARNING.posterior, members=2, epochs=1), collapse=CollapseConfig(method="sum")
)

(TRAIN, _), (VALID, _) = split_and_logits(1, 1500), split_and_logits(2, 600)
FOLDS = recipe.folds_by_subject(TRAIN, 3, seed=5)


def run(config: DeepConfig = LEARNING, *, train: Split = TRAIN, seed: int = 5, **options) -> Fit:
    return recipe.fit(train, VALID, config=config, seed=seed, **options)


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return run()


def test_the_score_orders_admissions_by_both_outcomes(fitted):
    test, logits = split_and_logits(3, 2000)
    score = encoders.score(LEARNING.encoder, fitted.state, test.tokens)
    for outcome, own in zip(test.outcomes.T, logits.T):
        known = ~np.isnan(outcome)
        assert np.corrcoef(score[known], outcome[known])[0, 1] > 0.25
        assert distance_correlation(score, outcome) > 0.4 * distance_correlation(own, outcome)
    assert fitted.record.r2 > 0.8
    assert fitted.weights["mortality"] < 1 < fitted.weights["long_stay"]
    assert fitted.state["rho.4.weight"].shape == (1, 16)


@pytest.mark.slow
def test_an_interrupted_fit_gives_the_same_result(fitted, tmp_path):
    """Interrupted after each member in turn, and during distillation."""
    place = tmp_path / "checkpoint"
    for stop in ("member 2/3, epoch 1/", "member 3/3, epoch 3/", "distil, epoch 2/", "one encoder, epoch 1/"):

        def on_event(event, stop=stop):
            if stop in event.text:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(checkpoint=place, on_event=on_event)
    events = []
    again = run(checkpoint=place, on_event=events.append)
    assert [event.text.split(",")[0] for event in events] == ["distil"] * 6 + ["risks of the one encoder"] * 2
    assert events[-1].eta == 0
    assert all(array.tobytes() == again.state[name].tobytes() for name, array in fitted.state.items())
    assert replace(again, state={}) == replace(fitted, state={})
    with pytest.raises(InputError, match="other data, settings or seed"):
        run(checkpoint=place, seed=6)
    place.write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="not the checkpoint"):
        run(checkpoint=place)


@pytest.mark.slow
def test_members_trained_at_once_equal_those_trained_one_by_one(monkeypatch, tmp_path, float64):
    """As on a GPU, with folds of different size, and with a run that was interrupted."""
    config = replace(
        LEARNING,
        posterior=replace(LEARNING.posterior, epochs=2, dropout=0.0),
        collapse=CollapseConfig(method="sum"),
        distil=replace(LEARNING.distil, epochs=3, dropout=0.0),
    )
    facts = {"train": replace(TRAIN, subjects=np.arange(len(TRAIN)) ** 2 // 90_000)}

    def stop(event):
        if "member 2" in event.text:
            raise KeyboardInterrupt

    alone, events = run(config, **facts), []
    facts["checkpoint"] = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run(config, on_event=stop, **facts)
    monkeypatch.setattr(stacked, "STACKED_DEVICES", ("cpu",))
    for expected in (
        ["risks, members 2-3/3"] * 2 + ["distil"] * 3 + ["risks of the one encoder"] * 2,
        ["distil"] * 3 + ["risks of the one encoder"] * 2,
    ):  # the second time, the members are finished
        events.clear()
        together = run(config, on_event=events.append, **facts)
        assert [event.text.split(", epoch")[0] for event in events] == expected
        assert events[-1].eta == 0
        for name, array in alone.state.items():
            np.testing.assert_allclose(together.state[name], array, atol=1e-6, err_msg=name)
    assert together.record.r2 == pytest.approx(alone.record.r2, rel=1e-6)


@pytest.mark.parametrize("step", ["posterior", "distil"])
def test_divergence_is_reported_and_not_kept(step, tmp_path):
    short = replace(LEARNING.posterior, members=2, epochs=1)
    config = replace(LEARNING, posterior=short, collapse=CollapseConfig(method="sum"))
    config = replace(config, **{step: replace(getattr(config, step), epochs=1, learning_rate=1e30)})
    with pytest.raises(InputError, match=f"lower {step}.learning_rate"):
        run(config, checkpoint=tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint").exists() == (step == "distil")  # finished members are kept


@pytest.mark.slow
def test_an_encoder_started_from_a_member_learns_faster():
    context = recipe.FitContext(replace(LEARNING, distil=replace(LEARNING.distil, epochs=2, steps=64)), 5)
    members = [*recipe.train_members(context, TRAIN, [VALID], FOLDS, range(3))]
    assert "embedding.weight" in members[0].weights
    assert "rho.4.weight" not in members[0].weights
    collapsed = recipe.collapse_to_score(
        context, recipe.Posteriors(np.stack([member.logits for member in members]), FOLDS), TRAIN, VALID
    )
    from_member, from_random = (
        recipe.distil(context, TRAIN, VALID, collapsed, start)[1][-1] for start in (members[0].weights, {})
    )
    assert 1 - from_member.quality < 0.75 * (1 - from_random.quality)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(LEARNING, encoder=EncoderConfig("bag_mlp")), "distils into 'deepsets'"),
        (replace(LEARNING, collapse=CollapseConfig(importance={"death": 2})), "death is not an outcome"),
        (replace(LEARNING, collapse=CollapseConfig(importance={"mortality": 0})), "allowed is more than 0"),
    ],
)
def test_unfittable_data_are_reported_first(config, message):
    with pytest.raises(InputError, match=message):
        run(config)


def test_one_subject_alone_is_refused():
    with pytest.raises(InputError, match="of one subject"):
        recipe.fit(replace(TRAIN, subjects=np.zeros(len(TRAIN), np.int64)), VALID, config=LEARNING, seed=5)


def test_config_of_each_recipe():
    values = {"tokens": {"max_codes": 30}, "collapse": {"importance": {"mortality": 2.0}}}
    config = config_from(values, recipe="deep")
    assert (config.tokens.depths, config.tokens.max_codes) == ((3, 4, 8), 30)
    assert config_from(json.loads(json.dumps(asdict(config))), recipe="deep") == config
    with pytest.raises(InputError, match="collapse is not a known key"):
        config_from(values)
    with pytest.raises(InputError, match=r"posterior.members is 1|members is 1; allowed is at least 2"):
        config_from({"posterior": {"members": 1}}, recipe="deep")


def test_the_index_fits_saves_and_loads(tmp_path):
    codes = code_lists(900, seed=3)
    index = MLCI(recipe="deep", config=QUICK).fit(codes, toy_outcomes(codes), icd_version=10)
    assert index.model_.card["recipe"] == "deep"
    assert index.model_.vocabulary.depths == (3, 4, 8)
    index.save(tmp_path / "m.safetensors")
    again = mlci.load(tmp_path / "m.safetensors")
    assert again.get_params()["config"] == QUICK
    np.testing.assert_array_equal(again.score(codes, icd_version=10), index.score(codes, icd_version=10))
    with pytest.warns(UserWarning, match="in 1 of 3 admissions"):
        ancestors = index.score([["A0099"], ["A00"], ["Z99"]], icd_version=10)
    assert ancestors[0] != ancestors[2]  # an unknown code keeps its known category
    effects = again.explain(["A001", "B021"], icd_version=10)
    np.testing.assert_allclose(effects[0].effect, again.score([["A001", "B021"]]) - again.score([["B021"]]))
    with pytest.raises(InputError, match="recipe deep takes a DeepConfig"):
        MLCI(recipe="deep", config=PaperConfig()).fit(codes, toy_outcomes(codes))


def test_the_first_code_can_count_as_the_principal_diagnosis(tmp_path, mlci_cli):
    """Two admissions with the same codes, of which one begins with the decisive code."""
    codes = [["A001", "B021"], ["B021", "A001"]] * 300
    config = replace(QUICK, posterior=LEARNING.posterior, tokens=replace(QUICK.tokens, primary=True))
    outcomes = {name: [row % 2 for row in range(600)] for name in NAMES}
    index = MLCI(recipe="deep", config=config).fit(codes, outcomes, icd_version=10)
    index.save(tmp_path / "m.safetensors")
    score = mlci.load(tmp_path / "m.safetensors").score(codes[:2], icd_version=10)
    assert score[1] > score[0] + 1
    (tmp_path / "a.csv").write_text("admission_id,code,icd_version\n1,A001,10\n")
    assert "first code" in mlci_cli("score", "m.safetensors", "a.csv", "-o", "s.csv").stderr


def test_codes_that_reveal_the_outcome_can_be_ignored(tmp_path):
    known = "I469", "Z515"
    codes = [[*each, known[row % 2]] if row % 3 else each for row, each in enumerate(code_lists(600, seed=4))]
    config = replace(QUICK, tokens=replace(QUICK.tokens, without_outcome_codes=True))
    index = MLCI(recipe="deep", config=config).fit(codes, toy_outcomes(code_lists(600, seed=4)), icd_version=10)
    assert not {"I46", "I469", "Z51", "Z515"} & set(index.model_.vocabulary.tokens)
    index.save(tmp_path / "m.safetensors")
    index = mlci.load(tmp_path / "m.safetensors")
    both = [["A001", "I469", "B021"], ["A001", "B021"], ["I468"], []]
    score = index.score(both, icd_version=10)
    assert (score[0], score[2]) == (score[1], score[3])
    effect = index.explain(both[0], icd_version=10)[1]
    assert (effect.code, effect.known, effect.effect) == ("I469", False, 0)
    np.testing.assert_allclose(index.table(both, icd_version=10)["unknown_share"], [1 / 3, 0, 1, np.nan])


@pytest.mark.parametrize("code", outcome_codes(), ids=lambda code: f"{code.version}:{code.code}")
def test_the_list_of_outcome_codes_names_real_codes(code):
    named = title(code.code, code.version)
    assert named == code.title or (named is None and heading(pa.array([code.code]), code.version)[0])


CONFIG = """
[encoder]
width = 16
[posterior]
members = 3
epochs = 4
batch = 64
steps = 1
learning_rate = 0.01
[collapse]
epochs = 4
[distil]
epochs = 3
batch = 64
steps = 1
learning_rate = 0.01
"""


@pytest.mark.slow
def test_a_killed_fit_continues(mlci_cli, tmp_path):
    toy_cohort(1200).write(tmp_path / "cohort.parquet")
    (tmp_path / "quick.toml").write_text(CONFIG)
    words = ["fit", tmp_path / "cohort.parquet", "--recipe", "deep", "--config", tmp_path / "quick.toml", "-o"]
    log = mlci_cli(*words, tmp_path / "whole").stderr
    assert log.count("s left\n") == 3 * 4 + 3 + 2  # members, distillation, heads
    checkpoint = tmp_path / ".killed.checkpoint"
    with Fits() as fits:
        end = {"killed": 0.02, "after": checkpoint}
        assert fits.run(*words, tmp_path / "killed", "--quiet", **end) == signal.SIGALRM
        assert not (tmp_path / "killed").exists()
        assert fits.run(*words, tmp_path / "killed", "--quiet") == 0
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not checkpoint.exists()
