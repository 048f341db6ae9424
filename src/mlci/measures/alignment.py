"""Alignment of a score's kernel with an outcome: nHSIC, distance correlation, and the bandwidth.

Normalised HSIC (paper, Methodology, eq. nHSIC) is ⟨HKH, HLH⟩ / (‖HKH‖ ‖HLH‖) with the Gram matrices K of the score and
L of the outcome, the centring matrix H = I − 11ᵀ/n and Frobenius norms. For a binary outcome with centred profile
l = Hy, HLH is 2 l lᵀ. So nHSIC is A = lᵀKl / (‖HKH‖ ‖l‖²), for any kernel K of the score:

    rbf        exp(−(s−s')²/2σ²)                          the nHSIC that the index is trained on
    multi-rbf  mean of RBFs at σ/4, σ/2, σ, 2σ, 4σ
    energy     −|s−s'|                                     A is then exactly the squared distance correlation

No n × n matrix is ever stored.

*Energy*. With D the distances, −HDH = 2 Σₖ gₖ eₖeₖᵀ over the gaps gₖ of the sorted scores, where eₖ is the centred
indicator of lying above gap k. Since eₖ·eₗ is a product of tail counts, the norm is a running sum of positive terms.

*RBF*. The kernel of scores more than REACH bandwidths apart is 0, so wider gaps cut the scores into blocks, which
`_join` combines. Inside a block the kernel is expanded in Chebyshev polynomials Tₐ(x) = cos(a arccos x), exact to
TOLERANCE with a degree q that `_degree` derives from range/σ: K − 1 = T M Tᵀ. Hence ‖HKH‖² = tr(MGMG), where G is the
q × q covariance of the features. Where that costs more than summing over the pairs within REACH, these are summed.

    cost   n log n for the sort, then the lesser of  n q² + q³ (from q = MANY on n q + q³, G being made of 2q moments)
           and  the number of pairs within REACH, where q = 12 at a range of σ/10, 58 at 10σ, 4.6 range/σ far beyond;
           memory O(n) + O(CHUNK q)
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mlci.base.blas import single_thread
from mlci.base.errors import InputError
from mlci.measures._arrays import as_outcomes, as_scores, moderate, unit_of

Kernel = Literal["rbf", "multi-rbf", "energy"]
KERNELS = ("rbf", "multi-rbf", "energy")
FACTORS = {"rbf": (1.0,), "multi-rbf": (0.25, 0.5, 1.0, 2.0, 4.0)}  # bandwidths of the kernel, in units of sigma
REACH = 9.0  # bandwidths; exp(−9²/2) < 3e-18 is 0 to float64 precision
TOLERANCE = 1e-16  # of the Chebyshev expansion, relative to the kernel's variation over the block
CHUNK = 4096  # admissions whose features are held at once
MANY = 128  # degree from which moments are much cheaper than covariances
# Least mean variance of the features (1/2 for evenly spread scores) at which moments are accurate enough.
SPREAD = 0.05
SHARED = 2e9  # multiplications in a matrix product from which several BLAS threads pay off


def nhsic(score: Any, y: Any, *, sigma: float | None = None, kernel: Kernel = "rbf", floor: float = 0.0):
    """Return the normalised HSIC between a score and an outcome: 0 for independence, 1 for perfect alignment.

    Args:
        score: one number per admission.
        y: the outcome (0, 1, null where not known), or an n x T matrix of outcomes.
        sigma: the kernel's bandwidth in the score's units; by default `bandwidth(score)` standard deviations, which
            makes the result independent of those units.
        kernel: "rbf", "multi-rbf" (five bandwidths) or "energy" (the squared distance correlation).
        floor: the least value that the norm of the score's kernel may take (in training 1e-4).

    Returns:
        A float, or an array with one value per outcome of a matrix. Each outcome is judged on the admissions where it
        is known; fewer than three of them, a single class or a constant score give 0.

    >>> round(nhsic([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1]), 3)
    0.826
    >>> nhsic([1, 1, 1], [0, 1, 1])
    0.0
    """
    scores = as_scores(score)
    outcomes = as_outcomes(y, len(scores))
    check_kernel(kernel, sigma)
    if not floor and (sigma is None or kernel == "energy"):  # independent of units: avoid overflow
        scores = moderate(scores, 300)
    if sigma is None and kernel != "energy":
        sigma = unit_bandwidth(scores)
    values = np.zeros(outcomes.shape[1])
    for rows, columns in group_by_known(outcomes):
        known, profiles = (scores, outcomes) if rows.all() else (scores[rows], outcomes[rows])
        if len(known) < 3:
            continue
        profiles = profiles[:, columns]
        forms, norm = _forms(known, profiles, kernel, sigma)
        cases = profiles.sum(axis=0)
        scale = max(norm, floor) * cases * (1 - cases / len(known))  # ‖HKH‖ ‖l‖²
        values[columns] = np.clip(np.divide(forms, scale, out=np.zeros_like(forms), where=scale > 0), 0, 1)
    return values if np.ndim(y) == 2 else float(values[0])


def distance_correlation(score: Any, y: Any):
    """Return the distance correlation (biased, exponent 1) of a score with a binary outcome.

    Args:
        score: one number per admission.
        y: the outcome (0, 1, null where not known), or an n x T matrix of outcomes.

    Returns:
        A float between 0 and 1, or an array with one value per outcome of a matrix.

    >>> round(distance_correlation([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1]), 3)
    0.899
    """
    return np.sqrt(nhsic(score, y, kernel="energy")) if np.ndim(y) == 2 else nhsic(score, y, kernel="energy") ** 0.5


def quadratic_forms(
    score: Any, directions: Any, *, kernel: Kernel = "rbf", sigma: float | None = None
) -> tuple[np.ndarray, float]:
    """Return wᵀHKHw for each direction w, and the Frobenius norm of the centred kernel HKH of a score.

    Args:
        score: one number per admission.
        directions: n x m numbers, one direction per column; they are centred here.
        kernel: as in `nhsic`.
        sigma: as in `nhsic`.

    >>> import numpy as np
    >>> forms, norm = quadratic_forms([0.0, 1.0, 2.0], np.eye(3), kernel="energy")
    >>> forms.round(3), round(norm, 3)
    (array([1.111, 0.444, 1.111]), 2.108)
    """
    scores = as_scores(score)
    directions = np.asarray(directions, dtype=np.float64)
    if directions.ndim != 2 or len(directions) != len(scores):
        raise InputError(f"directions: has shape {directions.shape}; ({len(scores)}, any number) is needed.")
    check_kernel(kernel, sigma)
    if sigma is None and kernel != "energy":
        sigma = unit_bandwidth(scores)
    return _forms(scores, directions - directions.mean(axis=0), kernel, sigma)


def check_kernel(kernel: str, sigma: float | None) -> None:
    """Raise an error for an unknown `kernel`, or a bandwidth `sigma` that is not a positive number.

    >>> check_kernel("rbf", 0.5)
    >>> check_kernel("box", None)
    Traceback (most recent call last):
    mlci.base.errors.InputError: kernel: 'box' is not known; allowed are rbf, multi-rbf, energy.
    """
    if kernel not in KERNELS:
        raise InputError(f"kernel: '{kernel}' is not known; allowed are {', '.join(KERNELS)}.")
    if sigma is not None and not (np.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma: {sigma} is not a positive number.")


def group_by_known(outcomes: np.ndarray) -> list[tuple[np.ndarray, list[int]]]:
    """Group outcomes that are known for the same admissions, so that the work on the score is done once per group.

    Returns:
        Pairs of a mask over admissions and the columns of the outcomes that are known exactly there.

    >>> import numpy as np
    >>> [(rows.tolist(), columns) for rows, columns in group_by_known(np.array([[0, 1, np.nan], [1, 1, 0]]))]
    [([True, True], [0, 1]), ([False, True], [2])]
    """
    groups: dict[bytes, tuple[np.ndarray, list[int]]] = {}
    for column, known in enumerate(~np.isnan(outcomes).T):
        groups.setdefault(known.tobytes(), (known, []))[1].append(column)
    return list(groups.values())


def _forms(scores: np.ndarray, directions: np.ndarray, kernel: str, sigma: float | None) -> tuple[np.ndarray, float]:
    """Return quadratic forms and norm; equal scores are merged, since the kernel cannot tell them apart."""
    order = np.argsort(scores)
    values, sums, mass = scores[order], directions[order], np.ones(len(scores))
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    if len(starts) < 2:
        return np.zeros(directions.shape[1]), 0.0
    if len(starts) < len(values):
        mass = np.diff(np.r_[starts, len(values)]).astype(np.float64)
        values, sums = values[starts], np.add.reduceat(sums, starts)
    if kernel == "energy":
        unit = unit_of(values)  # differences neither overflow nor become denormal
        forms, norm = energy(np.diff(values / unit), mass, sums.T)
        with np.errstate(over="ignore"):
            return forms * unit, float(norm * unit)
    sums = sums - mass[:, None] * (sums.sum(axis=0) / len(scores))
    forms, norm = rbf(values, mass[:, None], sums[:, None], kernel, sigma)
    return forms[0], float(norm[0])


def energy(gaps: np.ndarray, mass: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lᵀKl and ‖HKH‖ of the energy kernel over distinct sorted values.

    With gap gₖ, n the total mass, bₖ the mass up to gap k and Lₖ the centred running sum of the direction: lᵀKl = 2 Σ
    gₖ Lₖ², and ‖HKH‖² = 4 Σ gₖ gₗ (min(bₖ, bₗ) (n − max(bₖ, bₗ)) / n)².

    Args:
        gaps: between neighbouring values, along the last axis; leading axes are broadcast.
        mass: the mass at each value.
        sums: the sum of the direction at each value. It is centred here: running sums of whole numbers (outcomes,
            resampled or not) are exact, those of a centred profile accumulate rounding errors.

    >>> forms, norm = energy(np.array([1.0]), np.array([1.0, 1.0]), np.array([0.0, 1.0]))
    >>> float(forms), float(norm)
    (0.5, 1.0)
    """
    below, reached = np.cumsum(mass, axis=-1), np.cumsum(sums, axis=-1)
    mean = reached[..., -1:] / below[..., -1:]
    reached = reached[..., :-1]
    reached -= mean * below[..., :-1]  # in place: memory traffic is what this costs
    reached *= reached
    return 2 * _dot(reached, gaps), energy_norm(gaps, below)


