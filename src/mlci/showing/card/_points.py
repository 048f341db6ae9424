"""Integer points for groups of codes: the groups of each admission, the target of the points, and the points.

A group is a category of one ICD version (three characters; four of ICD-9's external causes, such as E888) and counts
once, however many of its codes an admission has.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions

TOP = range(3, 21)  # points of the highest group that are tried
WORTH = 0.002  # gain in squared correlation with the target that finer points must bring
AGES = (45, 65, 75, 85)  # years from which age may have points
SEXES = ("F", "M")
EVENTS = 10  # training admissions with and without an outcome that are needed for it to be part of the target


def groups(admissions: Admissions) -> tuple[sparse.csr_array, list[tuple[int, str]]]:
    """Return which admissions have which groups (ICD version, category): a 0-1 matrix and its columns.

    >>> present, names = groups(Admissions.from_lists([["I509", "I501"], ["E119"]], icd_version=10))
    >>> names, present.toarray().tolist()
    ([(10, 'E11'), (10, 'I50')], [[0, 1], [1, 0]])
    """
    keys = [(int(version), _category(value, version)) for value, version in zip(admissions.values, admissions.versions)]
    names = sorted(set(keys))
    number = {key: place for place, key in enumerate(names)}
    column = np.array([number[key] for key in keys], dtype=np.int64)
    rows = np.repeat(np.arange(len(admissions)), np.diff(admissions.offsets))
    ones = np.ones(len(rows), dtype=np.int64)
    found = sparse.coo_array((ones, (rows, column[admissions.indices])), shape=(len(admissions), len(names))).tocsr()
    found.sum_duplicates()
    found.data[:] = 1
    return found, names


def _category(code: str, version: int) -> str:
    return code[: 4 if version == 9 and code.startswith("E") else 3]


def ages(years: np.ndarray) -> sparse.csr_array:
    """Return whether each admission has reached each of `AGES`; an unknown age has reached none.

    >>> ages(np.array([44.0, 80.0, np.nan])).toarray().tolist()
    [[0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    """
    return sparse.csr_array((years[:, None] >= np.array(AGES)).astype(np.int64))


def sexes(values: np.ndarray) -> sparse.csr_array:
    """Return whether each admission is of each of `SEXES`; of none if the sex is unknown.

    >>> sexes(np.array(["F", None], dtype=object)).toarray().tolist()
    [[1, 0], [0, 0]]
    """
    return sparse.csr_array((values[:, None] == np.array(SEXES, dtype=object)).astype(np.int64))


def target(present: sparse.csr_array, outcomes: np.ndarray, score: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Return the target of the points, one number per admission.

    One half is the order of the index: the rank of its score, on the normal scale. The other half is the outcomes: the
    log-odds of each given these groups (a penalised logistic regression), in units of their standard deviation,
    weighted as in the fit of the index. Points fitted to the score itself would follow its long tail and favour rare
    outcomes.
    """
    log_odds = []
    for column, weight in zip(outcomes.T, weights, strict=True):
        known = ~np.isnan(column)
        if min((column == 1).sum(), (column == 0).sum()) < EVENTS:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the points are rounded anyway
            fit = LogisticRegression(C=0.05, max_iter=200).fit(present[known], column[known])
        log_odds.append(weight * _unit(present @ fit.coef_[0]))
    if not log_odds:
        raise InputError(
            f"a card needs an outcome with at least {EVENTS} training admissions that have it, and {EVENTS} that do "
            "not; the cohort has none."
        )
    return _unit(ndtri((rankdata(score) - 0.5) / len(score))) + _unit(sum(log_odds))


def _unit(values) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    spread = values.std()
    return (values - values.mean()) / (spread if spread > 0 else 1.0)


def fit_points(present: sparse.csr_array, aim: np.ndarray, *, size: int, free: int = 0) -> np.ndarray:
    """Return nonnegative integer points whose sum follows `aim`, for the first `free` and up to `size` more columns.

    Groups are added one by one, each time the one that most reduces the squared error, and all weights are refitted
    (nonnegative least squares). Finally they are rounded to the coarsest unit that loses almost nothing.

    >>> fit_points(sparse.csr_array(np.repeat([[0, 0], [1, 0], [0, 1]], 9, axis=0)), np.repeat([0.0, 1, 3], 9), size=2)
    array([1, 3])
    """
    n, mean = len(aim), np.asarray(present.mean(axis=0)).ravel()
    gram = np.asarray((present.T @ present).todense(), dtype=float) - n * np.outer(mean, mean)
    with_aim = present.T @ (aim - aim.mean())
    variance = np.maximum(np.diag(gram), 1e-12)
    weights, active = np.zeros(len(mean)), []
    while len(active) < min(size + free, len(mean)):
        gain = np.maximum(with_aim - gram @ weights, 0) ** 2 / variance
        gain[active] = 0
        if len(active) < free:
            active = list(range(free))
        elif gain.max() > 0:
            active.append(int(gain.argmax()))
        else:
            break
        root = cholesky(gram[np.ix_(active, active)] + 1e-9 * np.diag(variance[active]))
        weights[active] = nnls(root, solve_triangular(root, with_aim[active], trans=1))[0]
    if not weights.any():
        raise InputError("no group of codes is associated with more severe admissions; a card cannot be made.")
    tried = [np.rint(weights / weights.max() * top).astype(np.int64) for top in TOP]
    fits = np.array([(points @ with_aim) ** 2 / (points @ gram @ points) for points in tried])
    fits /= ((aim - aim.mean()) ** 2).sum()
    return tried[int(np.argmax(fits >= fits.max() - WORTH))]
