import gc
import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from mlci.base.errors import InputError
from mlci.config import BandwidthConfig, EncoderConfig, ObjectiveConfig, OptimiserConfig, PaperConfig, SelectionConfig
from mlci.fitting import Split
from mlci.fitting._engines import stacked, stacked_adamw, stacked_models
from mlci.fitting._engines.layout import EpochSteps, Resident, with_tokens_dropped
from mlci.fitting._engines.perceptron import Perceptron
from mlci.fitting._engines.single import Autograd, Single, autograd_engine
from mlci.fitting._loop import Schedule, new_encoder
from mlci.fitting._objectives import Alignments, MeanLosses, entropy, squares
from mlci.fitting._result import Fit
from mlci.fitting.encoders import mlp, predict
from mlci.fitting.paper import fit, fit_seeds
from mlci.index.estimator import MLCI
from mlci.tokens import Tokens
from small_fits import random_split
from toys import toy_cohort

OBJECTIVES = {
    "rbf": ObjectiveConfig(),
    "multi-rbf": ObjectiveConfig(kernel="multi-rbf"),
    "bce": ObjectiveConfig(kind="bce"),
    "energy": ObjectiveConfig(kernel="energy", validity="outcome"),
}


def ablation(model: str, objective: str) -> PaperConfig:
    """Return the config of an encoder (by its pooling or its name) and an objective."""
    options = {"name": model} if model == "set_transformer" else {"pooling": model}
    return PaperConfig(
        encoder=EncoderConfig(width=16, **options),
        objective=OBJECTIVES[objective],
        optimiser=OptimiserConfig(batch=64, stage1_epochs=2, stage2_epochs=2),
        selection=SelectionConfig(stage1="own" if objective == "bce" else "anchor"),
    )


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        *(("mean+max", objective) for objective in OBJECTIVES),
        *(("mean", "bce"), ("sum", "rbf"), ("attention", "multi-rbf"), ("gated", "bce"), ("gated+max", "energy")),
        ("set_transformer", "rbf"),
        pytest.param("set_transformer", "bce", marks=pytest.mark.slow),
    ],
)
def test_stacked_fits_equal_single_fits(model, objective, float64):
    """Compared in float64, so that rounding hardly matters."""
    train, valid, config, seeds = random_split(140, 1), random_split(60, 2), ablation(model, objective), (11, 101)
    if model == "set_transformer":
        # Equal admissions may get scores that differ by rounding, which counts in a median of nonzero differences.
        config = replace(config, bandwidth=BandwidthConfig(floor=1.5))
    together = fit_seeds(train, valid, config=config, seeds=seeds, stack=True)
    for one, seed in zip(together, seeds, strict=True):
        other = fit(train, valid, config=config, seed=seed)
        assert one.record.stage2.bandwidth == (
            other.record.stage2.bandwidth and pytest.approx(other.record.stage2.bandwidth, rel=1e-9)
        )
        assert one.record.orientation == other.record.orientation
        assert one.weights == pytest.approx(other.weights, rel=1e-6)
        kept = [[each.epoch for each in fit.record.stage1.values()] for fit in (one, other)]
        assert kept[0] == kept[1]
        for name, tensor in other.state.items():
            np.testing.assert_allclose(one.state[name], tensor, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("model", ["mean+max", "set_transformer"])
def test_admissions_may_all_be_without_codes_and_cross_entropy_needs_no_anchor(model, float64):
    train, valid = random_split(100, 1), random_split(90, 2)
    train = replace(train, tokens=Tokens(np.empty(0, np.int32), np.zeros(101, np.int64)))
    train, valid = (replace(split, names=("a", "b", "c")) for split in (train, valid))
    config = ablation(model, "bce")
    one = fit(train, valid, config=config, seed=11, stack=True)
    for name, tensor in fit(train, valid, config=config, seed=11).state.items():
        np.testing.assert_allclose(one.state[name], tensor, rtol=1e-6, atol=1e-8, err_msg=name)


SHORT = PaperConfig(
    encoder=EncoderConfig(width=16), optimiser=OptimiserConfig(batch=64, stage1_epochs=2, stage2_epochs=2)
)


def many(config: PaperConfig = SHORT, seeds=(11, 101), **options) -> list[Fit]:
    return fit_seeds(random_split(300, 1), random_split(120, 2), config=config, seeds=seeds, stack=True, **options)


def same(one: Fit, two: Fit) -> None:
    for name, array in one.state.items():
        assert array.tobytes() == two.state[name].tobytes(), name
    assert replace(one, state={}) == replace(two, state={})


def test_results_do_not_depend_on_how_many_steps_are_laid_out_at_once(monkeypatch, float64):
    whole = many()
    monkeypatch.setattr(stacked, "AHEAD", 12)  # two for each of the six fits
    monkeypatch.setattr(stacked_models, "SCORED", 300)
    for one, other in zip(whole, many()):
        for name, tensor in other.state.items():
            np.testing.assert_allclose(one.state[name], tensor, rtol=1e-6, atol=1e-8, err_msg=name)


class Stop(Exception):
    pass


def test_interrupted_stacked_fits_continue(monkeypatch, tmp_path):
    monkeypatch.setattr(stacked.Stacked, "checkpoint_interval", 0)
    events = []

    def tell(event):
        events.append((event.step, event.epoch))
        if len(events) < 4:
            raise Stop

    for _ in range(3):
        with pytest.raises(Stop):
            many(checkpoint=tmp_path / "fit.checkpoint", on_event=tell)
    for _ in range(2):  # the second time everything is finished
        for one, other in zip(many(checkpoint=tmp_path / "fit.checkpoint", on_event=tell), many()):
            same(one, other)
    assert events == [("stage 1", 1), ("stage 1", 2), ("stage 2", 1), ("stage 2", 2)]
    with pytest.raises(InputError, match="other data, settings or seed"):
        many(checkpoint=tmp_path / "fit.checkpoint", seeds=(11,))


def test_an_index_is_fitted_by_stacked_models_where_that_is_faster(monkeypatch, tmp_path):
    """That is on a GPU. The same code on the CPU gives the index that is fitted one by one, up to rounding."""
    cohort, score = toy_cohort(400), []
    for kinds in ((), ("cpu",)):
        monkeypatch.setattr(stacked, "STACKED_DEVICES", kinds)
        events = []
        index = MLCI(config=SHORT, outcomes=["mortality", "long_stay"])
        score.append(index.fit(cohort, checkpoint=tmp_path / "fit", on_event=events.append).score(cohort))
        assert len(events) == (4 if kinds else 6)  # the two fits of Stage 1 at once, or one after the other
        (tmp_path / "fit").unlink()
    # A shift of all scores changes nothing, so rounding alone moves the last bias.
    np.testing.assert_allclose(*(each - each.mean() for each in score), atol=1e-4)


def test_fits_that_cannot_be_stacked_are_refused():
    large = replace(SHORT, optimiser=replace(SHORT.optimiser, batch=5000))
    other = replace(SHORT, encoder=EncoderConfig(name="bag_mlp"))
    for config in (large, other):
        with pytest.raises(InputError, match="Only deepsets that average or sum codes"):
            many(config)


def test_stacked_divergence_is_reported():
    with pytest.raises(InputError, match="no longer finite after epoch 1; lower"):
        many(replace(SHORT, optimiser=replace(SHORT.optimiser, learning_rate=1e30)))


def test_too_little_memory_is_reported_in_one_sentence(monkeypatch):
    def run(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. TriedPrior to allocate 20.00 GiB.")

    monkeypatch.setattr(stacked.Steps, "run", run)
    with pytest.raises(InputError, match="GPU's memory is too small for 6 fits at once"):
        many()


def test_a_layout_holds_every_token_of_every_fit_once():
    data = random_split(50, 3)
    rng = torch.Generator().manual_seed(4)
    orders = torch.stack([torch.randperm(50, generator=rng) for _ in range(2)])
    layout = EpochSteps.of(Resident.of(data, torch.device("cpu")), orders, 16, 40, lambda outcomes: (outcomes,))
    steps, fits = layout.tokens.shape[:2]
    for step in range(steps):
        for fit_number in range(fits):
            for place in range(16):
                bag = fit_number * 16 + place
                first, last = layout.offsets[step, bag : bag + 2].tolist()
                rows = layout.where[step, first:last]
                found = (layout.tokens[step].flatten()[rows] - fit_number * 40).tolist()
                position = step * 16 + place
                expected = []
                if position < 50:
                    admission = int(orders[fit_number, position])
                    expected = data.tokens.ids[data.tokens.offsets[admission] : data.tokens.offsets[admission + 1]]
                assert found == list(expected)


CPU, SMALL = torch.device("cpu"), EncoderConfig(width=16)
TRAIN, VALID = random_split(320, 1), random_split(90, 2)


def both_ways(split: Split, rows: list[np.ndarray], loss=entropy, dropout: float = 0.0, steps: int = 1) -> list[list]:
    """Return weights, and losses and scores after each epoch, trained one by one and at once."""
    schedule = Schedule(64, 0.01, 0.01, cycle=3, steps=steps, token_dropout=0.2)
    seeds, outputs = [(7, number) for number in range(len(rows))], split.outcomes.shape[1]

    def models() -> list:
        return [new_encoder(SMALL, 40, seed, CPU, spread=0.3, outputs=outputs, dropout=dropout) for seed in seeds]

    def trained(engine, many: int) -> tuple:
        engine.set_objective(MeanLosses(loss, torch.ones(many, outputs)))
        results = [(engine.train_epoch(number), engine.predict(VALID)) for number in (1, 2, 3)]
        return engine.state(), [torch.stack(each, 1) for each in zip(*results)]

    alone = [
        trained(autograd_engine(model, split, schedule, seed, rows=own), 1)
        for model, seed, own in zip(models(), seeds, rows)
    ]
    state, results = trained(stacked.Stacked(models(), split, schedule, seeds, rows=rows), len(rows))
    together = [
        ({name: weight[[model]] for name, weight in state.items()}, [each[[model]] for each in results])
        for model in range(len(rows))
    ]
    return [alone, together]


def alike(alone: list, together: list) -> None:
    for (one, results), (other, other_results) in zip(alone, together, strict=True):
        for name, weight in one.items():
            np.testing.assert_allclose(other[name], weight, rtol=1e-6, atol=1e-8, err_msg=name)
        for mine, theirs in zip(results, other_results):
            np.testing.assert_allclose(theirs, mine, rtol=1e-6, atol=1e-8)


def test_encoders_trained_at_once_equal_those_trained_one_by_one(float64):
    """With different numbers of admissions, so of steps, and for the last one of admissions in a batch."""
    alike(*both_ways(TRAIN, [np.arange(320), np.arange(2, 250), np.arange(0, 320, 2), np.arange(100)], steps=2))


def test_a_single_stacked_encoder_with_dropout_equals_one_trained_alone(float64):
    """With full batches, the dropout masks are the same."""
    wanted = np.random.default_rng(1).normal(size=(320, 1)).astype(np.float32)
    alike(*both_ways(replace(TRAIN, outcomes=wanted, names=("score",)), [np.arange(320)], squares, dropout=0.4))


def test_dropout_applies_in_training_alone(float64):
    models = [new_encoder(SMALL, 40, (1, number), CPU, spread=0.3, outputs=3, dropout=0.4) for number in range(2)]
    stack, data = stacked_models.build(models, 6), Resident.of(VALID, CPU)
    layout = EpochSteps.of(data, torch.arange(90).repeat(2, 1), 90, 40, lambda outcomes: (outcomes,))
    expected = np.stack([predict(model, VALID.tokens).numpy() for model in models])
    assert expected.shape == (2, 90, 3)
    np.testing.assert_allclose(stack.predict(data), expected, atol=1e-12)
    torch.manual_seed(1)
    first, second = (stack.scores(*(part[0] for part in layout.parts[:3])).detach().numpy() for _ in range(2))
    for other in (second, expected):
        assert (first != other).mean() > 0.9  # except where both masks are the same


@pytest.mark.parametrize("cycle", [3, None])
def test_stacked_steps_equal_torchs(cycle, float64):
    """All steps of two models, one of which has a step less in each epoch; each epoch in two runs."""
    schedule, counts, rng = Schedule(64, 0.01, weight_decay=0.3, cycle=cycle), (4, 3), torch.Generator().manual_seed(1)
    start, gradients = torch.randn(2, 3, 5, generator=rng), torch.randn(3, 4, 2, 3, 5, generator=rng)
    weight = start.clone().requires_grad_()
    optimiser = stacked_adamw.StackedAdamW({"weight": weight}, partial(stacked_adamw.stacked_rates, schedule, counts))
    for some in gradients.flatten(0, 1).split(2):
        optimiser.begin_run(2)
        for gradient in some:
            weight.grad += gradient
            optimiser.step()
        optimiser.end_run(2)
    for model, count in enumerate(counts):
        other = start[model].clone()
        adam = torch.optim.AdamW([other], lr=0.01, weight_decay=0.3)
        rate = torch.optim.lr_scheduler.OneCycleLR(adam, 0.01, total_steps=3 * count) if cycle else None
        for other.grad in gradients[:, :count, model].flatten(0, 1):
            adam.step()
            if rate:
                rate.step()
        np.testing.assert_allclose(weight[model].detach(), other, rtol=1e-12)


def test_token_dropout_keeps_the_order_and_the_outcomes():
    data, rows = Resident.of(VALID, CPU), torch.tensor([5, 2, 2])
    counts = VALID.tokens.counts[rows.numpy()]
    kept = torch.arange(int(counts.sum())) % 2 == 0
    part = with_tokens_dropped(data, rows, kept)
    expected = VALID.tokens.take(rows.numpy())
    assert part.ids.tolist() == expected.ids[kept.numpy()].tolist()
    assert len(part) == 3
    np.testing.assert_array_equal(part.outcomes[:3], VALID.outcomes[rows.numpy()])
    assert part.outcomes[3].isnan().all()


@pytest.mark.parametrize("kernel", ["energy", "rbf"])
def test_a_perceptron_equals_one_trained_step_by_step(kernel, float64):
    """Batches of unequal size are filled by an admission without outcomes."""
    rng = np.random.default_rng(3)
    numbers, outcomes = torch.from_numpy(rng.normal(size=(205, 3))), (rng.random((205, 2)) < 0.3).astype(np.float64)
    schedule, states = Schedule(100, 0.02, cycle=3, even=True), []
    for kind in ("recorded", "single"):
        torch.manual_seed(1)
        net = torch.nn.Sequential(*mlp(3, 8, 8), torch.nn.Linear(8, 1), torch.nn.Flatten(0))
        draws = np.random.default_rng(5)
        if kind == "recorded":
            engine = Perceptron(net, numbers, outcomes, schedule, draws)
        else:
            take = lambda rows, _: (numbers[rows],)  # noqa: E731
            engine = Single(Autograd(net), take, outcomes, schedule, (1,), rng=lambda _, draws=draws: draws)
        engine.set_objective(Alignments(ObjectiveConfig(kernel=kernel), [1.0], torch.ones(1, 2)))
        values = [engine.train_epoch(number) for number in (1, 2, 3)]
        states.append({**engine.state(), "values": torch.stack(values)})
    for name, found in states[0].items():
        np.testing.assert_allclose(found, states[1][name], atol=1e-9)


def test_no_garbage_is_collected_while_a_step_is_recorded():
    """An engine without references is freed at once, with its graph; in the block, garbage collection is off."""
    gc.collect()
    with stacked.uncollected():
        assert not gc.isenabled()
        engine = stacked.Stacked([new_encoder(SMALL, 40, (1, 1), CPU, outputs=3)], TRAIN, Schedule(64, 0.01), [(1, 1)])
        engine.set_objective(MeanLosses(entropy, torch.ones(1, 3)))
        engine.train_epoch(1)
        there = weakref.ref(engine.steps)
        del engine
        assert there() is None
    assert gc.isenabled()
