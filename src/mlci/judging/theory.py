"""What one score can and does do for several outcomes at once: the paper's theory, as data.

In come scores and outcomes (NaN = not known), no model; out come frozen results. Everything but the kernel forms is
one sort and a few prefix sums, so whole cohorts are diagnosed exactly, without subsampling.

Notation: n admissions in ascending order of score, split j = the first j of them below a cut and n - j beyond it,
l_t = outcome t centred, W~ = the stacked l_t / ||l_t|| (times the root of the weight), v = its leading right singular
vector, g_j = the centred indicator of "beyond the cut". rho_j(w) is the cosine of w and g_j.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from mlci.base.errors import InputError
from mlci.measures._proportion import wilson

FLOOR = 1e-4  # of the score kernel's centred norm, as in training
PAIRS, SEED, SAMPLE = 20_000, 12345, 5_000  # the paper's protocol


@dataclass(frozen=True)
class Threshold:
    """A cut of the score order. An admission is beyond it if its score is at least `score`."""

    split: int  # admissions below
    n: int
    score: float  # the lowest score beyond the cut, so an integer index keeps an integer cutoff
    rho2: float  # squared cosine with the direction: the share of the bound that this two-level score reaches
    rising: bool  # whether the direction is larger beyond the cut than below it

    @property
    def tail(self) -> int:
        return self.n - self.split

    @property
    def share(self) -> float:
        return self.tail / self.n


@dataclass(frozen=True)
class Scan:
    """rho_j of every possible cut, one column per direction."""

    split: np.ndarray
    score: np.ndarray
    rho: np.ndarray
    n: int

    def best(self, column: int) -> Threshold:
        """The cut with the largest rho^2, the first of equals."""
        return self.at(int(np.argmax(self.rho[:, column] ** 2)), column)

    def at(self, row: int, column: int) -> Threshold:
        rho = self.rho[row, column]
        return Threshold(int(self.split[row]), self.n, float(self.score[row]), float(rho**2), bool(rho > 0))


def scan(score, directions, *, ties: Literal["keep", "split"] = "keep") -> Scan:
    """Compute rho of every cut of the score order, for each direction, by one prefix sum.

    Args:
        score: one number per admission.
        directions: n x m, one direction per column.
        ties: "keep" cuts between distinct scores alone, since admissions with equal scores cannot be told apart;
            "split" also cuts inside a run of equal scores, in the order given, as the authors' program does.

    >>> found = scan([1, 2, 3, 4], [0, 0, 1, 1])
    >>> found.best(0).score, round(found.best(0).rho2, 3)
    (3.0, 1.0)
    """
    score, directions = np.asarray(score, dtype=float), np.asarray(directions, dtype=float)
    directions = directions.reshape(len(score), -1)
    n = len(score)
    order = np.argsort(score, kind="stable")
    score = score[order]
    below = np.flatnonzero(score[1:] > score[:-1]) if ties == "keep" else np.arange(n - 1)
    if not len(below):
        raise InputError("all scores are equal: there is no order to cut.")
    split = below + 1
    directions = directions - directions.mean(axis=0)
    norm = np.sqrt((directions**2).sum(axis=0))
    beyond = -np.cumsum(directions[order], axis=0)[below]  # w' g_j
    length = np.sqrt(split / n * (n - split))  # ||g_j||
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.where(norm > 0, beyond / (norm * length[:, None]), 0.0)
    return Scan(split, score[split], rho, n)


@dataclass(frozen=True)
class Spacing:
    """The best monotone spacing of a given order: a step function of the score, from 0 to 1.

    `certificate` is the share of the bound that it reaches with the energy kernel (whose alignment is the squared
    distance correlation): no nondecreasing score in this order reaches more. `threshold` is the share that the best
    single cut reaches.
    """

    cuts: np.ndarray  # a score of at least cuts[k] has at least levels[k]
    levels: np.ndarray
    value: float  # the weighted sum of squared distance correlations
    bound: float
    threshold: float

    @property
    def certificate(self) -> float:
        return self.value / self.bound

    def apply(self, score) -> np.ndarray:
        """The spaced score of new scores."""
        return np.concatenate([[0.0], self.levels])[np.searchsorted(self.cuts, score, side="right")]

    def to_dict(self) -> dict:
        return asdict(self) | {"cuts": self.cuts.tolist(), "levels": self.levels.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping) -> "Spacing":
        arrays = {name: np.asarray(data[name], dtype=float) for name in ("cuts", "levels")}
        fields: dict[str, Any] = {**data, **arrays}
        return cls(**fields)


def best_spacing(score, outcomes, weights=None, *, cuts: int | None = 400) -> Spacing:
    """Return the nondecreasing score in the order of `score` that is best aligned with the outcomes.

    Args:
        score: one number per admission.
        outcomes: n x T; admissions with a missing outcome are left out.
        weights: of the outcomes, by default equal.
        cuts: about how many quantiles may have a step, denser in the upper tail, which keeps the fit from chasing
            single admissions; None allows a step at every distinct score.

    >>> best_spacing([1, 2, 3, 4], [0, 0, 1, 1]).apply([1, 2, 3, 4]).round(6).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    score, outcomes = np.asarray(score, dtype=float), _matrix(outcomes)
    weights = _weights(weights, outcomes.shape[1])
    outcomes, weights = outcomes[:, weights > 0], weights[weights > 0]
    rows = np.isfinite(score) & ~np.isnan(outcomes).any(axis=1)
    score, outcomes = score[rows], outcomes[rows]
    if not len(score) or (np.ptp(outcomes, axis=0) == 0).any():
        raise InputError("a spacing needs outcomes with both classes among the admissions where all are known.")
    found = scan(score, outcomes)
    chosen = slice(None)
    if cuts is not None:
        share = (1 - np.arange(1, cuts + 1) / (cuts + 1)) ** 2  # of admissions beyond, so denser at the top
        chosen = np.unique(np.searchsorted(found.split, found.n * (1 - share)).clip(0, len(found.split) - 1))
    gain = (found.rho[chosen] ** 2) @ weights
    value, steps = _mixture(found.split[chosen], found.n, gain)
    used = steps > 0
    levels = np.cumsum(steps[used])
    bound = float(np.sqrt((_singular(outcomes, weights)[0] ** 4).sum()))
    return Spacing(found.score[chosen][used], levels / levels[-1], value, bound, float(gain.max()) / bound)


