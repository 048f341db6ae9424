"""Coding intensity: codes per admission of each group, observed and expected for the same kind of patients.

An index takes codes at face value. If a hospital records more codes, its patients look sicker, and its deaths fewer
than expected. So every comparison also reports how many codes each group records, relative to the other groups' average
for patients of the same age, sex and kind of principal diagnosis (the first character of the first code). These are
harder to upcode than a list of secondary diagnoses.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mlci.cohort import Cohort
from mlci.judging.evaluate import AGES
from mlci.measures.ratios import TRIM

COLUMNS = ["group", "n", "codes", "expected", "ratio", "z", "verdict"]
REACH = 3.090232  # standard errors of the 99.8% limits


def coding(cohort: Cohort, group: np.ndarray, names: list[str]) -> pd.DataFrame:
    """Compare the codes per admission of groups.

    Args:
        cohort: the admissions.
        group: the group of each, as an index into the names; -1 for admissions that do not count.
        names: of the groups.

    Returns:
        One row per group: codes per admission, observed and expected, their ratio, its z-score with allowance for
        overdispersion, and the verdict (few, as expected, many).

    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["I50.9", "N17.9"], ["I50.9"]] * 30})
    >>> cohort = Cohort.from_frame(visits.assign(died=[0, 1] * 30), icd_version=10)
    >>> coding(cohort, np.arange(60) % 2, ["a", "b"])["ratio"].tolist()
    [2.0, 0.5]
    """
    here = group >= 0
    lists = cohort.table["codes"].combine_chunks()
    counts = lists.value_lengths().to_numpy().astype(float)[here]
    kind, group = np.unique(_kinds(cohort)[here], return_inverse=True)[1], group[here]
    cells = int(kind.max()) + 1
    place = kind * len(names) + group
    size = len(names)

    def by_cell(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, values, minlength=cells * size).reshape(cells, size)

    many, total = by_cell(np.ones(len(counts))), by_cell(counts)
    others, codes = many.sum(axis=1, keepdims=True) - many, total.sum(axis=1, keepdims=True) - total
    usual = (total.sum() - total.sum(axis=0)) / np.maximum(many.sum() - many.sum(axis=0), 1)
    mean = np.where(others > 0, codes / np.maximum(others, 1), usual)  # of a kind that no other group has: of all
    n, expected = many.sum(axis=0), (many * mean).sum(axis=0)
    spread = np.bincount(group, (counts - mean[kind, group]) ** 2, minlength=size)
    error = np.sqrt(np.maximum(spread, 1e-12)) / np.maximum(expected, 1e-12)
    ratio = total.sum(axis=0) / np.maximum(expected, 1e-12)
    z = (ratio - 1) / np.sqrt(error**2 + _between(ratio - 1, error))
    verdict = np.select([z < -REACH, z > REACH], ["few", "many"], "as expected")
    frame = zip(names, n.astype(int), total.sum(axis=0) / n, expected / n, ratio, z, verdict)
    return pd.DataFrame(list(frame), columns=COLUMNS)


def _between(distance: np.ndarray, error: np.ndarray) -> float:
    """Return the variance between groups (DerSimonian and Laird) from z-scores with winsorised outer tenths."""
    z, precision = distance / error, 1 / error**2
    z = np.clip(z - np.median(z), *np.quantile(z - np.median(z), [TRIM, 1 - TRIM]))
    spare = precision.sum() - np.sum(precision**2) / precision.sum()
    return max(0.0, float((np.sum(z**2) - (len(z) - 1)) / spare)) if spare > 0 else 0.0


def _kinds(cohort: Cohort) -> np.ndarray:
    """Return the stratum of each admission: by ICD version, first character of the first code, age band and sex."""
    codes = cohort.table["codes"].combine_chunks()
    offsets = codes.offsets.to_numpy()
    full = offsets[1:] > offsets[:-1]
    first = np.zeros(len(cohort), dtype=np.int64)
    letters = pc.utf8_slice_codeunits(codes.values.take(pa.array(offsets[:-1][full])), 0, 1)
    first[full] = _numbers(letters)
    columns = [cohort.column("icd_version").astype(np.int64), first]
    names = cohort.table.column_names
    if "age" in names:
        ages = cohort.table["age"].cast(pa.float64()).to_numpy()
        columns.append(np.where(np.isnan(ages), -1, np.searchsorted([*AGES], ages, side="right")) + 1)
    if "sex" in names:
        columns.append(_numbers(cohort.table["sex"].combine_chunks()))
    kind = np.zeros(len(cohort), dtype=np.int64)
    for number in columns:
        kind = kind * (number.max() + 1) + number
    return kind


def _numbers(words: pa.Array) -> np.ndarray:
    """Return a number from 1 for each word, and 0 for null."""
    return pc.fill_null(pc.dictionary_encode(words).indices.cast(pa.int64()), -1).to_numpy() + 1
