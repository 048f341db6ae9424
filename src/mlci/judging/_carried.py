"""Read the columns of a cohort that an evaluation needs: covariates, survey weights, clusters and strata."""

import numpy as np

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.judging.evaluate import subgroup
from mlci.measures.design import Design
from mlci.measures.weighted import effective


def column(cohort: Cohort, name: str) -> np.ndarray:
    """Return a column in its own type; `age_band` is computed from age."""
    return cohort.table[name].to_pandas().to_numpy() if name in cohort.table.column_names else subgroup(cohort, name)


def weights_of(cohort: Cohort, name: str) -> np.ndarray:
    """Return a column of survey weights, which must be numbers of 0 or more."""
    values = column(cohort, name)
    try:
        weight = values.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"column {name}: is not numeric; a weight is a number of 0 or more.") from error
    if not np.isfinite(weight).all() or (weight < 0).any():
        row = int(np.argmax(~np.isfinite(weight) | (weight < 0)))
        raise InputError(f"column {name}, row {row + 1}: is empty or negative; a weight is a number of 0 or more.")
    return weight


def left_out_words(many: int, part: str, weights: str | None) -> str:
    """Return a sentence on admissions left out of a comparison; `part` is the other value that must be known."""
    zero = f", or their weight ({weights}) is 0" if weights else ""
    return f"{many:,} admission{' is' if many == 1 else 's are'} left out: their {part} or outcome is unknown{zero}."


def design_of(
    cohort: Cohort, *, weights: str | None = None, cluster: str | None = None, strata: str | None = None
) -> Design:
    """Return the survey design from the names of columns; by default admissions are clustered by patient."""
    clusters = cohort.column("subject_id") if cluster is None else column(cohort, cluster)
    weight = None if weights is None else weights_of(cohort, weights)
    if weight is not None and not weight.any():
        raise InputError(f"column {weights}: all weights are 0; at least one must be positive.")
    return Design.of(clusters, weights=weight, strata=None if strata is None else column(cohort, strata))


def design_words(
    cohort: Cohort, *, weights: str | None = None, cluster: str | None = None, strata: str | None = None
) -> str:
    """Describe the survey design in words, with the effective sample size; empty if there is none."""
    parts = []
    if weights is not None:
        weight = weights_of(cohort, weights)
        parts.append(
            f"weighted by {weights}: {len(weight):,} admissions represent {weight.sum():,.0f}, effective sample size "
            f"{effective(weight):,.0f}"
        )
    if cluster is not None:
        parts.append(f"{design_of(cohort, cluster=cluster).clusters:,} clusters by {cluster}")
    if strata is not None:
        parts.append(f"stratified by {strata}")
    return "; ".join(parts)