def _mixture(split: np.ndarray, n: int, gain: np.ndarray) -> tuple[float, np.ndarray]:
    """The best nonnegative mixture of thresholds: its value, and the height of the step at each cut.

    `gain` is each threshold's own value, b_k / ||g_k||^2. A mixture a has the value b'a / sqrt(a'Qa) with
    Q_kl = (g_k' g_l)^2, and its maximiser solves min a'Qa / 2 - b'a over a >= 0. Below the cut lies the share t_k of
    admissions, and for k before l, Q_kl is n^2 t_k^2 (1 - t_l)^2: up to scaling the covariance of Brownian motion at
    the times tau = (t / (1 - t))^2. Hence Qa is, up to the same scaling, the least concave nondecreasing majorant of
    b over tau, whose slopes are an antitonic regression: exact for every cut, in linear time, no solver.
    """
    from sklearn.isotonic import isotonic_regression

    t, rest = split / n, (n - split) / n
    height = gain * n * t / rest  # b_k / (1 - t_k)^2
    gap = np.diff((t / rest) ** 2, prepend=0.0)
    slope = isotonic_regression(np.diff(height, prepend=0.0) / gap, sample_weight=gap, y_min=0, increasing=False)
    return float(np.sqrt(slope**2 @ gap) / n), -np.diff(slope, append=0.0) / rest**2


@dataclass(frozen=True)
class Certificate:
    """How far one direction (an outcome, or the shared v) is a matter of one cut, and of one order."""

    name: str
    threshold: Threshold
    monotone: float  # the share of the bound that the best spacing of this order reaches; at least threshold.rho2
    nhsic: float | None  # of the score as it is; None for v
    n: int
    positives: int | None


