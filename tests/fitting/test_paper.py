import contextlib
import json
import threading
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from mlci.base.errors import InputError
from mlci.config import (
    EncoderConfig,
    ObjectiveConfig,
    OptimiserConfig,
    PaperConfig,
    SelectionConfig,
    WeightConfig,
)
from mlci.fitting import Split, encoders, paper
from mlci.fitting._adamw import AdamW
from mlci.fitting._engines.single import fastest_engine
from mlci.fitting._loop import Schedule
from mlci.fitting._objectives import LARGE, Alignments
from mlci.fitting._result import Fit
from mlci.fitting.paper import fit
from mlci.tokens import Tokens
from small_fits import SMALL_PAPER

SIZE = 40
NAMES = ("mortality", "long_stay", "icu_transfer")


def hospital(seed: int, n: int = 700) -> Split:
    """Return admissions whose outcomes depend on a severity, the mean of their codes' weights."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(6, n)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = rng.integers(2, SIZE, offsets[-1]).astype(np.int32)
    weight = np.random.default_rng(99).normal(size=SIZE)
    severity = np.array([weight[ids[a:b]].mean() if b > a else 0 for a, b in pairwise(offsets)])
    noise = rng.normal(scale=0.2, size=(n, len(NAMES)))
    outcomes = (severity[:, None] + noise > [0.6, 0.2, 0]).astype(np.float64)
    outcomes[rng.random(outcomes.shape) < 0.03] = np.nan
    return Split(Tokens(ids, offsets), outcomes.astype(np.float32), NAMES, SIZE)


TRAIN, VALID = hospital(1, 400), hospital(2, 300)


def run(
    config: PaperConfig = SMALL_PAPER, *, train=TRAIN, valid=VALID, outcomes=NAMES, seed=5, threads=1, **options
) -> Fit:
    if outcomes != NAMES:
        train, valid = (replace(split, names=outcomes) for split in (train, valid))
    return fit(train, valid, config=config, seed=seed, threads=threads, **options)


def scores(result: Fit, data: Split, config: PaperConfig = SMALL_PAPER) -> np.ndarray:
    return encoders.score(config.encoder, result.state, data.tokens)


def same(one: Fit, two: Fit) -> None:
    for name, array in one.state.items():
        assert array.tobytes() == two.state[name].tobytes(), name
    assert replace(one, state={}) == replace(two, state={})


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return run()


def test_the_score_recovers_severity(fitted):
    test = hospital(3, 2000)
    score = scores(fitted, test)
    for name, outcome in zip(NAMES, test.outcomes.T):
        known = ~np.isnan(outcome)
        assert np.corrcoef(score[known], outcome[known])[0, 1] > 0.3, name


def test_training_admissions_of_a_small_hospital_are_scored_out_of_fold(fitted, monkeypatch):
    train, seen = replace(TRAIN, subjects=np.arange(len(TRAIN)) // 2), []

    def fit_others(train: Split, valid: Split, **options) -> Fit:
        seen.append(set(train.subjects))
        return fitted

    monkeypatch.setattr(paper, "fit", fit_others)
    out_of_fold, valid_by_fold = paper.cross_fit(fitted, train, VALID, config=SMALL_PAPER, seed=5, device="cpu")
    assert out_of_fold == pytest.approx(scores(fitted, TRAIN), abs=1e-4)  # the same fit, so the same scale
    assert valid_by_fold == pytest.approx(np.tile(scores(fitted, VALID), (5, 1)), abs=1e-4)
    left_out = [set(train.subjects) - others for others in seen]
    assert sorted(subject for fold in left_out for subject in fold) == list(range(len(TRAIN) // 2))

    def refuse(*_, **__) -> Fit:
        raise InputError("mortality is never present.")

    monkeypatch.setattr(paper, "fit", refuse)
    assert paper.cross_fit(fitted, train, VALID, config=SMALL_PAPER, seed=5, device="cpu") is None


def test_a_few_deaths_in_validation_do_not_decide_the_orientation(fitted):
    """In a small hospital, the three deaths of the validation split happen to be the mildest admissions."""
    outcomes, mildest = VALID.outcomes.copy(), np.argsort(scores(fitted, VALID))[:3]
    outcomes[:, 0] = 0
    outcomes[mildest] = 1
    result = run(valid=replace(VALID, outcomes=outcomes))
    known = ~np.isnan(TRAIN.outcomes[:, 0])
    assert np.corrcoef(scores(result, VALID), outcomes[:, 0])[0, 1] < 0
    assert np.corrcoef(scores(result, TRAIN)[known], TRAIN.outcomes[known, 0])[0, 1] > 0.3


def test_a_split_supports_risk_curves_with_ten_of_each_class():
    assert VALID.supports_risk_curves
    assert not VALID.take(np.arange(99)).supports_risk_curves
    rare = np.zeros_like(VALID.outcomes)
    rare[:9] = 1
    assert not replace(VALID, outcomes=rare).supports_risk_curves


def test_the_record_is_complete(fitted):
    assert list(fitted.record.stage1) == list(NAMES)
    assert np.mean(list(fitted.weights.values())) == pytest.approx(1)
    strengths = {name: one.quality for name, one in fitted.record.stage1.items()}
    assert min(fitted.weights, key=fitted.weights.get) == max(strengths, key=strengths.get)  # pyright: ignore
    for each, epochs in [*((one, 2) for one in fitted.record.stage1.values()), (fitted.record.stage2, 3)]:
        assert len(each.history) == epochs
        assert each.quality == max(epoch.quality for epoch in each.history)
        assert each.quality == each.history[each.epoch - 1].quality
    # Stage 1 is selected by the anchor, Stage 2 by the weighted sum.
    stay, last = fitted.record.stage1["long_stay"], fitted.record.stage2
    assert stay.quality in [epoch.validation[0] for epoch in stay.history]
    weights = np.array(list(fitted.weights.values()))
    assert last.quality == pytest.approx(weights @ last.history[last.epoch - 1].validation)


def test_the_state_is_that_of_the_best_epoch():
    # With other admissions' outcomes there is nothing to learn, and the best epoch may be any.
    config = replace(SMALL_PAPER, optimiser=replace(SMALL_PAPER.optimiser, stage1_epochs=1, stage2_epochs=4))
    nothing = replace(TRAIN, outcomes=TRAIN.outcomes[::-1].copy())
    results = (run(config, train=nothing, seed=seed) for seed in range(20))
    result = next(one for one in results if one.record.stage2.epoch < 4)
    objective = Alignments(config.objective, [result.record.stage2.bandwidth], torch.ones(1, 3))
    rows = paper._validation_rows(VALID, config, 3)
    weights = torch.tensor([list(result.weights.values())], dtype=torch.float64)
    found, known = (torch.from_numpy(array[rows])[None] for array in (scores(result, VALID), VALID.outcomes))
    quality = float(objective.evaluate(weights, found, [known])[0])
    assert quality == pytest.approx(result.record.stage2.quality, rel=1e-9)


def test_larger_always_means_sicker():
    known = ~np.isnan(VALID.outcomes).any(1)
    seen = set()
    for seed in range(6):
        result = run(
            replace(SMALL_PAPER, optimiser=replace(SMALL_PAPER.optimiser, stage1_epochs=1, stage2_epochs=1)), seed=seed
        )
        assert np.corrcoef(scores(result, VALID)[known], VALID.outcomes[known, 0])[0, 1] > 0
        seen.add(result.record.orientation)
    assert seen == {1, -1}


def test_the_result_depends_on_the_seed_alone(fitted):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 the global state is not what a fit draws from
    before = torch.random.get_rng_state()
    same(fitted, run())
    assert torch.equal(before, torch.random.get_rng_state())
    assert not np.array_equal(fitted.state["rho.0.weight"], run(seed=6).state["rho.0.weight"])


def test_the_number_of_threads_does_not_matter(fitted):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for threads in (1, 2, None):
            same(fitted, run(threads=threads))
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", encoders.ENCODERS)
def test_no_step_uses_torchs_global_generator(name):
    """All threads share it, so parallel fits would not be reproducible."""
    model = encoders.build(EncoderConfig(name=name, width=16), SIZE)
    engine = fastest_engine(model, TRAIN, Schedule(300, 0.01), (1, 2))
    engine.set_objective(Alignments(SMALL_PAPER.objective, [1.0], torch.ones(1, 3)))
    before = torch.random.get_rng_state()
    engine.train_epoch(1)
    assert torch.equal(before, torch.random.get_rng_state())


class Stop(Exception):
    pass


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("stops", [(2,), (3, 4), (6, 7), (9,), tuple(range(1, 10))])
def test_an_interrupted_fit_equals_an_uninterrupted_one(fitted, tmp_path, stops, threads):
    path = tmp_path / "fit.checkpoint"
    done = []

    def tell(event):
        done.append((event.step, event.epoch))
        if len(done) in stops:
            raise Stop

    result = None
    while result is None:
        with contextlib.suppress(Stop):
            result = run(checkpoint=path, on_event=tell, threads=threads)
    same(fitted, result)
    plan = [(f"stage 1, {name}", epoch) for name in NAMES for epoch in (1, 2)]
    plan += [("stage 2", epoch) for epoch in (1, 2, 3)]
    assert sorted(done[:6]) == sorted(plan[:6])  # nothing twice, nothing left out
    assert done[6:] == plan[6:]
    assert threads > 1 or done == plan
    assert not [left for left in tmp_path.iterdir() if left != path]


def test_a_failing_fit_cancels_those_in_parallel(monkeypatch):
    """They stop soon, not when they are finished."""
    config = replace(SMALL_PAPER, optimiser=replace(SMALL_PAPER.optimiser, stage1_epochs=200))
    original, steps = AdamW.step, []

    def step(self, *args, **kwargs):
        steps.append(thread := threading.get_ident())
        if thread != steps[0] and steps.count(thread) == 3:  # the second of two
            raise Stop
        return original(self, *args, **kwargs)

    monkeypatch.setattr(AdamW, "step", step)
    with pytest.raises(Stop):
        run(config, threads=2)
    assert len(steps) < 200 * len(TRAIN) / SMALL_PAPER.optimiser.batch / 2


def test_a_finished_checkpoint_is_taken_as_it_is(fitted, tmp_path):
    path = tmp_path / "fit.checkpoint"
    run(checkpoint=path)
    events = []
    same(fitted, run(checkpoint=path, on_event=events.append))
    assert not events


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    path = tmp_path / "fit.checkpoint"
    run(checkpoint=path)
    flipped = VALID.outcomes.copy()
    flipped[0, 1] = 1 - np.nan_to_num(flipped[0, 1])
    for change in (
        {"seed": 6},
        {"config": replace(SMALL_PAPER, weights=WeightConfig(gamma=0.5))},
        {"valid": replace(VALID, outcomes=flipped)},
        {"train": TRAIN.take(np.arange(len(TRAIN))[::-1])},
        {"outcomes": ("mortality", "long", "icu")},
    ):
        with pytest.raises(InputError, match="other data, settings or seed"):
            run(**{"checkpoint": path, **change})
    for damage in (b"", b"no checkpoint at all", path.read_bytes()[:-100]):
        path.write_bytes(damage)
        with pytest.raises(InputError, match="is not the checkpoint of a fit"):
            run(checkpoint=path)


def test_events_report_progress(fitted):
    events = []
    run(on_event=events.append)
    assert [event.epochs for event in events] == [2] * 6 + [3] * 3
    assert events[-1].eta == 0
    assert all(event.eta > 0 for event in events[:-1])
    first = fitted.record.stage1["mortality"].history
    assert [event.figures["validation"] for event in events[:2]] == [epoch.quality for epoch in first]
    assert [event.figures["mortality"] for event in events[:2]] == pytest.approx([e.objective[0] for e in first])
    json.dumps([asdict(event) for event in events])


def test_cross_entropy_needs_no_anchor():
    config = replace(SMALL_PAPER, objective=ObjectiveConfig(kind="bce"), selection=SelectionConfig(stage1="own"))
    result = run(config, outcomes=("a", "b", "c"))
    assert result.record.orientation == 1
    assert result.record.stage2.bandwidth is None
    assert all(0 < -one.quality < 0.69 for one in result.record.stage1.values())
    assert np.corrcoef(scores(result, VALID), np.nan_to_num(VALID.outcomes[:, 1]))[0, 1] > 0.3


@pytest.mark.parametrize("kernel", ["multi-rbf", "energy"])
@pytest.mark.parametrize("validity", ["intersection", "outcome"])
def test_other_kernels_and_masks_train_as_well(kernel, validity):
    config = replace(SMALL_PAPER, objective=ObjectiveConfig(kernel=kernel, validity=validity))
    result = run(config)
    assert (result.record.stage2.bandwidth is None) == (kernel == "energy")
    assert result.record.stage2.history[-1].validation[0] > 0.1


@pytest.mark.parametrize("kernel", ["rbf", "energy"])
def test_the_whole_training_split_can_be_one_batch(kernel):
    """Above `LARGE` no Gram matrix is made; one step per epoch still learns."""
    train = hospital(4, LARGE + 500)
    options = OptimiserConfig(stage1_epochs=1, stage2_epochs=15, batch=len(train), learning_rate=0.01)
    result = run(replace(SMALL_PAPER, optimiser=options, objective=ObjectiveConfig(kernel=kernel)), train=train)
    before, after = result.record.stage2.history[0], result.record.stage2.history[-1]
    assert after.quality > 2 * before.quality
    score = scores(result, VALID)
    for outcome in VALID.outcomes.T:
        known = ~np.isnan(outcome)
        assert np.corrcoef(score[known], outcome[known])[0, 1] > 0.3


def test_a_subsample_of_the_validation_split_can_select_epochs(fitted):
    result = run(replace(SMALL_PAPER, selection=SelectionConfig(subsample=150)))
    one, two = (each.record.stage1["mortality"].history[0] for each in (fitted, result))
    assert one.objective == two.objective
    assert one.validation != two.validation
    same(result, run(replace(SMALL_PAPER, selection=SelectionConfig(subsample=150))))


def changed(data: Split, column: int, values) -> Split:
    outcomes = data.outcomes.copy()
    outcomes[:, column] = values
    return replace(data, outcomes=outcomes)


def without(data: Split, column: int, value: int, gone: int) -> Split:
    """Return outcomes of which one is missing where another has a certain value."""
    outcomes = data.outcomes.copy()
    outcomes[data.outcomes[:, column] == value, gone] = np.nan
    return replace(data, outcomes=outcomes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train": TRAIN.take(np.arange(0))}, "training split has no admissions"),
        ({"valid": VALID.take(np.arange(0))}, "validation split has no admissions"),
        ({"train": changed(TRAIN, 1, 1.0)}, "Outcome long_stay is 1 wherever it is known in the training split"),
        ({"train": changed(TRAIN, 1, np.nan)}, "Outcome long_stay is never known in the training split"),
        ({"train": changed(TRAIN, 1, 0.5)}, "value 0.5; allowed is 0, 1 and null"),
        ({"valid": changed(VALID, 0, 0.0)}, "anchor mortality is never 1 in the validation split"),
        ({"outcomes": ("a", "b", "c")}, "anchor 'mortality' is not among the outcomes a, b, c"),
        ({"train": without(TRAIN, 0, 1, 2)}, "mortality loses every admission where it is 1 .* icu_transfer is then"),
        ({"valid": without(VALID, 0, 1, 2)}, "mortality loses every admission where it is 1 in the validation"),
        ({"checkpoint": "folder"}, "is a folder"),
    ],
)
def test_impossible_settings_are_reported_before_training(tmp_path, monkeypatch, change, words):
    monkeypatch.setattr(encoders, "build", lambda *_: pytest.fail("the work began"))
    if "checkpoint" in change:
        change = {"checkpoint": tmp_path}
    with pytest.raises(InputError, match=words):
        run(**change)


def test_an_outcome_of_one_class_can_be_omitted(fitted):
    names = (*NAMES, "never")
    one, two = (
        replace(split, outcomes=np.column_stack([split.outcomes, column]).astype(np.float32))
        for split, column in ((TRAIN, np.zeros(len(TRAIN))), (VALID, np.full(len(VALID), np.nan)))
    )
    result = run(replace(SMALL_PAPER, weights=WeightConfig(inactive="omit")), train=one, valid=two, outcomes=names)
    assert result.weights == {**fitted.weights, "never": 0}
    assert result.state["rho.4.weight"].tobytes() == fitted.state["rho.4.weight"].tobytes()


def test_per_outcome_masks_keep_deaths_that_lack_another_outcome():
    config = replace(SMALL_PAPER, objective=ObjectiveConfig(validity="outcome"))
    result = run(config, train=without(TRAIN, 0, 1, 2))
    assert result.record.stage2.quality > 0


def test_divergence_is_reported():
    config = replace(SMALL_PAPER, optimiser=replace(SMALL_PAPER.optimiser, learning_rate=1e30))
    with pytest.raises(InputError, match=r"lower optimiser\.learning_rate"):
        run(config)


def test_the_first_steps_equal_plain_adamw_on_the_definition():
    """The first two batches of a fit, repeated with padding, full Gram matrices and explicit Adam."""
    import oracles

    config = replace(SMALL_PAPER, optimiser=OptimiserConfig(batch=350, stage1_epochs=1, stage2_epochs=1))
    captured = []
    original = AdamW.step

    def flat(optimiser: AdamW) -> torch.Tensor:
        return torch.cat([weight.detach().flatten() for weight in optimiser.weights])

    def step(self, *args, **kwargs):
        before = flat(self)
        original(self, *args, **kwargs)
        captured.append((before, flat(self)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AdamW, "step", step)
        result = run(config)
    sigma = result.record.stage1["mortality"].bandwidth
    assert sigma is not None
    order = np.random.default_rng(np.random.SeedSequence((5, 0, 1))).permutation(len(TRAIN))
    model = encoders.build(config.encoder, SIZE).double()
    first = [torch.zeros_like(p) for p in model.parameters()]
    second = [torch.zeros_like(p) for p in model.parameters()]
    for number in (1, 2):
        before, after = (
            [
                part.view_as(p)
                for part, p in zip(whole.split([p.numel() for p in model.parameters()]), model.parameters())
            ]
            for whole in captured[number - 1]
        )
        for p, value in zip(model.parameters(), before):
            p.data.copy_(value)
        part = TRAIN.take(order[350 * (number - 1) : 350 * number])
        known = ~np.isnan(part.outcomes).any(1)
        sets = [ids.tolist() for ids in np.split(part.tokens.ids, part.tokens.offsets[1:-1])]
        score = oracles.padded_deepsets(model, [one for one, keep in zip(sets, known) if keep])
        y = torch.from_numpy(part.outcomes[known, 0])
        loss = -oracles.gram_nhsic(score, y, lambda a, b: torch.exp(-((a - b) ** 2) / (2 * sigma**2)), floor=1e-4)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        for i, (p, grad) in enumerate(zip(before[:-1], grads)):  # the last bias only shifts scores: no gradient
            first[i] = 0.9 * first[i] + 0.1 * grad
            second[i] = 0.999 * second[i] + 0.001 * grad**2
            update = first[i] / (1 - 0.9**number) / ((second[i] / (1 - 0.999**number)).sqrt() + 1e-8)
            # Adam normalises gradients, so the smallest are dominated by rounding and left out.
            clear = (grad.abs() > 1e-3 * grad.abs().max()) & (first[i].abs() > 1e-3 * first[i].abs().max())
            assert clear.double().mean() > 0.3
            moved = (after[i] - p).double()
            torch.testing.assert_close(moved[clear], -1e-3 * update[clear], rtol=0.02, atol=2e-6)
