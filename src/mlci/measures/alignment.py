"""Alignment of a score's kernel with an outcome: nHSIC, distance correlation, and the bandwidth.

Scores and outcomes come in, numbers go out. For a binary outcome with centred profile l the centred label Gram matrix
is 2 l lᵀ, so that normalised HSIC is A = lᵀKl / (‖HKH‖ ‖l‖²) for whatever kernel K the score is given:

    rbf        exp(−(s−s')²/2σ²)                          the nHSIC that the index is trained on
    multi-rbf  mean of RBFs at σ/4, σ/2, σ, 2σ, 4σ
    energy     −|s−s'|                                     A is then exactly the squared distance correlation

No n × n matrix is ever held. *Energy*: −HDH = 2 Σₖ gₖ eₖeₖᵀ over the gaps gₖ of the sorted scores, with eₖ the centred
indicator of "beyond gap k"; since eₖ·eₗ is a product of tail counts, the norm is one running sum of positive terms.
*RBF*: scores more than REACH bandwidths apart do not see each other, so wider gaps cut the scores into blocks that are
put together again by `_join`. Inside a block the kernel is a polynomial in Chebyshev's basis Tₐ(x) = cos(a arccos x),
exact to TOLERANCE with a degree q that `_degree` derives from range/σ: K − 1 = T M Tᵀ, hence ‖HKH‖² = tr(MGMG) with
G the q × q covariance of the features. Where that costs more than summing the pairs within REACH, these are summed.

    cost   n log n for the sort, then the lesser of  n q² + q³  (q ≈ 12 for range ≪ σ, ≈ 4.3 range/σ beyond)  and
           the number of pairs within REACH;  memory O(n) + O(CHUNK q)
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mlci.errors import InputError
from mlci.measures.arrays import as_outcomes, as_scores

Kernel = Literal["rbf", "multi-rbf", "energy"]
KERNELS = ("rbf", "multi-rbf", "energy")
FACTORS = {"rbf": (1.0,), "multi-rbf": (0.25, 0.5, 1.0, 2.0, 4.0)}  # bandwidths of the kernel, in units of sigma
REACH = 9.0  # exp(−9²/2) < 3e-18: beyond, two scores share nothing that float64 could hold
TOLERANCE = 1e-16  # of the Chebyshev expansion, relative to the kernel's variation over the block
CHUNK = 4096


def nhsic(score: Any, y: Any, *, sigma: float | None = None, kernel: Kernel = "rbf", floor: float = 0.0):
    """Normalised HSIC between a score and an outcome: a float, or an array for an n x T matrix of outcomes.

    Each outcome is judged on its own valid (non-null) admissions; fewer than three of them, a single class or a
    constant score give 0. `sigma` is in the score's units; without it, it is `bandwidth(score)` standard deviations,
    which makes the figure independent of those units. `floor` is the least value the score's norm may take (in
    training 1e-4).
    """
    scores = as_scores(score)
    outcomes = as_outcomes(y, len(scores))
    check_kernel(kernel, sigma)
    if sigma is None and kernel != "energy":
        sigma = unit_bandwidth(scores)
    values = np.zeros(outcomes.shape[1])
    for rows, columns in alike(outcomes):
        profiles = outcomes[rows][:, columns]
        if len(profiles) < 3:
            continue
        profiles = profiles - profiles.mean(axis=0)
        forms, norm = _forms(scores[rows], profiles, kernel, sigma)
        scale = max(norm, floor) * (profiles**2).sum(axis=0)
        values[columns] = np.clip(np.divide(forms, scale, out=np.zeros_like(forms), where=scale > 0), 0, 1)
    return values if np.ndim(y) == 2 else float(values[0])


def distance_correlation(score: Any, y: Any):
    """Distance correlation (biased, exponent 1) of a score with a binary outcome, or with each of a matrix of them."""
    return np.sqrt(nhsic(score, y, kernel="energy")) if np.ndim(y) == 2 else nhsic(score, y, kernel="energy") ** 0.5


def quadratic_forms(
    score: Any, directions: Any, *, kernel: Kernel = "rbf", sigma: float | None = None
) -> tuple[np.ndarray, float]:
    """wᵀ K_c w for each column w of `directions` (n x m; centred here), and the Frobenius norm of K_c = HKH."""
    scores = as_scores(score)
    directions = np.asarray(directions, dtype=np.float64)
    if directions.ndim != 2 or len(directions) != len(scores):
        raise InputError(f"directions: has shape {directions.shape}; ({len(scores)}, any number) is needed.")
    check_kernel(kernel, sigma)
    if sigma is None and kernel != "energy":
        sigma = unit_bandwidth(scores)
    return _forms(scores, directions - directions.mean(axis=0), kernel, sigma)


def check_kernel(kernel: str, sigma: float | None) -> None:
    if kernel not in KERNELS:
        raise InputError(f"kernel: '{kernel}' is not known; allowed are {', '.join(KERNELS)}.")
    if sigma is not None and not (np.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma: {sigma} is not a positive number.")


def alike(outcomes: np.ndarray) -> list[tuple[np.ndarray, list[int]]]:
    """Outcomes known for the same admissions, together: (admissions, columns). What the score brings is then shared."""
    groups: dict[bytes, tuple[np.ndarray, list[int]]] = {}
    for column, known in enumerate(~np.isnan(outcomes).T):
        groups.setdefault(known.tobytes(), (known, []))[1].append(column)
    return list(groups.values())


def _forms(scores: np.ndarray, directions: np.ndarray, kernel: str, sigma: float | None) -> tuple[np.ndarray, float]:
    """Quadratic forms and norm for centred directions; equal scores are merged, since K cannot tell them apart."""
    values, inverse, mass = np.unique(scores, return_inverse=True, return_counts=True)
    if len(values) < 2:
        return np.zeros(directions.shape[1]), 0.0
    sums = np.column_stack([np.bincount(inverse, column, len(values)) for column in directions.T])
    unit = np.abs(values).max()  # so that no difference overflows or loses digits among the denormals
    values, mass = values / unit, mass.astype(np.float64)
    if kernel == "energy":
        forms, norm = _energy(np.diff(values), mass, sums)
        with np.errstate(over="ignore"):
            return forms * unit, float(norm * unit)
    with np.errstate(over="ignore"):
        widths = np.clip(np.array(FACTORS[kernel]) * (np.float64(sigma) / unit), np.finfo(float).tiny, 1e150)
        return _rbf(values, mass, sums, widths)


def _energy(gaps: np.ndarray, mass: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, float]:
    n = mass.sum()
    below = np.cumsum(mass)[:-1]
    beyond = n - below
    forms = 2 * gaps @ np.cumsum(sums, axis=0)[:-1] ** 2
    lower = np.cumsum(gaps * (below / n) ** 2)  # Σ over gaps k ≤ l
    own = gaps * (below / n) ** 2
    squared = np.sum(gaps * beyond**2 * (2 * lower - own))
    return forms, 2 * squared**0.5


@dataclass(frozen=True)
class _Blocks:
    """What `_join` needs of K within each block: K_ij = mean + u_i + u_j + rest_ij, u and rest centred in the block.

    mass, mean, uu = Σ u², rr = ‖rest‖², one per block; s = Σ l, lu = lᵀu, lr = lᵀ rest l, blocks x directions.
    """

    mass: np.ndarray
    mean: np.ndarray
    uu: np.ndarray
    rr: np.ndarray
    s: np.ndarray
    lu: np.ndarray
    lr: np.ndarray


def _join(parts: list[_Blocks]) -> tuple[np.ndarray, float]:
    """Centring the whole of a block-diagonal K. Every term is positive, so that a far outlier costs no digits."""
    mass, mean, uu, rr, s, lu, lr = (
        np.concatenate([getattr(part, name) for part in parts]) for name in _Blocks.__dataclass_fields__
    )
    n = mass.sum()
    order = np.argsort(-mass)
    spread = mass * ((n - mass) / n)  # ‖g_b‖² of the block's centred indicator; 0 when there is but one block
    pull = (mean * mass**2)[order]
    cross = 2 * np.sum(pull[1:] * np.cumsum(pull)[:-1]) / n**2
    squared = rr.sum() + 2 * (uu * spread).sum() + ((mean * spread) ** 2).sum() + cross
    forms = (mean[:, None] * s**2 + 2 * s * lu + lr).sum(axis=0)
    return np.maximum(forms, 0), float(squared**0.5)


def _rbf(values: np.ndarray, mass: np.ndarray, sums: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, float]:
    window = REACH * widths.max()
    starts = np.flatnonzero(np.r_[True, np.diff(values) > window])
    stops = np.r_[starts[1:], len(values)]
    first = np.searchsorted(values, values - window)
    pairs = np.add.reduceat(np.arange(len(values)) - first, starts) * 2
    parts, slow = [], np.zeros(len(values), dtype=bool)
    for start, stop, count in zip(starts, stops, pairs):
        size = stop - start
        # Nanoseconds on one core: 0.1 for a multiply-add, 2 for a feature, 6 for an exponential.
        degree = 0 if size < 64 else _degree((values[stop - 1] - values[start]) / 2 / widths.min())
        if size < 64 or 6 * len(widths) * count < 0.1 * (size + 2 * degree) * degree**2 + 2 * size * degree:
            slow[start:stop] = True
        else:
            rows = slice(start, stop)
            parts.append(_polynomial(values[rows], mass[rows], sums[rows], widths, degree))
    if slow.any():
        parts.append(_windowed(values[slow], mass[slow], sums[slow], widths))
    return _join(parts)


def _degree(half: float) -> int:
    """Degree at which the Chebyshev tail of K − 1 over a block of half-width `half` (in bandwidths) is below TOLERANCE.

    On Bernstein's ellipse of parameter e^τ, whose half-height is sinh τ, |exp(z) − 1| ≤ |z| exp(max(Re z, 0)) bounds
    the function by half²(1 + cosh τ)²/2 · exp(half² sinh²τ / 2), and coefficient a is at most 2 e^(−aτ) times that:
    any τ gives a valid degree, the least of them is taken. The bound is relative to half²/2, the size of K − 1.
    """
    tau = np.geomspace(1e-4, 30, 400)
    growth = np.log(2 * (1 + np.cosh(tau)) ** 2 / -np.expm1(-tau)) + half**2 * np.sinh(tau) ** 2 / 2
    return int(np.ceil(np.min((growth - np.log(TOLERANCE)) / tau))) + 1


def features(x: np.ndarray, degree: int) -> np.ndarray:
    """T_0 ... T_degree at x in [−1, 1], one row each."""
    rows = np.empty((degree + 1, *x.shape))
    rows[0], rows[1] = 1, x
    for a in range(2, degree + 1):
        np.multiply(rows[a - 1], 2 * x, out=rows[a])
        rows[a] -= rows[a - 2]
    return rows


def coefficients(half: float, widths: np.ndarray, degree: int) -> np.ndarray:
    """M with K(x, x') − 1 = Σ M_ab T_a(x) T_b(x') on a block scaled to [−1, 1]: interpolation in Chebyshev points."""
    angles = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    nodes = np.cos(angles)
    kernel = _less_one(half * (nodes[:, None] - nodes), widths)
    transform = np.cos(np.arange(degree + 1)[:, None] * angles) * (2 / (degree + 1))
    transform[0] /= 2
    return transform @ kernel @ transform.T


def _less_one(differences: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """K − 1: centring removes the 1, and near 0 its digits would be lost."""
    return np.add.reduce([np.expm1(-0.5 * (differences / width) ** 2) for width in widths]) / len(widths)


def _polynomial(values, mass, sums, widths, degree: int) -> _Blocks:
    half = (values[-1] - values[0]) / 2
    x = np.clip((values - values[0]) / half - 1, -1, 1)
    matrix = coefficients(half, widths, degree)
    chunks = [slice(start, start + CHUNK) for start in range(0, len(x), CHUNK)]
    total = mass.sum()
    mean = sum(features(x[rows], degree) @ mass[rows] for rows in chunks) / total
    gram = np.zeros((degree + 1, degree + 1))
    lt = np.zeros((degree + 1, sums.shape[1]))
    for rows in chunks:
        centred = features(x[rows], degree) - mean[:, None]
        gram += (centred * mass[rows]) @ centred.T
        lt += centred @ sums[rows]
    toward = matrix @ mean
    product = matrix @ gram
    one = np.ones(1)
    return _Blocks(
        mass=total * one,
        mean=(1 + mean @ toward) * one,
        uu=toward @ gram @ toward * one,
        rr=np.sum(product * product.T) * one,
        s=sums.sum(axis=0)[None],
        lu=(toward @ lt)[None],
        lr=np.sum(lt * (matrix @ lt), axis=0)[None],
    )


def _windowed(values, mass, sums, widths) -> _Blocks:
    """Sum over the pairs within REACH, in rectangles of sorted rows and the columns they reach."""
    window = REACH * widths.max()
    starts = np.flatnonzero(np.r_[True, np.diff(values) > window])
    sizes = np.diff(np.r_[starts, len(values)])
    # A block narrower than the window has all its pairs within reach: its K − 1 keeps the digits that K would lose.
    narrow = values[starts + sizes - 1] - values[starts] <= window
    offset = np.repeat(np.where(narrow, 0.0, 1.0), sizes)
    first = np.searchsorted(values, values - window)
    last = np.searchsorted(values, values + window, side="right")
    right = np.column_stack([mass, sums])
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
    rows = products[:, 0] / np.repeat(total, sizes)
    mean = np.add.reduceat(mass * rows, starts) / total
    u = rows - np.repeat(mean, sizes)
    uu = np.add.reduceat(mass * u**2, starts)
    s = np.add.reduceat(sums, starts)
    lu = np.add.reduceat(sums * u[:, None], starts)
    form = np.add.reduceat(sums * products[:, 1:], starts)
    return _Blocks(
        mass=total,
        mean=mean + narrow,
        uu=uu,
        rr=np.maximum(np.add.reduceat(mass * squares, starts) - 2 * total * uu - (total * mean) ** 2, 0),
        s=s,
        lu=lu,
        lr=form - 2 * s * lu - mean[:, None] * s**2,
    )


def unit_bandwidth(scores: np.ndarray) -> float:
    """The reference bandwidth in the score's own units; any positive number for a constant score."""
    unit = np.abs(scores).max() or 1.0
    return max(bandwidth(scores) * float(np.std(scores / unit)) * unit, np.finfo(float).tiny)