@dataclass(frozen=True)
class Diagnosis:
    """The theory's figures for one score and several outcomes, on the admissions where all outcomes are known."""

    n: int
    outcomes: tuple[str, ...]
    left_out: dict[str, str]  # outcome -> why it could not take part
    weights: tuple[float, ...]
    protocol: str
    sigma: float
    floor: float
    singular_values: tuple[float, ...]
    loadings: tuple[float, ...]  # of the outcomes on the shared direction
    energy: float  # sigma_1^2 / ||W~||_F^2
    objective: float  # J, floored
    projected: float  # J_1, floored
    retention: float  # gamma = J_1 / J
    best_objective: Threshold  # j_J; rho2 is its share of the bound of J
    shared: Certificate  # v; its threshold is j_v
    tasks: tuple[Certificate, ...]
    scan: Scan = field(repr=False)  # columns: v, then the outcomes

    def tables(self) -> dict:
        """The paper's three diagnostic tables as pandas frames: rank_one, thresholds, outcomes."""
        import pandas as pd

        values = {f"sigma_{k}": value for k, value in enumerate(self.singular_values, start=1)}
        rank_one = {"n": self.n, **values, "energy": self.energy, "J": self.objective, "J1": self.projected}
        cuts = [("v", self.shared.threshold), ("J", self.best_objective)]
        return {
            "rank_one": pd.DataFrame([rank_one | {"gamma": self.retention, "bandwidth": self.sigma}]),
            "thresholds": pd.DataFrame(
                {"objective": name, "j": cut.split, "tail": cut.tail, "n": cut.n, "share": cut.share}
                | {"score": cut.score, "rho2": cut.rho2, "rising": cut.rising}
                for name, cut in cuts
            ),
            "outcomes": pd.DataFrame(
                {"outcome": task.name, "n": task.n, "positives": task.positives, "nhsic": task.nhsic}
                | {"rho2": task.threshold.rho2, "monotone": task.monotone, "score": task.threshold.score}
                | {"tail": task.threshold.tail, "rising": task.threshold.rising}
                for task in self.tasks
            ),
        }

    def to_dict(self) -> dict:
        """All but the scan, ready for JSON."""
        return {key: value for key, value in asdict(self).items() if key != "scan"}


def diagnose(
    score,
    outcomes,
    names: Sequence[str],
    *,
    weights=None,
    sigma: float | None = None,
    floor: float = FLOOR,
    protocol: Literal["exact", "paper"] = "exact",
    sample: int | None = None,
    seed: int = SEED,
) -> Diagnosis:
    """Diagnose a score on the admissions where every outcome is known.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN where not known.
        names: of the outcomes.
        weights: of the outcomes, by default equal.
        sigma: the bandwidth; by default the median of the scores' differences, at least 0.05 standard deviations.
        floor: the least value of the kernel's norm.
        protocol: "exact" takes all admissions and the scores as they are; "paper" follows the authors' diagnostics:
            `sample` admissions drawn at random, scores scaled to [-1, 1], bandwidth from 20,000 random pairs, no floor,
            cuts also between equal scores.
        sample: how many admissions to draw, by default all ("exact") or as many as the authors ("paper").
        seed: of that draw.

    Returns:
        What the score reaches of each outcome's bound, by one cut and by the best monotone spacing.

    >>> diagnosis = diagnose([1, 2, 3, 4], [[0, 0], [0, 1], [1, 1], [1, 1]], ["mortality", "long_stay"])
    >>> [task.name for task in diagnosis.tasks], diagnosis.n
    (['mortality', 'long_stay'], 4)
    """
    from mlci.measures.alignment import quadratic_forms, unit_bandwidth

    if protocol not in ("exact", "paper"):
        raise InputError(f"protocol: '{protocol}' is not known; allowed are exact, paper.")
    paper = protocol == "paper"
    score, outcomes, weight, left_out = _weighted(score, outcomes, names, weights)
    kept = tuple(weight)
    if paper:
        sample, floor = SAMPLE if sample is None else sample, 0.0
    if sample is not None and sample < len(score):
        rows = np.random.default_rng(seed).choice(len(score), sample, replace=False)
        score, outcomes, kept, more = complete(score[rows], outcomes[rows], kept)
        left_out |= more
    n, weights = len(score), np.array([weight[name] for name in kept])

    profiles = outcomes - outcomes.mean(axis=0)
    squares = (profiles**2).sum(axis=0)
    values, u = _singular(outcomes, weights)
    v = profiles @ (np.sqrt(weights / squares) * u) / values[0]
    directions = np.column_stack([v, profiles])
    cuts = scan(score, directions, ties="split" if paper else "keep")
    gains = cuts.rho**2
    if paper:
        score, sigma = _as_the_authors_scale(score, seed)
    elif sigma is None:
        sigma = unit_bandwidth(score)
    forms, norm = quadratic_forms(score, directions, kernel="rbf", sigma=sigma)
    norm = max(norm, floor)
    nhsic = forms[1:] / squares / norm
    objective, projected = float(weights @ nhsic), float(values[0] ** 2 * forms[0] / norm)
    certificates = [
        Certificate(
            name=name,
            threshold=cuts.best(column),
            monotone=_mixture(cuts.split, n, gains[:, column])[0],
            nhsic=float(nhsic[column - 1]) if column else None,
            n=n,
            positives=int(outcomes[:, column - 1].sum()) if column else None,
        )
        for column, name in enumerate(("v", *kept))
    ]
    return Diagnosis(
        n=n,
        outcomes=tuple(kept),
        left_out=left_out,
        weights=tuple(weights.tolist()),
        protocol=protocol,
        sigma=sigma,
        floor=floor,
        singular_values=tuple(values.tolist()),
        loadings=tuple(u.tolist()),
        energy=float(values[0] ** 2 / (values**2).sum()),
        objective=objective,
        projected=projected,
        retention=projected / objective if objective > 0 else float("nan"),
        best_objective=_best_cut(cuts, weights, values),
        shared=certificates[0],
        tasks=tuple(certificates[1:]),
        scan=cuts,
    )


