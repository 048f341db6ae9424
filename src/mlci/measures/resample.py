"""Bootstrap of patients: all admissions of a patient are drawn together. Returns each figure on every resample.

Nothing is sorted or searched again for a resample. Each score is sorted once, and a resample is a vector of weights on
its distinct values (how often an admission was drawn, times its sampling weight). Every figure then follows from
cumulative sums (distance correlation, AUROC, average precision), from a matrix product with the kernel's features
(nHSIC), or as a weighted mean (mutual information, calibration). The resamples depend on the seed alone, so figures of
several scores or outcomes with the same seed are paired. `mlci.measures.intervals` turns resampled figures into
intervals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.base.threads import threads as pool_of
from mlci.measures import alignment, discrimination
from mlci.measures._arrays import unit_of
from mlci.measures.design import Design, as_design

Weights = Callable[[np.ndarray], np.ndarray]  # admissions -> resamples x admissions
Statistic = Callable[[Weights], np.ndarray]  # -> resamples x figures
RANKING = ("dcorr", "nhsic", "auroc", "average_precision", "rank_dcorr")
CALIBRATION = ("observed_expected", "brier", "slope", "intercept", "brier_skill", "deviance", "nagelkerke")
CELLS = 1 << 20  # weights (resamples x admissions) that a thread holds at once
CACHED = 1 << 16  # weights that are summed at once, to fit into a core's cache
ROUNDING = 1e-10  # relative error that sums of weights may have


def bootstrap(
    statistics: list[Statistic], patients: Any, *, resamples: int = 1000, seed: int = 0, threads: int | None = None
) -> list[np.ndarray]:
    """Compute each statistic on the same resamples of patients.

    Args:
        statistics: from `ranking`, `area`, `mean` or `calibration`.
        patients: the patient of each admission, or a `Design`, whose clusters are drawn within their strata and whose
            weights multiply those of each resample.
        resamples: the number of resamples.
        seed: seed of the draws.
        threads: number of threads; at most 8 by default.

    Returns:
        An array for each statistic, resamples x figures.

    >>> import numpy as np
    >>> [drawn] = bootstrap([mean(np.array([0.2, 0.4, 0.6, 0.8]))], ["a", "b", "b", "c"], resamples=50)
    >>> drawn.shape
    (50, 1)
    """
    design = as_design(patients)
    if resamples < 1:
        raise InputError(f"resamples: {resamples} is not a positive number.")
    batch = max(2, min(64, CELLS // len(design)))
    seeds, everyone = np.random.SeedSequence(seed).spawn(-(-resamples // batch)), np.arange(len(design))

    def run(task: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seeds[task])
        size = min(batch, resamples - task * batch)
        counts = np.empty((size, design.clusters))
        for row in counts:
            row[:] = design.draw(rng)

        all_weights = _weights(design, counts, everyone)

        def weights(rows: np.ndarray) -> np.ndarray:
            return all_weights if np.array_equal(rows, everyone) else _weights(design, counts, rows)

        return [statistic(weights) for statistic in statistics]

    with single_thread(), pool_of(threads) as pool:
        parts = pool.map(run, range(len(seeds)))
    return [np.concatenate(part) for part in zip(*parts)]


def _weights(design: Design, counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the weights, resamples x admissions, from how often each cluster was drawn."""
    drawn = counts.take(design.cluster[rows], axis=1)
    return drawn if design.weight is None else drawn * design.weight[rows]


