"""Evaluate scores against outcomes: a tidy table of metrics with confidence intervals.

Any numbers can be a score, from a model or from a hospital's own CSV file. Each score is evaluated for each outcome on
the admissions whose outcome is known, with intervals from a bootstrap over patients. Distance correlation (dCorr) and
nHSIC depend on a score's spacing as well as on its order, so the table also has rank-based metrics: AUROC, average
precision and dCorr of the ranks.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.base.shown import Shown
from mlci.base.threads import threads
from mlci.cohort import Cohort
from mlci.judging._columns import columns_of
from mlci.judging.groups import interactions, shown_groups
from mlci.measures import resample
from mlci.measures._arrays import as_outcomes, as_scores
from mlci.measures.alignment import Kernel, unit_bandwidth
from mlci.measures.design import Design, as_design
from mlci.measures.intervals import Interval, Reach, difference
from mlci.measures.registry import METRICS, Pair

HEADLINE = ("auroc", "risk_auroc", "deviance", "nagelkerke", "brier_skill", "dcorr", "mi")
NOTHING = np.full(1, np.nan)
AGES = {0: "under 18", 18: "18 to 44", 45: "45 to 64", 65: "65 to 74", 75: "75 to 84", 85: "85 and over"}


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """The result of `judge`.

    - `table`: model, outcome, metric, value, low, high, n and positives; with subgroups also by and group.
    - `differences`: model − versus for every metric of both, from paired resamples, with p-values (Student's t).
    - `interactions`: tests of whether calibration differs between subgroups (`mlci.judging.groups`), given risks.
    """

    table: pd.DataFrame
    differences: pd.DataFrame
    interactions: pd.DataFrame | None = None

    def means(self) -> pd.DataFrame:
        """Return the mean over outcomes of the metrics in `HEADLINE`, as a frame with one row per score.

        >>> found = judge({"a": [1, 2, 3, 4]}, {"x": [0, 1, 0, 1], "y": [0, 0, 1, 1]}, resamples=0)
        >>> found.means()["auroc"].to_dict()
        {'a': 0.875}
        """
        whole = self.table[self.table["by"] == ""] if "by" in self.table else self.table
        wide = whole.pivot_table(index="model", columns="metric", values="value", sort=False)
        return wide[[name for name in HEADLINE if name in wide]].rename_axis(index=None, columns=None)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows of a table with models and outcomes as rows and metrics as columns."""
        metrics = [name for name in METRICS if (self.table["metric"] == name).any()]
        keys = [name for name in ("by", "group", "model", "outcome") if name in self.table]
        rows = []
        for key, part in self.table.groupby(keys, sort=False):
            values = part.set_index("metric")["value"]
            rows.append([*map(str, key), *(f"{values[name]:.3f}" if name in values else "" for name in metrics)])
        return [*keys, *(METRICS[name].short or name for name in metrics)], rows

    def _repr_html_(self) -> str:
        """Return the table, and a small plot of AUROC with its intervals."""
        return super()._repr_html_() + _dots(self.table[self.table["metric"] == "auroc"])


def _dots(table: pd.DataFrame) -> str:
    """Return AUROC of each model and outcome as a dot on a line from 0.5 to 1, with its interval."""
    lines = []
    for place, row in enumerate(table.itertuples()):
        bounds = (row.low, row.value, row.high) if row.low == row.low else 3 * (row.value,)
        low, value, high = (180 + 800 * (min(max(x, 0.5), 1) - 0.5) for x in bounds)
        y = 18 + 20 * place
        name = escape(f"{row.model}, {row.outcome}")
        lines.append(
            f'<text x="170" y="{y + 4}" text-anchor="end" font-size="11">{name}</text>'
            f'<line x1="{low:.0f}" x2="{high:.0f}" y1="{y}" y2="{y}" stroke="#0072B2" stroke-width="2"/>'
            f'<circle cx="{value:.0f}" cy="{y}" r="4" fill="#0072B2"/>'
        )
    height = 40 + 20 * len(lines)
    ticks = f'<text x="170" y="{height - 4}" text-anchor="end" font-size="11">AUROC</text>' + "".join(
        f'<text x="{180 + 800 * (x - 0.5):.0f}" y="{height - 4}" font-size="11" text-anchor="middle">{x:.1f}</text>'
        for x in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    )
    drawn = f'<svg width="620" height="{height}" role="img" aria-label="AUROC">{"".join(lines)}{ticks}</svg>'
    return drawn if lines else ""


def evaluate(scores: Any, outcomes: Any, *, groups: Any = None, **options: Any) -> pd.DataFrame:
    """Evaluate every score against every outcome, with confidence intervals, as one table.

    Args:
        scores: a frame or mapping of columns, or an array.
        outcomes: the same, or a `Cohort`.
        groups: the patient of each admission, or a `Design`; by default the patients of the cohort.
        options: those of `judge`.

    Returns:
        A frame with the columns model, outcome, metric, value, low, high, n, positives.

    >>> table = evaluate({"points": [1, 2, 3, 4]}, {"mortality": [0, 1, 0, 1]}, resamples=0)
    >>> float(table.set_index("metric")["value"]["auroc"])
    0.75
    """
    return judge(scores, outcomes, groups=groups, **options).table


def judge(
    scores: Any,
    outcomes: Any,
    *,
    groups: Any = None,
    risks: Mapping[str, Mapping[str, Any]] | None = None,
    by: Mapping[str, Any] | None = None,
    sigma: float | None = None,
    kernel: Kernel = "rbf",
    metrics: Collection[str] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Evaluate every score against every outcome, with intervals and paired differences from the first score.

    Args:
        scores: a frame or mapping of columns, or an array.
        outcomes: the same, or a `Cohort`.
        groups: the patient of each admission, or a `Design` with clusters, weights and strata. The default is the
            cohort's patients, or independent admissions. With weights, metrics are those of the population, and metrics
            without a weighted definition (nearest-neighbour mutual information, bias-corrected dCorr and its test) are
            left out.
        risks: model -> outcome -> probability, for calibration.
        by: name -> category of each admission, for subgroups. Subgroups in which fewer than ten admissions have an
            outcome, or lack it, are merged for that outcome, together with the next smallest if necessary.
        sigma: the bandwidth of nHSIC in the units of the score; by default each score's own reference bandwidth.
        kernel: of nHSIC.
        metrics: names of the metrics to compute; by default all in the registry.
        resamples: number of bootstrap samples of patients; 0 gives no intervals.
        level: the confidence level.
        seed: of the resampling.

    Returns:
        Metrics with their intervals, by score, outcome and subgroup.

    >>> found = judge({"a": [1, 2, 3, 4], "b": [4, 2, 3, 1]}, {"mortality": [0, 1, 0, 1]}, resamples=0)
    >>> float(found.differences.set_index("metric")["value"]["auroc"])  # b minus a
    -0.75
    """
    if isinstance(outcomes, Cohort):
        groups = outcomes.column("subject_id") if groups is None else groups
        outcomes = dict(zip(outcomes.outcomes, outcomes.labels().T))
    models = _models(scores)
    n = len(next(iter(models.values()), ()))
    labels = {name: as_outcomes(column, n, name)[:, 0] for name, column in columns_of(outcomes, "outcome").items()}
    design = as_design(np.arange(n) if groups is None else groups)
    if len(design) != n:
        raise InputError(f"groups: has {len(design)} admissions, but the score has {n}; they must be equal.")
    risk_of = {
        (model, outcome): as_scores(risk, f"risk of {outcome}")
        for model, columns in (risks or {}).items()
        for outcome, risk in columns.items()
        if outcome in labels
    }
    width = (lambda scores: 1.0) if kernel == "energy" else unit_bandwidth  # the energy kernel has none
    widths = {name: sigma or width(column) for name, column in models.items()}
    options = {"resamples": resamples, "level": level, "seed": seed, "kernel": kernel, "wanted": metrics}
    whole = _judge(models, labels, risk_of, design, widths, **options)
    if not by:
        return whole
    tables = [whole.table.assign(by="", group="")]
    for name, column in by.items():
        if len(column) != n:
            raise InputError(f"by: {name} has {len(column)} admissions, but the score has {n}; they must be equal.")
        parts: dict[str, tuple[np.ndarray, list[str]]] = {}
        for outcome, y in labels.items():
            for group, inside in shown_groups(column, y):
                parts.setdefault(group, (inside, []))[1].append(outcome)
        for group, (rows, shown) in parts.items():
            part = _judge(
                {key: value[rows] for key, value in models.items()},
                {key: labels[key][rows] for key in shown},
                {key: value[rows] for key, value in risk_of.items()},
                design.take(rows),
                widths,
                **options,
            )
            tables.append(part.table.assign(by=name, group=group))
    tested = {model: {name: risk_of[model, name] for name in labels if (model, name) in risk_of} for model in models}
    tests = [
        interactions(known, labels, by, patients=design).assign(model=model) for model, known in tested.items() if known
    ]
    return Evaluation(pd.concat(tables, ignore_index=True), whole.differences, pd.concat(tests) if tests else None)


def _models(scores: Any) -> dict[str, np.ndarray]:
    """Return the columns of a frame, mapping or array of scores, after a check that they have equal length."""
    models = {name: as_scores(column, name) for name, column in columns_of(scores, "score").items()}
    sizes = {name: len(column) for name, column in models.items()}
    n = next(iter(sizes.values()), 0)
    for name, size in sizes.items():
        if size != n:
            raise InputError(f"{name}: has {size} admissions, but {next(iter(sizes))} has {n}; they must be equal.")
    return models


def _judge(models, labels, risks, design: Design, widths, *, resamples, level, seed, kernel, wanted) -> Evaluation:
    pairs = {
        (model, outcome): Pair(scores, y, risks.get((model, outcome)), widths[model], kernel, design)
        for model, scores in models.items()
        for outcome, y in labels.items()
    }
    asked = [metric for metric in METRICS.values() if wanted is None or metric.name in wanted]
    metrics = {key: [metric for metric in asked if metric.applies(pair)] for key, pair in pairs.items()}
    drawn = _drawn(pairs, metrics, design, resamples, seed) if resamples else {key: {} for key in pairs}

    def figures(key: tuple[str, str]) -> dict[str, Interval]:
        pair, found = pairs[key], {}
        for metric in metrics[key]:
            value = metric.of(pair)
            found[metric.name] = Interval(value, np.nan, np.nan)
            if resamples and metric.interval is not None and np.isfinite(value):
                draws = drawn[key].get(metric.drawn or metric.name, NOTHING)
                found[metric.name] = metric.interval(pair, value, draws, Reach(pair.events, level))
        return found

    with single_thread(), threads() as pool:
        values = dict(zip(pairs, pool.map(figures, pairs)))
    rows, apart = [], []
    first = next(iter(models))
    for (model, outcome), pair in pairs.items():
        for metric in metrics[model, outcome]:
            own, other = values[model, outcome][metric.name], values[first, outcome].get(metric.name)
            rows.append((model, outcome, metric.name, own.value, own.low, own.high, pair.n, int(np.nansum(pair.y))))
            if model != first and other is not None and metric.resampler is not None:
                draws, beside = (drawn[of, outcome].get(metric.drawn or metric.name, NOTHING) for of in (model, first))
                gap = difference(own.value - other.value, draws, beside, Reach(pair.events, level))
                apart.append((model, first, outcome, metric.name, gap.value, gap.low, gap.high, gap.p))
    return Evaluation(
        pd.DataFrame(rows, columns=["model", "outcome", "metric", "value", "low", "high", "n", "positives"]),
        pd.DataFrame(apart, columns=["model", "versus", "outcome", "metric", "value", "low", "high", "p"]),
    )


def _drawn(pairs, metrics, design: Design, resamples: int, seed: int) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Return every metric of every pair over the same bootstrap samples of patients."""
    asked: dict[tuple, list[tuple[str, str]]] = {}  # pairs that one statistic computes together, by resampler and score
    wanted: dict[tuple, dict[str, None]] = {}  # the metrics of these pairs that need resampling
    models = Counter((outcome, metric.name) for (_, outcome), found in metrics.items() for metric in found)
    for key in pairs:
        needed = (metric for metric in metrics[key] if not metric.by_influence or models[key[1], metric.name] > 1)
        for metric in needed:
            if metric.resampler:
                which = metric.resampler, key[0] if metric.resampler.together else key
                wanted.setdefault(which, {})[metric.drawn or metric.name] = None
                if key not in asked.setdefault(which, []):
                    asked[which].append(key)
    resamplers = [which[0].only(wanted[which]) for which in asked]
    with single_thread(), threads() as pool:
        make = lambda resampler, keys: resampler.make(*(pairs[key] for key in keys))  # noqa: E731
        statistics = pool.map(make, resamplers, asked.values())
    drawn: dict[tuple[str, str], dict[str, np.ndarray]] = {key: {} for key in pairs}
    found = resample.bootstrap(statistics, design, resamples=resamples, seed=seed)
    for resampler, keys, array in zip(resamplers, asked.values(), found):
        for key, figures in zip(keys, np.split(array.T, len(keys))):
            drawn[key].update(zip(resampler.metrics, figures))
    return drawn


def subgroup(cohort: Cohort, name: str) -> np.ndarray:
    """Return the column `name` of a `cohort`, to group by; `age_band` is computed from `age`.

    >>> from mlci.cohort import build_cohort
    >>> sorted(set(subgroup(build_cohort("synthetic", 300), "sex")))
    ['F', 'M']
    """
    if name in cohort.table.column_names:
        return cohort.table[name].to_pandas().to_numpy(dtype=object)
    if name == "age_band" and "age" in cohort.table.column_names:
        age = cohort.table["age"].to_pandas().to_numpy(dtype=float)
        bands = np.array([*AGES.values()], dtype=object)[np.searchsorted([*AGES], age, side="right") - 1]
        bands[np.isnan(age)] = None
        return bands
    known = [column for column in cohort.table.column_names if column not in ("codes", "admission_id", "subject_id")]
    raise InputError(
        f"the cohort has no column {name}; it has {', '.join(known)}."
        " (`mlci cohort file --keep COLUMN` copies a column into the cohort.)"
    )
