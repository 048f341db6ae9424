"""Compare hospitals: indirect standardisation of an outcome by a score, with a funnel plot and ranks.

Turn a cohort, scores of its admissions and a grouping column (hospital, ward, year) into tables. Each score is
recalibrated within the cohort by cross-fitting that leaves each group out of its own reference (`_crossfit`). The
tables hold, for each group:

- observed and expected events and their ratio (O/E, a standardised ratio) with its interval, and risk-adjusted rates;
- the verdict by funnel limits that allow for overdispersion;
- empirical Bayes (shrunken) ratios;
- ranks, with bootstrap intervals that include the uncertainty of the recalibration.

A group with fewer than ten expected events is shown but not ranked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import rankdata

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.base.shown import Shown
from mlci.cohort import Cohort
from mlci.judging._carried import column, weights_of
from mlci.judging._coding import coding
from mlci.judging._columns import columns_of
from mlci.judging._crossfit import CrossFit, cross_fit, design
from mlci.judging.groups import small
from mlci.measures import ratios, resample
from mlci.measures._arrays import as_scores
from mlci.measures.design import numbered
from mlci.measures.discrimination import auroc

LEAST = 10  # expected events that a group needs for a rank and a verdict
FEW = 10  # groups needed to estimate overdispersion
MOST = 5_000  # groups
ALERT, ALARM = 0.95, 0.998  # coverage of the funnel's inner and outer limits
VERDICTS = ("low", "as expected", "high")
TOO_FEW, HIDDEN = "too few", "hidden"
FAR = 10  # ranks
LINE = 120  # points of a limit's line


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """The comparison of groups by each score.

    `table` has one row per model and group, `models` one per model, `coding` one per group, and `changes` one per pair
    of models. `left_out` counts admissions whose group or outcome is unknown, or whose weight is 0. `drawn` holds
    the ratios in the bootstrap samples: model -> samples x groups.
    """

    by: str
    outcome: str
    adjusted_by: tuple[str, ...]
    weighted_by: str | None
    overdispersion: str
    resamples: int
    admissions: int
    events: int
    rate: float
    left_out: int
    source: str
    table: pd.DataFrame
    models: pd.DataFrame
    changes: pd.DataFrame
    coding: pd.DataFrame
    drawn: Mapping[str, np.ndarray] = field(default_factory=dict)

    def of(self, model: str) -> pd.DataFrame:
        """Return the rows of a `model`, the highest ratio first and groups with too few events last.

        >>> visits = pd.DataFrame({"visit_id": range(400), "ward": ["east", "west"] * 200, "codes": [["I50.9"]] * 400})
        >>> visits["died"] = [0, 1, 1, 1, 0, 1, 0, 0] * 50
        >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"}, keep=["ward"])
        >>> found = compare(cohort, {"age": visits.index % 7}, by="ward", outcome="mortality", resamples=0)
        >>> found.of("age")["group"].tolist()
        ['west', 'east']
        """
        part = self.table[self.table["model"] == model]
        return part.sort_values(["ranked", "ratio", "group"], ascending=[False, False, True], ignore_index=True)

    def limits(self, model: str) -> pd.DataFrame:
        """Return the limits of a model's funnel over the range of events, also without overdispersion if they differ.

        Args:
            model: name of the score.

        >>> visits = pd.DataFrame({"visit_id": range(400), "ward": ["east", "west"] * 200, "codes": [["I50.9"]] * 400})
        >>> visits["died"] = [0, 1, 1, 1, 0, 1, 0, 0] * 50
        >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"}, keep=["ward"])
        >>> found = compare(cohort, {"age": visits.index % 7}, by="ward", outcome="mortality", resamples=0)
        >>> line = found.limits("age").iloc[0]
        >>> bool(line["low998"] < line["low95"] < 1 < line["high95"] < line["high998"])
        True
        """
        part = self.of(model)
        reach = part.loc[part["ranked"], "effective"].agg(["min", "max"]).to_numpy()
        grid = np.geomspace(0.9 * reach[0], 1.1 * reach[1], LINE)
        row = self.models.set_index("model").loc[model]
        spread = ratios.Dispersion(self.overdispersion, row["phi"], row["tau2"])
        lines = {"effective": grid}
        for level, name in ((ALERT, "95"), (ALARM, "998")):
            lines[f"low{name}"], lines[f"high{name}"] = ratios.funnel(grid, spread, level=level)
            if spread.found:
                chance = ratios.funnel(grid, ratios.Dispersion("none", 1, 0), level=level)
                lines[f"exact_low{name}"], lines[f"exact_high{name}"] = chance
        return pd.DataFrame(lines)

    def suppressed(self) -> "Comparison":
        """Return the comparison with small cells suppressed: fewer than ten admissions with or without the outcome.

        All figures of such a group that reveal the count are hidden, including its rank. If the count could be derived
        from the totals, the next smallest group is hidden too (secondary suppression, `mlci.judging.groups.small`).

        >>> visits = pd.DataFrame({"visit_id": range(300), "ward": ["a", "b", "c"] * 100, "codes": [["I50.9"]] * 300})
        >>> visits["died"] = (visits.index % 7 < 3) & ((visits["ward"] != "c") | (visits.index < 30))
        >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"}, keep=["ward"])
        >>> found = compare(cohort, {"age": visits.index % 7}, by="ward", outcome="mortality", resamples=0)
        >>> found.suppressed().of("age").set_index("group")["verdict"].to_dict()
        {'b': 'high', 'a': 'hidden', 'c': 'hidden'}
        """
        first = self.table.drop_duplicates("group")
        hidden = small(first["events"], first["n"] - first["events"])
        rows = self.table["group"].isin(first["group"][hidden])
        figures = [name for name in self.table if name not in ("model", "group", "n", "ranked", "verdict", "alert")]
        table = self.table.astype(dict.fromkeys(["n", *figures], float))
        table.loc[rows, figures] = np.nan
        table.loc[rows, ["verdict", "alert"]] = HIDDEN
        table.loc[rows, "ranked"] = False
        for model, part in table.groupby("model"):  # rank the others anew: gaps would reveal the hidden ranks
            ranks = _ranks(part["ratio"].to_numpy(), part["ranked"].to_numpy(), self.drawn.get(str(model)))
            table.loc[part.index, [*ranks]] = np.column_stack([*ranks.values()])
        table.loc[table["n"] < LEAST, "n"] = np.nan
        coded = self.coding.astype({"n": float})
        coded.loc[coded["n"] < LEAST, ["n", "codes", "ratio", "z"]] = np.nan
        drawn = {model: np.where(hidden, np.nan, ratio) for model, ratio in self.drawn.items()}
        models = self.models.assign(**_counts(table, self.models["model"]))
        return replace(self, table=table, models=models, changes=changes(table), coding=coded, drawn=drawn)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows for a terminal: model, group, counts, ratio and rank with their intervals."""
        rows = []
        for model in self.models["model"]:
            for row in self.of(model).itertuples():
                rank = f"{row.rank:.0f}" if row.ranked else ""
                rank += f" {row.rank_low:.0f}-{row.rank_high:.0f}" if np.isfinite(row.rank_low) else ""
                ratio = f"{row.ratio:.2f} {row.low:.2f}-{row.high:.2f}" if row.verdict != HIDDEN else HIDDEN
                counts = [f"{row.n:,.0f}", f"{row.observed:,.0f}", f"{row.expected:,.1f}", ratio, row.verdict, rank]
                rows.append([model, row.group, *(cell.replace("nan", "–") for cell in counts)])
        return ["model", self.by, "n", "O", "E", "O/E 95%", "verdict", "rank 95%"], rows


