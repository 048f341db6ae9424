"""Columns that a cohort carries along, as those who judge need them: numbers, words, weights, clusters and strata."""

import numpy as np

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.judging.evaluate import subgroup
from mlci.measures.design import Design
from mlci.measures.weighted import effective


def column(cohort: Cohort, name: str) -> np.ndarray:
    """Return a column in its own kind of number or word; `age_band` is made from age."""
    return cohort.table[name].to_pandas().to_numpy() if name in cohort.table.column_names else subgroup(cohort, name)


def weights_of(cohort: Cohort, name: str) -> np.ndarray:
    """Return a column of survey weights: numbers from 0."""
    values = column(cohort, name)
    try:
        weight = values.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"column {name}: is not numeric; a weight is a number from 0.") from error
    if not np.isfinite(weight).all() or (weight < 0).any():
        row = int(np.argmax(~np.isfinite(weight) | (weight < 0)))
        raise InputError(f"column {name}, row {row + 1}: is empty or negative; a weight is a number from 0.")
    return weight


def why_left_out(part: str, weights: str | None) -> str:
    """Return why admissions take no part in a comparison; `part` is what else must be known of them."""
    return f"their {part} or outcome is not known{f', or {weights}, their weight, is 0' if weights else ''}"


def design_of(
    cohort: Cohort, *, weights: str | None = None, cluster: str | None = None, strata: str | None = None
) -> Design:
    """Return how the admissions were drawn, by names of columns; without `cluster` a patient's belong together."""
    together = cohort.column("subject_id") if cluster is None else column(cohort, cluster)
    weight = None if weights is None else weights_of(cohort, weights)
    if weight is not None and not weight.any():
        raise InputError(f"column {weights}: all weights are 0; one at least must count.")
    return Design.of(together, weights=weight, strata=None if strata is None else column(cohort, strata))


def design_words(
    cohort: Cohort, *, weights: str | None = None, cluster: str | None = None, strata: str | None = None
) -> str:
    """Return a sentence on what was asked for, and on what weights and clusters leave of the sample; else nothing."""
    said = []
    if weights is not None:
        weight = weights_of(cohort, weights)
        said.append(
            f"weighted by {weights}: {len(weight):,} admissions count as {weight.sum():,.0f} and are worth "
            f"{effective(weight):,.0f} of equal weight"
        )
    if cluster is not None:
        said.append(f"{design_of(cohort, cluster=cluster).clusters:,} clusters by {cluster} come and go together")
    if strata is not None:
        said.append(f"drawn within strata of {strata}")
    return "; ".join(said)