def bandwidth(
    scores: Any, *, standardise: bool = True, floor: float = 0.05, subsample: int | None = None, seed: int = 12345
) -> float:
    """The paper's reference bandwidth: the median nonzero |difference| of the standardised scores, at least `floor`.

    Exact over all pairs in O(n log n). `subsample=20_000` keeps that many scores, drawn without replacement by
    `numpy.random.default_rng(seed)`, as the paper does. `standardise=False` takes the scores as they are.
    """
    values = as_scores(scores, "scores")
    if standardise:
        values = values / (np.abs(values).max() or 1.0)
        values = (values - values.mean()) / (values.std() or 1.0)
    if subsample is not None and subsample < len(values):
        values = values[np.random.default_rng(seed).choice(len(values), subsample, replace=False)]
    return max(float(floor), _median_difference(values))


def _median_difference(values: np.ndarray) -> float:
    """Exact median of the nonzero pairwise |differences|: sampled pivots bracket it until few pairs are left."""
    values, counts = np.unique(values, return_counts=True)
    cumulative = np.r_[0, np.cumsum(counts)]  # admissions before the i-th distinct value
    n = int(cumulative[-1])
    pairs = (n * n - int((counts.astype(np.int64) ** 2).sum())) // 2
    if not pairs:
        return 0.0

    def beyond(bound: float, inclusive: bool) -> np.ndarray:
        """For each value the first later one that differs by more than `bound` (by at least `bound` if inclusive)."""
        index = np.searchsorted(values, values + bound, side="left" if inclusive else "right")
        index = np.maximum(index, rows + 1)
        while True:  # the sum above is rounded; the differences themselves decide
            here = values[np.minimum(index, len(values) - 1)] - values
            up = (index < len(values)) & ((here < bound) if inclusive else (here <= bound))
            before = values[index - 1] - values
            down = (index > rows + 1) & ((before >= bound) if inclusive else (before > bound))
            if not (up.any() or down.any()):
                return index
            index = index + up - (down & ~up)

    def count(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return counts * (cumulative[high] - cumulative[low])

    rows = np.arange(len(values))
    low, high = rows + 1, np.full(len(values), len(values))  # candidates of row i: columns low_i ... high_i − 1
    rank = (pairs - 1) // 2
    below = 0  # pairs smaller than every candidate
    rng = np.random.default_rng(0)
    while (high - low).sum() > max(20 * len(values), 1 << 16):
        reach = np.cumsum(count(low, high))
        drawn = np.sort(rng.integers(reach[-1], size=1 << 14))
        row = np.searchsorted(reach, drawn, side="right")
        offset = (drawn - (reach[row] - count(low, high)[row])) // counts[row]
        column = np.searchsorted(cumulative, cumulative[low[row]] + offset, side="right") - 1
        seen = np.sort(values[column] - values[row])
        place = (rank - below) / reach[-1] * len(seen)
        for pivot in seen[np.clip([int(place - 250), int(place + 250)], 0, len(seen) - 1)]:
            least, most = beyond(pivot, True), beyond(pivot, False)
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
    most = beyond(pivot, False)
    return _middle(pivot, rank, int(count(rows + 1, most).sum()), pairs, values, most)


def _middle(pivot: float, rank: int, stop: int, pairs: int, values: np.ndarray, most: np.ndarray) -> float:
    """The lower middle difference, or its mean with the next one when the number of pairs is even."""
    if pairs % 2 or rank + 1 < stop:
        return float(pivot)
    left = most < len(values)
    return float((pivot + np.min(values[most[left]] - values[left])) / 2)