def compare(
    cohort: Cohort,
    scores: Any,
    *,
    by: str,
    outcome: str,
    adjust: Sequence[str] = (),
    weights: str | None = None,
    overdispersion: str = "additive",
    resamples: int = 200,
) -> Comparison:
    """Compare groups of admissions by observed and expected events.

    Args:
        cohort: the admissions, with their outcomes and groups.
        scores: one number per admission, or a frame or mapping of several scores.
        by: the grouping column, such as hospital, ward or year; `age_band` is computed from age.
        outcome: the outcome to count.
        adjust: further columns to adjust for, such as age and sex.
        weights: a column of survey weights.
        overdispersion: how the funnel limits allow for variation between groups beyond chance: `additive`,
            `multiplicative`, `shmi` or `none` (`mlci.measures.ratios.dispersion`). With fewer than ten groups it is
            always `none`.
        resamples: number of bootstrap samples of patients, for the intervals of ranks; 0 gives none.

    Returns:
        Counts, ratios, ranks and verdicts by group.

    >>> visits = pd.DataFrame({"visit_id": range(400), "ward": ["east", "west"] * 200, "codes": [["I50.9"]] * 400})
    >>> visits["died"] = [0, 0, 1, 0, 0, 0, 0, 1] * 50
    >>> cohort = Cohort.from_frame(visits, icd_version=10, keep=["ward"])
    >>> compare(cohort, range(400), by="ward", outcome="mortality", resamples=20).table[["group", "observed"]]
      group  observed
    0  east      50.0
    1  west      50.0
    """
    if overdispersion not in ratios.METHODS:
        raise InputError(f"overdispersion {overdispersion!r}: allowed are {', '.join(ratios.METHODS)}.")
    adjust = [adjust] if isinstance(adjust, str) else adjust
    ground = _prepare(cohort, by, outcome, weights)
    overdispersion = overdispersion if len(ground.names) >= FEW else "none"
    models = {name: as_scores(column, name) for name, column in columns_of(scores, "score").items()}
    for name, values in models.items():
        if len(values) != len(cohort):
            raise InputError(f"{name}: has {len(values)} admissions, but the cohort has {len(cohort)}.")
    if by in adjust:
        raise InputError(f"column {by}: defines the groups; it cannot be adjusted for as well.")
    others = [(name, column(cohort, name)[ground.rows]) for name in adjust]
    fits = {}
    with single_thread():  # matrix products are small, and the bootstrap has its own threads
        for name, values in models.items():
            laid_out = design(values[ground.rows], others)
            fits[name] = cross_fit(laid_out, ground.outcome, ground.weight, ground.starts)
        drawn = _resampled(ground, fits, resamples) if resamples else {}
    tables = {name: _judged(ground, fit, overdispersion, drawn.get(name)) for name, fit in fits.items()}
    table = pd.concat([part.table.assign(model=name) for name, part in tables.items()], ignore_index=True)
    summary = [{"model": name, **part.summary} for name, part in tables.items()]
    return Comparison(
        by=by,
        outcome=outcome,
        adjusted_by=tuple(adjust),
        weighted_by=weights,
        overdispersion=overdispersion,
        resamples=resamples,
        admissions=len(ground.outcome),
        events=int(ground.outcome.sum()),
        rate=ground.rate,
        left_out=len(cohort) - len(ground.outcome),
        source=cohort.source,
        table=table[["model", *(name for name in table if name != "model")]],
        models=pd.DataFrame(summary).assign(**_counts(table, [*tables])),
        changes=changes(table),
        coding=coding(cohort, ground.places(len(cohort)), ground.names),
        drawn=drawn,
    )