def _best_cut(cuts: Scan, weights: np.ndarray, values: np.ndarray) -> Threshold:
    """The cut that serves all outcomes best: the weighted sum of their gains, as a share of the bound."""
    joint = (cuts.rho**2)[:, 1:] @ weights
    row = int(np.argmax(joint))
    return Threshold(
        split=int(cuts.split[row]),
        n=cuts.n,
        score=float(cuts.score[row]),
        rho2=float(joint[row] / np.sqrt((values**4).sum())),
        rising=bool(cuts.rho[row, 1:] @ weights > 0),
    )


def _as_the_authors_scale(score: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """Scores scaled to [-1, 1], and the median difference of random pairs as the bandwidth."""
    score = 2 * (score - score.min()) / np.ptp(score) - 1
    pairs = np.random.default_rng(seed).integers(0, len(score), (2, PAIRS))
    return score, float(np.median(np.abs(score[pairs[0]] - score[pairs[1]]))) or float(score.std())


@dataclass(frozen=True)
class Rate:
    """Events among admissions, with the 95% Wilson interval."""

    positives: int
    n: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.positives / self.n if self.n else float("nan")


@dataclass(frozen=True)
class Contrast:
    """One outcome on both sides of a cutoff, among the admissions where it is known."""

    outcome: str
    above: Rate
    below: Rate


@dataclass(frozen=True)
class Cutoff:
    """High severity is a score of at least `score`: the cut most aligned with the direction that all outcomes share."""

    score: float
    certificate: float  # rho*^2 of the shared direction v
    tail: int
    n: int
    contrasts: tuple[Contrast, ...]

    @property
    def share(self) -> float:
        return self.tail / self.n

    def flag(self, score) -> np.ndarray:
        return np.asarray(score, dtype=float) >= self.score

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping) -> "Cutoff":
        contrasts = tuple(
            Contrast(contrast["outcome"], Rate(**contrast["above"]), Rate(**contrast["below"]))
            for contrast in data["contrasts"]
        )
        fields: dict[str, Any] = {**data, "contrasts": contrasts}
        return cls(**fields)