def ranking(
    scores: np.ndarray,
    y: np.ndarray,
    *,
    sigma: float | None = None,
    kernel: str = "rbf",
    figures: Sequence[str] = RANKING,
) -> Statistic:
    """Return the statistic that resamples the figures of `RANKING` for a score and one or more outcomes.

    Args:
        scores: one number per admission.
        y: the outcome: 0, 1, or NaN where not known; or n x T outcomes, whose figures stand side by side. The score is
            sorted and summed once for all outcomes that are known for the same admissions.
        sigma: the bandwidth of nHSIC in the score's units; by default the score's own reference bandwidth.
        kernel: the kernel of nHSIC.
        figures: which of `RANKING` to compute.

    >>> import numpy as np
    >>> statistic = ranking(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> figures = statistic(lambda rows: np.ones((1, len(rows))))  # one resample: every admission once
    >>> float(figures[0, RANKING.index("auroc")])
    0.75
    """
    outcomes = y.reshape(len(scores), -1)
    if sigma is None and kernel != "energy":
        sigma = alignment.unit_bandwidth(scores)
    groups = [
        (_SortedScore.of(scores, outcomes[:, columns], np.flatnonzero(known)), columns)
        for known, columns in alignment.group_by_known(outcomes)
    ]

    def statistic(weights: Weights) -> np.ndarray:
        sides: dict[int, np.ndarray] = {}
        for sorted_score, columns in groups:
            weight = weights(sorted_score.rows)
            found = np.full((len(weight), len(columns), len(figures)), np.nan)
            if len(sorted_score.values):
                mass, drawn = sorted_score.mass(weight), [cases.drawn(weight) for cases in sorted_score.cases]
                step = max(1, CACHED // len(sorted_score.values))
                with np.errstate(divide="ignore", invalid="ignore"):  # of resamples in which no outcome is known
                    for start in range(0, len(weight), step):
                        part = slice(start, start + step)
                        found[part] = _ranking(sorted_score, mass[part], [columns[part] for columns in drawn], figures)
                    if kernel != "energy" and "nhsic" in figures and len(sorted_score.values) > 1:
                        found[:, :, figures.index("nhsic")] = _nhsic(sorted_score, weight, kernel, sigma)
            sides.update(zip(columns, found.transpose(1, 0, 2)))
        return np.hstack([sides[column] for column in range(outcomes.shape[1])])

    return statistic


@dataclass(frozen=True)
class _Cases:
    """The admissions with an outcome, in increasing order of score."""

    rows: np.ndarray  # positions of the cases among the sorted admissions
    starts: np.ndarray  # the first of `rows` at each distinct value that some case has
    value: np.ndarray  # the index of each of those values

    def drawn(self, weight: np.ndarray) -> np.ndarray:
        """Return how many cases were drawn at each value: resamples x values."""
        drawn = weight.take(self.rows, axis=1)
        return drawn if len(self.starts) == len(self.rows) else np.add.reduceat(drawn, self.starts, axis=1)


@dataclass(frozen=True)
class _SortedScore:
    """A score's distinct values, and the admissions in increasing order of score."""

    rows: np.ndarray
    values: np.ndarray
    starts: np.ndarray  # the first admission of each value
    cases: tuple[_Cases, ...]  # of each outcome

    @classmethod
    def of(cls, scores: np.ndarray, outcomes: np.ndarray, rows: np.ndarray) -> "_SortedScore":
        rows = rows[np.argsort(scores[rows], kind="stable")]
        sorted_scores = scores[rows]
        first = np.insert(sorted_scores[1:] != sorted_scores[:-1], 0, True)[: len(rows)]
        number = np.cumsum(first) - 1
        cases = []
        for y in outcomes[rows].T:
            found = np.flatnonzero(y == 1)
            value, starts = np.unique(number[found], return_index=True)
            cases.append(_Cases(found, starts, value))
        return cls(rows, sorted_scores[first], np.flatnonzero(first), tuple(cases))

    def mass(self, weight: np.ndarray) -> np.ndarray:
        """Return how many admissions were drawn at each value: resamples x values."""
        return weight if len(self.starts) == len(self.rows) else np.add.reduceat(weight, self.starts, axis=1)


def _ranking(
    sorted_score: _SortedScore, mass: np.ndarray, drawn_cases: list[np.ndarray], figures: Sequence[str]
) -> np.ndarray:
    """Return resamples x outcomes x figures, from the weight of each value and that of each outcome's cases.

    "nhsic" is here that of the energy kernel, the squared distance correlation.

    With b the weight and c the cases up to each value, p the rate and g the gaps between values, the energy kernel's
    form is Σ g (c − p b)² = Σ g c² − 2p Σ g b c + p² Σ g b². The last sum is the same for all outcomes. The other two
    are rewritten as sums over the cases, which are few: a case adds 1 to every c above it.
    """
    below = np.cumsum(mass, axis=1)
    n = below[:, -1]
    middle = below - mass / 2  # mid-ranks
    scales: dict[str, tuple] = {}
    for name, values in {"dcorr": sorted_score.values / unit_of(sorted_score.values), "rank_dcorr": middle}.items():
        if name in figures or (name == "dcorr" and "nhsic" in figures):
            scales[name] = values, *_beyond(np.diff(values), below)
    if "average_precision" in figures:
        seen = n[:, None] - below + mass  # from the highest score down to each value
        seen[seen <= 0] = 1  # avoid 0 / 0 where no admission, and so no case, was drawn
    found = np.full((len(mass), len(sorted_score.cases), len(figures)), np.nan)
    for place, (cases, drawn) in enumerate(zip(sorted_score.cases, drawn_cases)):
        n1 = drawn.sum(axis=1)
        mixed = _has_both(n1, n)
        reached, rate = np.cumsum(drawn, axis=1), n1 / n
        grown = drawn * (2 * reached - drawn)  # by how much c² grows at each case's value
        columns: dict[str, np.ndarray] = {}
        for name, (scale, norm, own, later) in scales.items():
            rest = scale[..., -1:] - scale.take(cases.value, axis=-1)
            form = _sum(grown, rest) - 2 * rate * _sum(drawn, later.take(cases.value, axis=1)) + rate**2 * own
            columns[name] = np.sqrt(_ratio(2 * form, norm * n1 * (1 - rate)))
        if "nhsic" in figures:
            columns["nhsic"] = columns["dcorr"] ** 2
        if "auroc" in figures:
            won = _sum(drawn, middle.take(cases.value, axis=1)) - n1 * n1 / 2  # Mann-Whitney, from mid-ranks
            columns["auroc"] = _ratio(won, n1 * (n - n1))
        if "average_precision" in figures:
            caught = n1[:, None] - reached + drawn  # from the highest score down to that of each case
            precision = _sum(drawn, caught / seen.take(cases.value, axis=1))
            columns["average_precision"] = _ratio(precision, n1)
        found[mixed, place] = np.column_stack([columns[name] for name in figures])[mixed]
    return found


def _beyond(gaps: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what all outcomes share: the kernel's norm, Σ g b², and for each value the sum of g b above it."""
    weighed = gaps * below[:, :-1]
    own = _sum(weighed, below[:, :-1])
    later = np.zeros_like(below)
    np.cumsum(weighed[:, ::-1], axis=1, out=later[:, -2::-1])
    return alignment.energy_norm(gaps, below), own, later


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the sums of products along rows; `second` may be one row for all."""
    return np.einsum("ij,...j->i", first, second) if second.ndim == 1 else np.einsum("ij,ij->i", first, second)


def _nhsic(sorted_score: _SortedScore, weight: np.ndarray, kernel: str, sigma: float | None) -> np.ndarray:
    """Return nHSIC, resamples x outcomes, for all outcomes at once: the kernel's features dominate the cost."""
    mass = sorted_score.mass(weight)
    n, n1 = weight.sum(axis=1), np.zeros((len(weight), len(sorted_score.cases)))
    profiles = np.empty((mass.shape[1], len(weight), len(sorted_score.cases)))
    for place, cases in enumerate(sorted_score.cases):
        drawn = cases.drawn(weight)
        n1[:, place] = drawn.sum(axis=1)
        profiles[:, :, place] = -(mass * (n1[:, place] / n)[:, None]).T
        profiles[cases.value, :, place] += drawn.T
    forms, norm = alignment.rbf(sorted_score.values, mass.T, profiles, kernel, sigma)
    mixed = _has_both(n1, n[:, None])
    return np.where(mixed, _ratio(forms, norm[:, None] * n1 * (1 - n1 / n[:, None])), np.nan)


def _has_both(cases: np.ndarray, everyone: np.ndarray) -> np.ndarray:
    """Return whether both classes were drawn, from the summed weights of the cases and of everyone."""
    return (cases > 0) & (everyone - cases > ROUNDING * everyone)


def _ratio(forms: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return forms / scale, clipped to [0, 1]; 0 where the scale is not positive."""
    return np.clip(np.divide(forms, scale, out=np.zeros_like(forms), where=scale > 0), 0, 1)


def area(scores: np.ndarray, y: np.ndarray) -> Statistic:
    """Return the statistic that resamples AUROC alone.

    Args:
        scores: one number per admission.
        y: the outcome: 0, 1, or NaN where not known.

    >>> import numpy as np
    >>> area(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 1]))(lambda rows: np.ones((1, len(rows))))
    array([[0.75]])
    """
    sorted_score = _SortedScore.of(scores, y[:, None], np.flatnonzero(~np.isnan(y)))

    def statistic(weights: Weights) -> np.ndarray:
        weight = weights(sorted_score.rows)
        if not len(sorted_score.rows):
            return np.full((len(weight), 1), np.nan)
        [cases] = sorted_score.cases
        mass = sorted_score.mass(weight)
        below = np.cumsum(mass, axis=1)
        drawn, middle = cases.drawn(weight), below - mass / 2
        n, n1 = below[:, -1], drawn.sum(axis=1)
        won = _sum(drawn, middle.take(cases.value, axis=1)) - n1 * n1 / 2
        pairs, mixed = n1 * (n - n1), _has_both(n1, n)
        return np.divide(won, pairs, out=np.full(len(weight), np.nan), where=mixed)[:, None]

    return statistic


def mean(values: np.ndarray) -> Statistic:
    """Return the statistic that resamples the mean of one or several numbers per admission.

    Args:
        values: the numbers (such as contributions to mutual information); NaN where not known.

    >>> import numpy as np
    >>> mean(np.array([0.2, np.nan, 0.4]))(lambda rows: np.ones((1, len(rows)))).round(3)
    array([[0.3]])
    """
    values = values.reshape(len(values), -1)
    known, everyone = ~np.isnan(values), np.arange(len(values))
    sums = np.hstack([np.where(known, values, 0), known])

    def statistic(weights: Weights) -> np.ndarray:
        total, n = np.split(weights(everyone) @ sums, 2, axis=1)
        return np.divide(total, n, out=np.full_like(total, np.nan), where=n > 0)

    return statistic


def calibration(
    risks: np.ndarray, y: np.ndarray, *, weight: np.ndarray | None = None, figures: Sequence[str] = CALIBRATION
) -> Statistic:
    """Return the statistic that resamples the figures of `CALIBRATION` for a risk and an outcome.

    Slope and intercept take one Newton step from the fit to all admissions, which has the same bootstrap variance to
    first order.

    Args:
        risks: a probability per admission.
        y: the outcome: 0, 1, or NaN where not known.
        weight: sampling weight of each admission in the fit to all of them.
        figures: which of `CALIBRATION` to compute.

    >>> import numpy as np
    >>> statistic = calibration(np.array([0.1, 0.3, 0.6, 0.8]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> round(float(statistic(lambda rows: np.ones((1, len(rows))))[0, CALIBRATION.index("brier")]), 3)
    0.225
    """
    rows = np.flatnonzero(~np.isnan(y))
    if not len(rows):
        return lambda weights: np.full((len(weights(rows)), len(figures)), np.nan)
    risk, y, weight = risks[rows], y[rows], None if weight is None else weight[rows]
    columns = {"n": np.ones(len(y)), "y": y, "risk": risk, "brier": (y - risk) ** 2}
    columns["loss"] = discrimination.log_losses(risk, y)
    starts = {}
    for line, slope in (("slope", None), ("intercept", 1.0)):
        if line in figures:
            x, at = discrimination.logit(risk), discrimination.calibration_line(risk, y, slope=slope, weight=weight)
            fitted = discrimination.expit(at[0] + at[1] * x)
            spread, left = fitted * (1 - fitted), y - fitted
            columns |= {f"{line} g0": left, f"{line} h00": spread}
            if slope is None:
                columns |= {f"{line} g1": left * x, f"{line} h01": spread * x, f"{line} h11": spread * x**2}
            starts[line] = at
    sums = np.column_stack([*columns.values()])

    def statistic(weights: Weights) -> np.ndarray:
        total = dict(zip(columns, (weights(rows) @ sums).T))
        n, found = total["n"], {}
        with np.errstate(divide="ignore", invalid="ignore"):
            if "slope" in starts:
                g0, g1, h00, h01, h11 = (total[f"slope {name}"] for name in ("g0", "g1", "h00", "h01", "h11"))
                found["slope"] = starts["slope"][1] + (h00 * g1 - h01 * g0) / (h00 * h11 - h01**2)
            if "intercept" in starts:
                found["intercept"] = starts["intercept"][0] + total["intercept g0"] / total["intercept h00"]
            brier, loss, rate = total["brier"] / n, total["loss"] / n, total["y"] / n
            found["observed_expected"] = np.where(total["risk"] > 0, total["y"] / total["risk"], np.nan)
        found["brier"] = brier
        found |= zip(("brier_skill", "deviance", "nagelkerke"), discrimination.skill(brier, loss, rate))
        return np.column_stack([found[name] for name in figures])

    return statistic