@dataclass(frozen=True)
class _Ground:
    """The admissions that are compared, sorted by group and patient."""

    rows: np.ndarray  # of the cohort
    outcome: np.ndarray
    weight: np.ndarray  # of mean 1
    patient: np.ndarray
    group: np.ndarray
    starts: np.ndarray  # of the groups
    names: list[str]

    @property
    def rate(self) -> float:
        return float(self.weight @ self.outcome / self.weight.sum())

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum by group."""
        return np.add.reduceat(values, self.starts)

    def places(self, size: int) -> np.ndarray:
        """Return the group of each of the cohort's admissions, -1 for those that are not compared."""
        found = np.full(size, -1)
        found[self.rows] = self.group
        return found


def _prepare(cohort: Cohort, by: str, outcome: str, weights: str | None) -> _Ground:
    y = cohort.labels(outcome)[:, 0]
    number, names = pd.factorize(column(cohort, by), sort=True)
    weight = np.ones(len(cohort)) if weights is None else weights_of(cohort, weights)
    known = ~np.isnan(y) & (number >= 0) & (weight > 0)
    met = np.unique(number[known])
    if not 2 <= len(met) <= MOST:
        counted = "" if weights is None else " and a weight above 0"
        raise InputError(
            f"column {by}: has {len(met):,} groups with a known {outcome}{counted}; allowed are 2 to {MOST:,}."
        )
    for happened in (y[known], 1 - y[known]):
        elsewhere = happened.sum() - np.bincount(number[known], happened)[met]
        if elsewhere.min() < LEAST:
            few = f"without one of its groups fewer than {LEAST} admissions with or without {outcome} are left"
            raise InputError(f"column {by}: {few}; they are too few to estimate what to expect of that group.")
    patient = numbered(cohort.column("subject_id"))
    rows = np.flatnonzero(known)
    rows = rows[np.lexsort((patient[rows], number[rows]))]
    group = np.searchsorted(met, number[rows])
    return _Ground(
        rows=rows,
        outcome=y[rows],
        weight=weight[rows] / weight[rows].mean(),
        patient=patient[rows],
        group=group,
        starts=np.flatnonzero(np.diff(group, prepend=-1)),
        names=[str(names[place]) for place in met],
    )