def cutoff(score, outcomes, names: Sequence[str], *, weights=None) -> Cutoff:
    """Choose the high-severity cutoff: the cut most aligned with the direction that all outcomes share.

    Fit it on admissions that will not be used to judge it.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN where not known.
        names: of the outcomes.
        weights: of the outcomes, by default equal.

    >>> chosen = cutoff([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"])
    >>> chosen.score, chosen.share
    (3.0, 0.5)
    """
    known_score, known, weight, _ = _weighted(score, outcomes, names, weights)
    alpha = np.array(list(weight.values()))
    profiles = known - known.mean(axis=0)
    _, u = _singular(known, alpha)
    v = profiles @ (np.sqrt(alpha / (profiles**2).sum(axis=0)) * u)
    best = scan(known_score, v).best(0)
    score = np.asarray(score, dtype=float)
    tail = int((score >= best.score).sum())
    return Cutoff(best.score, best.rho2, tail, len(score), contrasts(score, outcomes, names, best.score))


def contrasts(score, outcomes, names: Sequence[str], threshold: float) -> tuple[Contrast, ...]:
    """Return each outcome's rate at or above a threshold of the score, and below it.

    >>> [contrast] = contrasts([1, 2, 3, 4], [0, 0, 0, 1], ["mortality"], 3)
    >>> contrast.above.rate, contrast.below.rate
    (0.5, 0.0)
    """
    above = np.asarray(score, dtype=float) >= threshold
    outcomes = _matrix(outcomes)

    def rate(values: np.ndarray) -> Rate:
        known = values[~np.isnan(values)]
        low, high = wilson(known.sum(), len(known))
        return Rate(int(known.sum()), len(known), float(low), float(high))

    return tuple(
        Contrast(name, rate(column[above]), rate(column[~above]))
        for name, column in zip(names, outcomes.T, strict=True)
    )


@dataclass(frozen=True)
class NoiseAverage:
    """What noise on the scores did to nHSIC, beside the lemma's bound; one entry per draw."""

    averaged: float  # nHSIC of the mean centred kernel
    tau: float  # norm of the mean centred kernel
    realised: np.ndarray  # nHSIC of the perturbed scores
    distance: np.ndarray  # ||K_c(s) - mean K_c||_F
    bound: np.ndarray  # 4 / tau * distance
    applies: np.ndarray  # the lemma speaks of draws with distance <= tau / 2


def noise_average(
    score, outcome, *, sd: float, rng: np.random.Generator, sigma: float, draws: int = 20, limit: int = 2_000
) -> NoiseAverage:
    """Add normal noise to the scores and compare what happens to nHSIC with the noise-averaging lemma.

    The RBF kernel's mean under normal noise is known exactly: away from the diagonal again an RBF, wider by the noise,
    and shrunk. The distance between kernels needs them whole, so at most `limit` admissions take part.

    Args:
        score: one number per admission.
        outcome: 0, 1, or NaN where not known.
        sd: of the noise.
        rng: draws the noise and, above `limit`, the admissions.
        sigma: the kernel's bandwidth.
        draws: of noise.
        limit: most admissions that take part.

    >>> import numpy as np
    >>> found = noise_average([1, 2, 3, 4], [0, 0, 1, 1], sd=0.01, rng=np.random.default_rng(0), sigma=1.0, draws=3)
    >>> bool((abs(found.realised - found.averaged) <= found.bound).all())
    True
    """
    score, outcomes, _, _ = complete(score, outcome, ["outcome"])
    if len(score) > limit:
        rows = rng.choice(len(score), limit, replace=False)
        score, outcomes, _, _ = complete(score[rows], outcomes[rows], ["outcome"])
    profile = outcomes[:, 0] - outcomes[:, 0].mean()
    profile /= np.sqrt(profile @ profile)

    def kernel(values: np.ndarray, variance: float) -> np.ndarray:
        return np.exp(-((values[:, None] - values) ** 2) / (2 * variance))

    def centred(gram: np.ndarray) -> np.ndarray:
        rows = gram.mean(axis=0)
        return gram - rows - rows[:, None] + rows.mean()

    wide = sigma**2 + 2 * sd**2
    mean = sigma / np.sqrt(wide) * kernel(score, wide)
    np.fill_diagonal(mean, 1.0)  # an admission keeps similarity 1 with itself whatever its noise
    mean = centred(mean)
    tau = float(np.linalg.norm(mean))
    realised, distance = np.empty(draws), np.empty(draws)
    for draw in range(draws):
        gram = centred(kernel(score + rng.normal(0, sd, len(score)), sigma**2))
        realised[draw] = profile @ gram @ profile / np.linalg.norm(gram)
        distance[draw] = np.linalg.norm(gram - mean)
    averaged = float(profile @ mean @ profile / tau)
    return NoiseAverage(averaged, tau, realised, distance, 4 / tau * distance, distance <= tau / 2)


