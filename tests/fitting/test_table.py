"""The recipe `table` on a small synthetic hospital."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from threadpoolctl import threadpool_limits

from mlci.base.errors import InputError
from mlci.config import CurveConfig, PenaltyConfig, TableConfig, TableTokenConfig
from mlci.fitting import _penalties, table
from mlci.fitting._curves import Curves
from mlci.fitting._data import Split, folds_by_subject
from mlci.fitting._presence import Presence
from mlci.measures.discrimination import auroc
from mlci.tokens import Tokens
from toys import record_blas_threads

SIZE, NAMES = 60, ("mortality", "long_stay")
PARENTS = np.zeros(SIZE, int)


TRUE = np.random.default_rng(99).normal(size=(SIZE, 2)) @ [[1, 0.6], [0, 0.8]]


def hospital(seed: int, n: int) -> Split:
    """Return a split with two related outcomes; half of the deaths have no length of stay; two stays per patient."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.poisson(5, n))])
    ids = rng.integers(2, SIZE, offsets[-1]).astype(np.int32)
    presence = Presence.of(Tokens(ids, offsets), SIZE)
    outcomes = (rng.random((n, 2)) < expit(presence.times(TRUE) - [2, 0.5])).astype(np.float32)
    outcomes[(outcomes[:, 0] == 1) & (rng.random(n) < 0.5), 1] = np.nan
    return Split(Tokens(ids, offsets), outcomes, NAMES, SIZE, np.arange(n) // 2)


TRAIN, VALID = hospital(1, 1500), hospital(2, 600)


@pytest.fixture(scope="module")
def fitted():
    return table.fit(TRAIN, VALID, config=TableConfig(), seed=3, parents=PARENTS)


def log_odds(state: dict[str, np.ndarray], split: Split) -> np.ndarray:
    return Presence.of(split.tokens, SIZE).times(state["weights"]) + state["intercepts"]


def test_the_score_and_the_risks_discriminate_in_new_patients(fitted):
    state = fitted.state
    logits = log_odds(state, VALID)
    score = Curves(state["knots"], state["heights"])(logits)
    truth = Presence.of(VALID.tokens, SIZE).times(TRUE)
    for column in range(2):
        known = ~np.isnan(VALID.outcomes[:, column])
        best = auroc(truth[known, column], VALID.outcomes[known, column])
        assert auroc(logits[known, column], VALID.outcomes[known, column]) > best - 0.03
        assert auroc(score[known], VALID.outcomes[known, column]) > best - 0.1
    np.testing.assert_allclose([fitted.out_of_fold.mean(), fitted.out_of_fold.std()], [0, 1], atol=1e-9)


def test_risks_are_calibrated_out_of_fold_and_never_0_or_1(fitted):
    risk = expit(fitted.state["calibration"][:, 0] + fitted.state["calibration"][:, 1] * log_odds(fitted.state, VALID))
    assert 0 < risk.min() < risk.max() < 1
    assert abs(risk[:, 0].mean() - VALID.outcomes[:, 0].mean()) < 0.03


def test_the_same_seed_gives_the_same_result_and_an_interrupted_fit_continues(fitted, tmp_path):
    class Stop(Exception):
        pass

    def stop(event) -> None:
        if event.epoch == 3:
            raise Stop

    with pytest.raises(Stop):
        table.fit(TRAIN, VALID, config=TableConfig(), seed=3, parents=PARENTS, checkpoint=tmp_path / "c", on_event=stop)
    events = []
    again = table.fit(
        TRAIN, VALID, config=TableConfig(), seed=3, parents=PARENTS, checkpoint=tmp_path / "c", on_event=events.append
    )
    assert events[0].epoch == 4
    assert again.record == fitted.record
    for name, array in fitted.state.items():
        np.testing.assert_array_equal(again.state[name], array)
    with pytest.raises(InputError, match="other data, settings or seed"):
        table.fit(TRAIN, VALID, config=TableConfig(), seed=4, parents=PARENTS, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("steps", [1, 2])
def test_a_fit_interrupted_while_it_solves_the_weights_continues_after_the_last_step(
    fitted, tmp_path, monkeypatch, steps
):
    """The file then has more steps of one group of regressions than of the other, or as many."""
    monkeypatch.setattr(table, "SAVED", 0.0)
    options = {"config": TableConfig(), "seed": 3, "parents": PARENTS, "checkpoint": tmp_path / "c"}

    def stop(event) -> None:
        if event.unit == "step" and event.epoch == steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.fit(TRAIN, VALID, **options, on_event=stop)
    events, whole = [], []
    again = table.fit(TRAIN, VALID, **options, on_event=events.append)
    table.fit(TRAIN, VALID, **options | {"checkpoint": None}, on_event=whole.append)
    taken = [sum(event.unit == "step" for event in found) for found in (events, whole)]
    assert {event.step for event in events} == {"weights", "curves"}
    assert taken[0] <= taken[1] - steps
    assert whole[-1].eta == events[-1].eta == 0
    for name, array in fitted.state.items():
        np.testing.assert_array_equal(again.state[name], array)


def test_an_interrupted_fit_does_not_continue_in_other_folds(tmp_path):
    """Pairs of neighbours and pairs across the halves give folds of equal sizes."""

    def stop(event) -> None:
        raise KeyboardInterrupt

    other = replace(TRAIN, clusters=np.arange(len(TRAIN)) % (len(TRAIN) // 2))
    folds = [folds_by_subject(split, 5, seed=3) for split in (TRAIN, other)]
    assert (np.bincount(folds[0]) == np.bincount(folds[1])).all()
    assert (folds[0] != folds[1]).any()
    options = {"config": TableConfig(), "seed": 3, "parents": PARENTS, "checkpoint": tmp_path / "c"}
    with pytest.raises(KeyboardInterrupt):
        table.fit(TRAIN, VALID, **options, on_event=stop)
    with pytest.raises(InputError, match="other data, settings or seed"):
        table.fit(other, VALID, **options)


def test_penalties_are_the_best_tried_or_as_configured(fitted):
    record = fitted.record
    assert record.kept.unexplained == min(each.unexplained for each in record.tried)
    assert len({(each.common, each.own) for each in record.tried}) == len(record.tried) > 5
    given = table.fit(TRAIN, VALID, config=TableConfig(penalty=PenaltyConfig(0.1, 0.2)), seed=3, parents=PARENTS)
    assert (given.record.kept.common, given.record.kept.own) == (0.1, 0.2)
    assert record.kept.unexplained <= given.record.kept.unexplained
    shown = record.shown()
    assert [row[0] for row in shown.tables[0].rows] == list(NAMES)
    assert len(shown.tables[1].rows) == len(record.tried)


def test_firm_takes_the_least_specific_variance_within_a_standard_error(fitted):
    config = TableConfig(penalty=PenaltyConfig(folds=4, firm=True))
    record = table.fit(replace(TRAIN, clusters=np.arange(1500) % 4), VALID, config=config, seed=3).record
    best = min(record.tried, key=lambda each: each.unexplained)
    assert best.error > 0 == fitted.record.kept.error
    assert record.kept.own < best.own
    assert best.unexplained < record.kept.unexplained <= best.unexplained + best.error
    firmer = [each for each in record.tried if each.own < record.kept.own]
    assert firmer
    assert all(each.unexplained > best.unexplained + best.error for each in firmer)
    assert f"within one standard error, {best.error:.1%}, of the best" in record.shown().summary


def test_importance_moves_the_score_towards_an_outcome(fitted):
    config = TableConfig(penalty=PenaltyConfig(0.1, 0.2), curve=CurveConfig(importance={"mortality": 20.0}))
    moved = table.fit(TRAIN, VALID, config=config, seed=3, parents=PARENTS)
    plain = table.fit(TRAIN, VALID, config=replace(config, curve=CurveConfig()), seed=3, parents=PARENTS)
    found = [
        auroc(Curves(each.state["knots"], each.state["heights"])(log_odds(each.state, VALID)), VALID.outcomes[:, 0])
        for each in (moved, plain)
    ]
    assert found[0] > found[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: replace(s, outcomes=np.zeros_like(s.outcomes)), "mortality is 0 wherever it is known"),
        (lambda s: replace(s, outcomes=s.outcomes * np.nan), "never known"),
        (lambda s: replace(s, outcomes=s.outcomes + 1), "allowed is 0, 1 and null"),
        (lambda s: replace(s, subjects=np.zeros(len(s))), "one subject"),
        (lambda s: s.take(np.arange(0)), "no admissions"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InputError, match=message):
        table.fit(change(TRAIN), VALID, config=TableConfig(), seed=3, parents=PARENTS)


def test_importance_of_no_outcome_is_refused():
    with pytest.raises(InputError, match=r"curve\.importance: death is not an outcome"):
        table.fit(
            TRAIN, VALID, config=TableConfig(curve=CurveConfig(importance={"death": 2.0})), seed=3, parents=PARENTS
        )
    with pytest.raises(InputError, match="both, or neither"):
        PenaltyConfig(common=0.1)
    with pytest.raises(InputError, match="leave out one or the other"):
        PenaltyConfig(0.1, 0.2, firm=True)
    with pytest.raises(InputError, match="cannot be combined"):
        TableConfig(tokens=TableTokenConfig(primary=True), copies=True)


def test_copies_teach_what_a_category_means_alone():
    """Token 3 raises the risk and always comes with token 2, which is all that shortened lists keep of them."""
    rng = np.random.default_rng(4)
    first, second = rng.random(1500) < 0.5, rng.random(1500) < 0.8
    lists = [[2, 3] if a and b else [2] if a else [4] for a, b in zip(first, second)]
    outcomes = (rng.random((1500, 2)) < np.where(first & second, 0.5, 0.1)[:, None]).astype(np.float32)
    tokens = Tokens(np.concatenate(lists).astype(np.int32), np.cumsum([0, *map(len, lists)]))
    split, penalty = Split(tokens, outcomes, NAMES, 5), PenaltyConfig(0.1, 0.2)
    plain, copied = (
        table.fit(split, split, config=TableConfig(penalty=penalty, copies=copies), seed=3, parents=np.zeros(5, int))
        for copies in (False, True)
    )
    assert plain.state["weights"].shape == copied.state["weights"].shape == (5, 2)
    gained = copied.state["weights"] - plain.state["weights"]
    assert (gained[2] - gained[4] > 0.1).all()


def test_copies_do_not_make_further_codes_look_protective():
    """Every code raises the risk, although copies have the same outcomes with fewer codes."""
    rng = np.random.default_rng(5)
    many = rng.integers(1, 9, 1500)
    ids = np.concatenate([rng.choice(np.arange(2, 30), count, replace=False) for count in many]).astype(np.int32)
    outcomes = (rng.random((1500, 2)) < expit(0.15 * many - 2)[:, None]).astype(np.float32)
    split = Split(Tokens(ids, np.concatenate([[0], many.cumsum()])), outcomes, NAMES, 30)
    config = TableConfig(penalty=PenaltyConfig(0.001, 0.001), copies=True)
    weights = table.fit(split, split, config=config, seed=3, parents=np.zeros(30, int)).state["weights"]
    assert weights[2:].mean() > 0.08  # shrunk towards their mean, which is free


@pytest.mark.slow
def test_fit_and_score_never_import_torch(tmp_path):
    """In a separate process, with its own imports."""
    code = f"""
import sys
from mlci.cli import cli
cohort, model = {str(tmp_path / "c.parquet")!r}, {str(tmp_path / "m.safetensors")!r}
for words in (["cohort", "synthetic", "400", "-o", cohort],
              ["fit", cohort, "--recipe", "table", "-o", model, "--quiet"],
              ["score", model, cohort, "-o", {str(tmp_path / "s.csv")!r}]):
    cli(words, standalone_mode=False)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_solver_uses_one_blas_thread(monkeypatch):
    """Else the last digits would depend on the number of cores from 10,000 admissions on."""
    seen = record_blas_threads(monkeypatch, table, "choose_prior")
    with threadpool_limits(2, user_api="blas"):
        table.fit(hospital(4, 100), VALID, config=TableConfig(), seed=3, parents=PARENTS)
    assert set(seen) == {1}


@pytest.mark.parametrize("known", [(0, 1), (1, 0), (0, np.nan)], ids=["has it", "has it not", "knows it"])
def test_an_outcome_of_a_single_fold_is_refused(known):
    outcomes = TRAIN.outcomes.copy()
    outcomes[:, 0] = np.nan if np.isnan(known[1]) else known[0]
    outcomes[:2, 0] = (0, 1) if np.isnan(known[1]) else known[1]
    with pytest.raises(InputError, match=r"mortality: .* all those left have the same value"):
        table.fit(replace(TRAIN, outcomes=outcomes), VALID, config=TableConfig(), seed=3, parents=PARENTS)


def test_a_sample_that_misses_a_rare_outcome_is_replaced_by_all_admissions(monkeypatch):
    """Penalties are chosen on every k-th admission, none of which may have the outcome."""
    outcomes = TRAIN.outcomes.copy()
    outcomes[:, 0] = 0
    outcomes[1::150, 0] = 1
    monkeypatch.setattr(_penalties, "CHOSEN_ON", 500)
    found = table.fit(replace(TRAIN, outcomes=outcomes), VALID, config=TableConfig(), seed=3, parents=PARENTS)
    assert np.isfinite(found.out_of_fold).all()
