"""Every registered metric has labels, a function, and a resampler."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlci.cohort import Cohort
from mlci.measures import discrimination
from mlci.measures.design import Design
from mlci.measures.intervals import Reach, plain
from mlci.measures.registry import METRICS, Metric, Pair, Resampler
from mlci.measures.resample import bootstrap

RNG = np.random.default_rng(5)
SCORES = RNG.integers(0, 12, 400).astype(float)
Y = (RNG.random(400) < 0.1 + 0.05 * SCORES).astype(float)
Y[::50] = np.nan
PAIR = Pair(SCORES, Y, risk=np.clip(0.1 + 0.05 * SCORES, 0, 1))


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_has_labels_a_value_and_resamples_around_it(metric: Metric):
    assert metric.label
    assert metric.short
    assert metric.applies(PAIR)
    value, column = metric.value(PAIR), np.empty(0)
    if metric.resampler is not None:
        [drawn] = bootstrap([metric.resampler.make(PAIR)], np.arange(len(SCORES)), resamples=60, threads=1)
        column = drawn[:, metric.resampler.metrics.index(metric.drawn or metric.name)]
        assert drawn.shape == (60, len(metric.resampler.metrics))
        assert abs(np.mean(column) - value) < 3 * np.std(column) + 1e-9
    if metric.interval is not None:
        found = metric.interval(PAIR, value, column, Reach(PAIR.events))
        assert found.value == value
        assert found.low < found.high
        assert found.low <= value <= found.high


def test_metrics_that_do_not_apply_are_left_out():
    plain = Pair(SCORES + 0.5, Y)
    assert not [
        name
        for name in ("mi_plugin", "brier", "slope", "risk_auroc", "calibration_error")
        if METRICS[name].applies(plain)
    ]


def test_a_new_metric_reaches_evaluation_benchmark_and_report_by_its_entry_alone(monkeypatch):
    from mlci.benchmark.metrics import measure
    from mlci.judging.evaluate import evaluate
    from mlci.measures.registry import reported

    def gini(pair: Pair) -> float:
        return 2 * discrimination.auroc(pair.scores, pair.y) - 1

    def bounds(pair: Pair, value: float, drawn: np.ndarray, reach: Reach):
        return plain(value, drawn, reach)

    spread = Resampler(("gini",), lambda pair: lambda weights: np.full((len(weights(np.arange(3))), 1), 0.5))
    monkeypatch.setitem(
        METRICS,
        "gini",
        Metric("gini", "Gini", "Gini", gini, spread, bounds, benchmarked=True, reported=True, depends="order"),
    )
    table = evaluate({"points": SCORES}, {"died": Y}, resamples=20).set_index("metric")
    assert table.loc["gini", "value"] == pytest.approx(2 * table.loc["auroc", "value"] - 1)
    assert table.loc["gini", "low"] == table.loc["gini", "value"]  # the spread of a constant
    visits = pd.DataFrame({"visit_id": range(400), "codes": [["I10"]] * 400, "died": Y})
    cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"died": "died"})
    assert measure(SCORES, cohort)["gini"]["died"] == table.loc["gini", "value"]
    assert "gini" in reported()


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_subgroup_of_small_weights_has_the_figures_of_its_weights(metric: Metric):
    """Beside a subgroup of large weights, those of this one sum to less than 1."""
    weight = RNG.uniform(0.5, 2, len(Y))
    apart = Design.of(np.arange(len(Y) + 1), weights=np.append(weight, 1e9)).take(np.arange(len(Y)))
    assert apart.weight is not None
    assert apart.weight.sum() < 1
    own, among = (replace(PAIR, patients=design) for design in (Design.of(np.arange(len(Y)), weights=weight), apart))
    assert metric.applies(own) == metric.applies(among)
    if metric.applies(own):
        assert metric.of(among) == pytest.approx(metric.of(own), rel=1e-6)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_class_of_weight_0_does_not_occur(metric: Metric):
    """Figures that need both classes are empty, as they are for the admissions that count."""
    weight = np.where(Y == 1, 0.0, RNG.uniform(0.5, 2, len(Y)))
    pair = replace(PAIR, patients=Design.of(np.arange(len(Y)), weights=weight))
    rows = weight > 0
    assert PAIR.risk is not None
    counted = Pair(
        SCORES[rows], Y[rows], PAIR.risk[rows], patients=Design.of(np.arange(rows.sum()), weights=weight[rows])
    )
    if metric.applies(pair):
        assert metric.of(pair) == pytest.approx(metric.of(counted), nan_ok=True)
        assert np.isnan(metric.of(pair)) == (
            bool(metric.depends) or metric.name in ("risk_auroc", "slope", "intercept")
        )