def energy_norm(gaps: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return ‖HKH‖ of `energy` alone.

    Args:
        gaps: between neighbouring values.
        below: the running sum of `mass`.

    >>> float(energy_norm(np.array([1.0]), np.array([1, 2])))  # of two admissions, 1 apart: |HKH| is 1
    1.0
    """
    n = below[..., -1:]
    own = below[..., :-1] / n
    own *= own
    own *= gaps
    lower = np.cumsum(own, axis=-1)
    lower *= 2
    lower -= own
    beyond = np.subtract(n, below[..., :-1], out=own)
    beyond *= beyond
    beyond *= lower
    return 2 * np.sqrt(_dot(beyond, gaps))


def _dot(rows: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    return rows @ gaps if gaps.ndim == 1 else np.einsum("...k,...k->...", rows, gaps)


@dataclass(frozen=True)
class _Blocks:
    """What `_join` needs of K in each block: K_ij = mean + u_i + u_j + rest_ij, with u and rest centred in the block.

    Per block and weighting: mass, mean, uu = Σ u², rr = ‖rest‖². Per block, weighting and direction: s = Σ l, lu = lᵀu,
    lr = lᵀ rest l.
    """

    mass: np.ndarray
    mean: np.ndarray
    uu: np.ndarray
    rr: np.ndarray
    s: np.ndarray
    lu: np.ndarray
    lr: np.ndarray


def _join(parts: list[_Blocks]) -> tuple[np.ndarray, np.ndarray]:
    """Return the forms and the norm of a block-diagonal K, centred as a whole.

    Every term is positive, so an outlier far away costs no digits.
    """
    mass, mean, uu, rr, s, lu, lr = (
        np.concatenate([getattr(part, name) for part in parts]) for name in _Blocks.__dataclass_fields__
    )
    n = mass.sum(axis=0)
    spread = mass * ((n - mass) / n)  # squared norm of the block's centred indicator; 0 for a single block
    pull = -np.sort(-mean * mass**2, axis=0)
    cross = 2 * np.sum(pull[1:] * np.cumsum(pull, axis=0)[:-1], axis=0) / n**2
    squared = (rr + 2 * uu * spread + (mean * spread) ** 2).sum(axis=0) + cross
    forms = (mean[..., None] * s**2 + 2 * s * lu + lr).sum(axis=0)
    return np.maximum(forms, 0), np.sqrt(squared)


def rbf(values: np.ndarray, mass: np.ndarray, sums: np.ndarray, kernel: str, sigma: float | None):
    """Return lᵀKl (b x m) and ‖HKH‖ (b) of a Gaussian kernel over k distinct sorted values, for b weightings.

    Args:
        values: k distinct sorted values.
        mass: the mass at each value, k x b.
        sums: the sums of m centred directions at each value, k x b x m.
        kernel: rbf or multi-rbf.
        sigma: its bandwidth.

    >>> forms, norms = rbf(np.array([0.0, 1.0]), np.ones((2, 1)), np.array([[[-0.5]], [[0.5]]]), "rbf", 1.0)
    >>> forms.round(3).tolist(), norms.round(3).tolist()
    ([[0.197]], [0.393])
    """
    unit = np.abs(values).max()
    values = values / unit
    with np.errstate(over="ignore"):  # squares of distances beyond REACH
        widths = np.clip(np.array(FACTORS[kernel]) * (np.float64(sigma) / unit), np.finfo(float).tiny, 1e150)
        starts = np.flatnonzero(np.r_[True, np.diff(values) > REACH * widths.max()])
        stops = np.r_[starts[1:], len(values)]
        first = np.searchsorted(values, values - REACH * widths.max())
        pairs = np.add.reduceat(np.arange(len(values)) - first, starts) * 2
        parts, slow = [], np.zeros(len(values), dtype=bool)
        for start, stop, count in zip(starts, stops, pairs):
            size = stop - start
            # Costs in nanoseconds on one core: 0.1 for a multiply-add, 2 for a feature, 7 for a pair of the window.
            degree = 0 if size < 64 else _degree((values[stop - 1] - values[start]) / 2 / widths.min())
            squared = size if degree < MANY else 0
            features = 2 * (size + squared) * degree
            if size < 64 or 7 * len(widths) * count < 0.1 * (squared + 2 * degree) * degree**2 + features:
                slow[start:stop] = True
            else:
                rows = slice(start, stop)
                parts.append(_polynomial(values[rows], mass[rows], sums[rows], widths, degree))
        if slow.any():
            parts.append(_windowed(values[slow], mass[slow], sums[slow], widths))
        return _join(parts)


def _degree(half: float) -> int:
    """Return the degree at which the Chebyshev tail of K − 1, over a block of this half-width, is below TOLERANCE.

    On Bernstein's ellipse of parameter e^τ, whose half-height is sinh τ, |exp(z) − 1| ≤ |z| exp(max(Re z, 0)) bounds
    the function by half²(1 + cosh τ)²/2 · exp(half² sinh²τ / 2), and coefficient a is at most 2 e^(−aτ) times that.
    Every τ gives a valid degree; the least of them is returned. The bound is relative to half²/2, the size of K − 1.
    """
    tau = np.geomspace(1e-4, 30, 400)
    growth = np.log(2 * (1 + np.cosh(tau)) ** 2 / -np.expm1(-tau)) + half**2 * np.sinh(tau) ** 2 / 2
    return int(np.ceil(np.min((growth - np.log(TOLERANCE)) / tau))) + 1


def _features(x: np.ndarray, degree: int) -> np.ndarray:
    """Return T_0 ... T_degree at x in [−1, 1], one row each."""
    rows = np.empty((degree + 1, *x.shape))
    rows[0], rows[1] = 1, x
    twice = 2 * x
    for a in range(2, degree + 1):
        np.multiply(rows[a - 1], twice, out=rows[a])
        rows[a] -= rows[a - 2]
    return rows


def _coefficients(half: float, widths: np.ndarray, degree: int) -> np.ndarray:
    """Return M with K(x, x') − 1 = Σ M_ab T_a(x) T_b(x') on [−1, 1], interpolated at Chebyshev points."""
    angles = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    nodes = np.cos(angles)
    kernel = _less_one(half * (nodes[:, None] - nodes), widths)
    transform = np.cos(np.arange(degree + 1)[:, None] * angles) * (2 / (degree + 1))
    transform[0] /= 2
    return transform @ kernel @ transform.T


def _less_one(differences: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return K − 1: centring removes the 1, but near 0 it would cost digits."""
    return np.add.reduce([np.expm1(-0.5 * (differences / width) ** 2) for width in widths]) / len(widths)


def _polynomial(values, mass, sums, widths, degree: int) -> _Blocks:
    """Return a block by Chebyshev expansion; small matrix products use one BLAS thread."""
    small = degree**2 * CHUNK < SHARED
    with single_thread() if small else nullcontext():
        return _expanded(values, mass, sums, widths, degree)


def _expanded(values, mass, sums, widths, degree: int) -> _Blocks:
    """Return a block by Chebyshev expansion, with the covariance of the features from data or from moments."""
    half = (values[-1] - values[0]) / 2
    x = np.clip((values - values[0]) / half - 1, -1, 1)
    matrix = _coefficients(half, widths, degree)
    chunks = [slice(start, start + CHUNK) for start in range(0, len(x), CHUNK)]
    weightings = mass.shape[1]
    from_data = weightings == 1 and degree < MANY
    moments, beyond = np.zeros((degree + 1, weightings)), np.zeros((degree + 1, weightings))
    along = np.zeros((degree + 1, sums[0].size))
    for rows in chunks:
        basis = _features(x[rows], degree)
        moments += basis @ mass[rows]
        if not from_data:
            beyond += basis @ (mass[rows] * basis[degree][:, None])
        along += basis @ sums[rows].reshape(-1, sums[0].size)
    if not from_data:  # T_(q+a) = 2 T_q T_a − T_(q−a)
        moments = np.concatenate([moments, 2 * beyond[1:] - moments[degree - 1 :: -1]])
    total = moments[0]
    mean = moments[: degree + 1] / np.maximum(total, 1e-300)
    if not from_data:  # T_a T_b = (T_(a+b) + T_|a−b|) / 2: all covariances of a weighting from 2q moments
        a = np.arange(degree + 1)
        products = (moments[a[:, None] + a] + moments[np.abs(a[:, None] - a)]) / 2
        gram = np.moveaxis(products - total * mean[:, None] * mean, 2, 0)
        from_data = weightings == 1 and np.einsum("baa->", gram) < SPREAD * total[0] * degree
    if from_data:  # the covariance itself, to the last digits
        gram = np.zeros((1, degree + 1, degree + 1))
        for rows in chunks:
            centred = (_features(x[rows], degree) - mean) * np.sqrt(mass[rows, 0])
            gram[0] += centred @ centred.T  # BLAS computes half of this symmetric product
    s = sums.sum(axis=0)
    along = along.reshape(degree + 1, *s.shape) - mean[..., None] * s
    toward = matrix @ mean
    product = matrix @ gram
    return _Blocks(
        mass=total[None],
        mean=1 + np.sum(mean * toward, axis=0)[None],
        uu=np.einsum("ab,bac,cb->b", toward, gram, toward)[None],
        rr=np.maximum(np.sum(product * product.swapaxes(1, 2), axis=(1, 2)), 0)[None],
        s=s[None],
        lu=np.einsum("ab,abm->bm", toward, along)[None],
        lr=np.einsum("abm,ac,cbm->bm", along, matrix, along, optimize=True)[None],
    )


def _windowed(values, mass, sums, widths) -> _Blocks:
    """Return blocks by summing over pairs within REACH, in rectangles of sorted rows and the columns they reach."""
    window = REACH * widths.max()
    starts = np.flatnonzero(np.r_[True, np.diff(values) > window])
    sizes = np.diff(np.r_[starts, len(values)])
    # In a block narrower than the window all pairs are within reach, so K − 1 can be used, which keeps more digits.
    narrow = values[starts + sizes - 1] - values[starts] <= window
    offset = np.repeat(np.where(narrow, 0.0, 1.0), sizes)
    first = np.searchsorted(values, values - window)
    last = np.searchsorted(values, values + window, side="right")
    right = np.concatenate([mass, sums.reshape(len(values), -1)], axis=1)
    products, squares = np.empty_like(right), np.empty_like(mass)
    start = 0
    while start < len(values):
        stop = min(len(values), start + max(16, min(512, last[start] - start)))
        columns = slice(first[start], last[stop - 1])
        differences = values[start:stop, None] - values[columns]
        kernel = _less_one(differences, widths) + offset[start:stop, None]
        kernel[np.abs(differences) > window] = 0
        products[start:stop] = kernel @ right[columns]
        squares[start:stop] = kernel**2 @ mass[columns]
        start = stop
    total = np.add.reduceat(mass, starts)
    divisor = np.maximum(total, 1e-300)
    rows = products[:, : mass.shape[1]] / np.repeat(divisor, sizes, axis=0)
    mean = np.add.reduceat(mass * rows, starts) / divisor
    u = rows - np.repeat(mean, sizes, axis=0)
    uu = np.add.reduceat(mass * u**2, starts)
    s = np.add.reduceat(sums, starts)
    lu = np.add.reduceat(sums * u[..., None], starts)
    form = np.add.reduceat(sums * products[:, mass.shape[1] :].reshape(sums.shape), starts)
    return _Blocks(
        mass=total,
        mean=mean + narrow[:, None],
        uu=uu,
        rr=np.maximum(np.add.reduceat(mass * squares, starts) - 2 * total * uu - (total * mean) ** 2, 0),
        s=s,
        lu=lu,
        lr=form - 2 * s * lu - mean[..., None] * s**2,
    )


def unit_bandwidth(scores: np.ndarray) -> float:
    """Return the reference bandwidth of `scores` in their own units; the smallest positive number for a constant score.

    >>> import numpy as np
    >>> round(float(unit_bandwidth(np.array([0.0, 10.0, 20.0, 30.0]))), 6)
    15.0
    """
    unit = np.abs(scores).max() or 1.0
    return max(bandwidth(scores) * float(np.std(scores / unit)) * unit, np.finfo(float).tiny)


def bandwidth(
    scores: Any, *, standardise: bool = True, floor: float = 0.05, subsample: int | None = None, seed: int = 12345
) -> float:
    """Return the paper's reference bandwidth: the median nonzero |difference| of the standardised scores.

    See the paper's appendix Bandwidth selection.

    Args:
        scores: one number per admission. The median is exact over all pairs, in O(n log n).
        standardise: whether to standardise the scores first.
        floor: the least bandwidth.
        subsample: how many scores to draw without replacement first (the paper draws 20,000); None takes all.
        seed: seed of that draw.

    >>> round(bandwidth([0, 10, 20, 30]), 3)
    1.342
    """
    values = as_scores(scores, "scores")
    if standardise:
        values = values / (np.abs(values).max() or 1.0)
        values = (values - values.mean()) / (values.std() or 1.0)
    if subsample is not None and subsample < len(values):
        values = values[np.random.default_rng(seed).choice(len(values), subsample, replace=False)]
    return max(float(floor), _median_difference(values))


def _median_difference(values: np.ndarray) -> float:
    """Return the exact median of the nonzero pairwise |differences|.

    Sampled pivots narrow the range that contains it until few candidate pairs are left, which are then sorted.
    """
    values, counts = np.unique(values, return_counts=True)
    cumulative = np.r_[0, np.cumsum(counts)]  # admissions before the i-th distinct value
    n = int(cumulative[-1])
    pairs = (n * n - int((counts.astype(np.int64) ** 2).sum())) // 2
    if not pairs:
        return 0.0

    def apart(bound: float) -> tuple[np.ndarray, np.ndarray]:
        """Return for each value the first later one that differs by at least `bound`, and the first by more than it."""
        index = np.maximum(np.searchsorted(values, values + bound), rows + 1)
        while True:  # the sum above is rounded, so correct by the differences themselves
            up = (index < len(values)) & (values[np.minimum(index, len(values) - 1)] - values < bound)
            down = (index > rows + 1) & (values[index - 1] - values >= bound)
            if not (up.any() or down.any()):
                break
            index = index + up - down
        more = index
        while (same := (more < len(values)) & (values[np.minimum(more, len(values) - 1)] - values == bound)).any():
            more = more + same
        return index, more

    def count(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return counts * (cumulative[high] - cumulative[low])

    rows = np.arange(len(values))
    low, high = rows + 1, np.full(len(values), len(values))  # candidates of row i: columns low_i ... high_i − 1
    rank = (pairs - 1) // 2
    below = 0  # pairs smaller than every candidate
    rng = np.random.default_rng(0)
    while (high - low).sum() > max(4 * len(values), 1 << 16):
        reach = np.cumsum(count(low, high))
        drawn = np.sort(rng.integers(reach[-1], size=1 << 17))
        row = np.searchsorted(reach, drawn, side="right")
        offset = (drawn - (reach[row] - count(low, high)[row])) // counts[row]
        column = np.searchsorted(cumulative, cumulative[low[row]] + offset, side="right") - 1
        seen = np.sort(values[column] - values[row])
        place = (rank - below) / reach[-1] * len(seen)
        for pivot in seen[np.clip([int(place - 750), int(place + 750)], 0, len(seen) - 1)]:
            least, most = apart(pivot)
            start, stop = int(count(rows + 1, least).sum()), int(count(rows + 1, most).sum())
            if rank < start:
                high = np.minimum(high, np.maximum(least, low))
            elif rank >= stop:
                low, below = np.maximum(low, np.minimum(most, high)), stop
            else:
                return _middle(pivot, rank, stop, pairs, values, most)
    width = high - low
    row = np.repeat(rows, width)
    column = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width - low, width)
    difference = values[column] - values[row]
    order = np.argsort(difference, kind="stable")
    reached = below + np.cumsum((counts[row] * counts[column])[order])
    pivot = difference[order][np.searchsorted(reached, rank, side="right")]
    most = apart(pivot)[1]
    return _middle(pivot, rank, int(count(rows + 1, most).sum()), pairs, values, most)


def _middle(pivot: float, rank: int, stop: int, pairs: int, values: np.ndarray, most: np.ndarray) -> float:
    """Return the lower median difference, or its mean with the next one if the number of pairs is even."""
    if pairs % 2 or rank + 1 < stop:
        return float(pivot)
    left = most < len(values)
    return float((pivot + np.min(values[most[left]] - values[left])) / 2)