def _resampled(ground: _Ground, fits: Mapping[str, CrossFit], resamples: int) -> dict[str, np.ndarray]:
    """Return the O/E of each model and group in the same bootstrap samples of patients: model -> samples x groups.

    The recalibration is not refitted in each sample but updated to first order (by its influence functions). So only
    sums of each patient's contributions to a group are needed.
    """
    number, patient = np.unique(ground.patient, return_inverse=True)
    shape = len(ground.names), len(number)

    def contributions(values: np.ndarray) -> sparse.csr_array:
        """Return each patient's contribution to each group: groups x patients."""
        return sparse.csr_array((values, (ground.group, patient)), shape=shape)

    counted, gradients = [contributions(ground.weight * ground.outcome)], []
    by_patient = sparse.csr_array((np.ones(len(patient)), (patient, np.arange(len(patient)))))
    for fit in fits.values():
        own = np.einsum("ij,ij->i", fit.gradient, fit.answer[ground.group])
        counted.append(contributions(ground.weight * fit.risk - own))
        gradients.append(by_patient @ fit.gradient)
    everything, everyone = np.hstack(gradients), np.arange(len(number))

    def statistic(weights: resample.Weights) -> np.ndarray:
        drawn = weights(everyone)
        return np.hstack([*((part @ drawn.T).T for part in counted), (drawn - 1) @ everything])

    [figures] = resample.bootstrap([statistic], everyone, resamples=resamples)
    size, found = len(ground.names), {}
    moved = np.split(figures[:, size * len(counted) :], np.cumsum([part.shape[1] for part in gradients])[:-1], axis=1)
    for place, (name, fit) in enumerate(fits.items(), start=1):
        still = np.einsum("ij,ij->i", ground.sums(fit.gradient), fit.answer)
        expected = figures[:, size * place : size * (place + 1)] + moved[place - 1] @ fit.answer.T + still
        found[name] = figures[:, :size] / np.maximum(expected, 1e-9)
    return found


@dataclass(frozen=True)
class _Judged:
    table: pd.DataFrame
    summary: dict[str, float]