def complete(score, outcomes, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], dict[str, str]]:
    """Return the admissions with a score and every outcome known, the outcomes that take part, and why others do not.

    An outcome that has one class only says nothing about order and has no centred profile. It may lose its other class
    because another outcome is unknown just there (who died was not discharged), so it is left out before the admissions
    are chosen anew.

    Returns:
        Scores, outcomes and names of what takes part; the reason by name for each outcome that does not.

    >>> score, outcomes, names, left_out = complete([1, 2, 3], [[0, 1], [1, 1], [1, 1]], ["mortality", "long_stay"])
    >>> names, left_out
    (('mortality',), {'long_stay': 'it is always present in 3 admissions'})
    """
    score, outcomes = np.asarray(score, dtype=float), _matrix(outcomes)
    if len(score) != len(outcomes):
        raise InputError(f"there are {len(score)} scores for {len(outcomes)} admissions; one each is needed.")
    kept, left_out = {}, {}
    for name, column in zip(names, outcomes.T, strict=True):
        known = column[np.isfinite(score) & ~np.isnan(column)]
        if not len(known):
            left_out[name] = "it is not known for any scored admission"
        elif known.min() == known.max():
            left_out[name] = f"it is {'always' if known[0] else 'never'} present in {len(known):,} admissions"
        else:
            kept[name] = column
    while kept:
        columns = np.column_stack(list(kept.values()))
        rows = np.isfinite(score) & ~np.isnan(columns).any(axis=1)
        single = [name for name, column in kept.items() if len(np.unique(column[rows])) < 2]
        if not single:
            return score[rows], columns[rows], tuple(kept), left_out
        for name in single:
            del kept[name]
            left_out[name] = f"it has one class only among the {rows.sum():,} admissions where all outcomes are known"
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    raise InputError(f"no outcome can be judged: {reasons}.")


def _weighted(
    score, outcomes, names: Sequence[str], weights
) -> tuple[np.ndarray, np.ndarray, dict[str, float], dict[str, str]]:
    """As `complete`, with the weight of each outcome that takes part; an outcome of weight 0 does not."""
    weight = dict(zip(names, _weights(weights, len(names)).tolist(), strict=True))
    used = [name for name in names if weight[name] > 0]
    columns = _matrix(outcomes)[:, [weight[name] > 0 for name in names]]
    score, outcomes, kept, left_out = complete(score, columns, used)
    left_out |= {name: "its weight is 0" for name in names if weight[name] == 0}
    return score, outcomes, {name: weight[name] for name in kept}, left_out


def _singular(outcomes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values of W~, largest first, and its leading left vector, from the T x T correlations of outcomes."""
    root = np.sqrt(weights)
    correlation = np.atleast_2d(np.corrcoef(outcomes, rowvar=False)) * np.outer(root, root)
    values, vectors = np.linalg.eigh(correlation)
    u = vectors[:, -1]
    return np.sqrt(values[::-1].clip(0)), u if u.sum() >= 0 else -u


def _matrix(outcomes) -> np.ndarray:
    outcomes = np.asarray(outcomes, dtype=float)
    return outcomes.reshape(len(outcomes), -1)


def _weights(weights, count: int) -> np.ndarray:
    weights = np.ones(count) if weights is None else np.asarray(weights, dtype=float)
    if weights.shape != (count,) or not (weights >= 0).all() or not weights.any():
        raise InputError(f"weights: {weights.tolist()} do not fit; allowed is one number per outcome, 0 or more.")
    return weights