def _judged(ground: _Ground, fit: CrossFit, method: str, drawn: np.ndarray | None) -> _Judged:
    """Return the table of a model and its summary over all groups."""
    weight, y = ground.weight, ground.outcome
    observed, expected = ground.sums(weight * y), ground.sums(weight * fit.risk)
    ratio = observed / expected
    # The expected count of a Poisson variable with the same precision: Bernoulli events vary less, weighted ones more.
    effective = expected**2 / ground.sums(weight**2 * fit.risk * (1 - fit.risk))
    counted = ratio * effective
    ranked = np.minimum(expected, effective) >= LEAST
    spread = ratios.dispersion(counted[ranked], effective[ranked], method=method)
    low, high = ratios.interval(counted, effective)
    known = ratios.prior(counted, effective)
    shrunk, shrunk_low, shrunk_high = ratios.shrunk(counted, effective, known)
    resampled = np.full((2, len(ratio)), np.nan) if drawn is None else np.quantile(drawn, [0.025, 0.975], axis=0)
    frame = {
        "group": ground.names,
        "n": np.diff(np.append(ground.starts, len(y))),
        "events": ground.sums(y).astype(int),
        "observed": observed,
        "expected": expected,
        "effective": effective,
        "ranked": ranked,
        "ratio": ratio,
        "low": low,
        "high": high,
        "rate": observed / ground.sums(weight),
        "adjusted": np.minimum(ratio * ground.rate, 1),
        "adjusted_low": np.minimum(low * ground.rate, 1),
        "adjusted_high": np.minimum(high * ground.rate, 1),
        "shrunk": shrunk,
        "shrunk_low": shrunk_low,
        "shrunk_high": shrunk_high,
        "z": ratios.standing(counted, effective, spread),
        "alert": _verdict(ratio, effective, ranked, spread, ALERT),
        "verdict": _verdict(ratio, effective, ranked, spread, ALARM),
        **_ranks(ratio, ranked, drawn),
        "resampled_low": resampled[0],
        "resampled_high": resampled[1],
    }
    summary = {
        "auroc": float(auroc(fit.risk, y, weight=weight)),
        "phi": spread.phi,
        "tau2": spread.tau2,
        "spread": known.sd,
    }
    return _Judged(pd.DataFrame(frame), summary)


def _counts(table: pd.DataFrame, models: Sequence[str]) -> dict[str, list[int]]:
    """Return how many groups each model ranks, and how many have each verdict."""
    parts = [table[table["model"] == model] for model in models]
    verdicts = {word: [int((part["verdict"] == word).sum()) for part in parts] for word in VERDICTS}
    return {"ranked": [int(part["ranked"].sum()) for part in parts], **verdicts}


def _verdict(ratio, effective, ranked, spread: ratios.Dispersion, level: float) -> np.ndarray:
    low, high = ratios.funnel(effective, spread, level=level)
    words = np.select([ratio < low, ratio > high], [VERDICTS[0], VERDICTS[2]], VERDICTS[1])
    return np.where(ranked, words, TOO_FEW)


def _ranks(ratio: np.ndarray, ranked: np.ndarray, drawn: np.ndarray | None) -> dict[str, np.ndarray]:
    """Rank groups by ratio, the lowest first, with limits from the bootstrap samples, which all groups share."""
    found = {name: np.full(len(ratio), np.nan) for name in ("rank", "rank_low", "rank_high")}
    found["rank"][ranked] = rankdata(ratio[ranked])
    if drawn is not None and ranked.any():
        places = rankdata(drawn[:, ranked], axis=1)
        found["rank_low"][ranked], found["rank_high"][ranked] = np.quantile(places, [0.025, 0.975], axis=0)
    return found


def changes(table: pd.DataFrame) -> pd.DataFrame:
    """Count what the choice of a score changes: for each pair of models, over the groups that both rank.

    Args:
        table: of a `Comparison`, with the columns model, group, ranked, verdict and rank.

    Returns:
        One row per pair: the number of groups, how many have a different verdict, the share that moves ten ranks or
        more, and the largest move.

    >>> frame = pd.DataFrame({"model": list("aabb"), "group": list("xyxy"), "ranked": True, "rank": [1, 2, 2, 1]})
    >>> changes(frame.assign(verdict=["low", "high", "low", "low"])).to_dict("records")[0]["other_verdict"]
    1
    """
    models, rows = list(dict.fromkeys(table["model"])), []
    parts = {name: table[(table["model"] == name) & table["ranked"]].set_index("group") for name in models}
    for place, first in enumerate(models):
        for second in models[place + 1 :]:
            shared = parts[first].index.intersection(parts[second].index)
            left, right = parts[first].loc[shared], parts[second].loc[shared]
            moved = np.abs(left["rank"] - right["rank"])
            other = int((left["verdict"] != right["verdict"]).sum())
            far = float(np.mean(moved >= FAR)) if len(shared) else np.nan
            rows.append((first, second, len(shared), other, far, float(moved.max()) if len(shared) else np.nan))
    return pd.DataFrame(rows, columns=["model", "versus", "groups", "other_verdict", "far", "farthest"])
