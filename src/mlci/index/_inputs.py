"""The inputs of a fit: check codes, outcomes, split and patients in whatever form they were given.

Turn a cohort, or codes with outcomes (lists, arrays, Series, dictionaries and frames), into the arguments of
`mlci.fitting._data.in_memory`.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mlci.base.errors import InputError, kind_of
from mlci.base.shares import md5_split
from mlci.codes import certainty
from mlci.codes.admissions import as_admissions
from mlci.cohort import Cohort
from mlci.fitting._data import chosen_outcomes
from mlci.measures.design import numbered
from mlci.sources._cohort_file import SPLITS

VALID_SHARE = 0.125  # of subjects, if no split is given: the paper's 7 to 1


@dataclass(frozen=True)
class FitArguments:
    """The arguments of `MLCI.fit` that describe its data."""

    outcomes: Any = None
    split: Sequence[str] | None = None
    subjects: Sequence | None = None
    icd_version: int | None = None
    weights: str | Sequence[float] | None = None
    cluster: str | Sequence | None = None
    numeric: Mapping[str, str] | Sequence[str] = ()

    def check_for_cohort(self) -> None:
        """Raise an error for arguments that a cohort does not need."""
        if self.outcomes is not None or self.split is not None or self.subjects is not None:
            raise InputError("a cohort has its own outcomes, split and subjects; pass them only with codes.")


def fit_inputs(data: Any, given: FitArguments, *, chosen: Sequence[str] | None, poa: str) -> dict[str, Any]:
    """Return the arguments of `in_memory`; `chosen` names the outcomes to learn from, None takes all."""
    if isinstance(data, Cohort):
        given.check_for_cohort()
        rules, labels = dict(data.outcomes), data.labels()
        admissions, parts, source = data.admissions(poa=poa), data.column("split"), data.source
        subjects = data.column("subject_id")
    else:
        admissions, source = as_admissions(data, icd_version=given.icd_version, poa=poa), "data"
        for sentence in certainty.notes(admissions.unsure):
            warnings.warn(sentence, stacklevel=2)
        columns = {} if given.outcomes is None else _columns(given.outcomes, len(admissions))
        if not columns:
            raise InputError("fit needs outcomes with the codes: a frame or a dict of columns of 0, 1 and null.")
        rules, labels = dict.fromkeys(columns, ""), np.column_stack(list(columns.values()))
        subjects = range(len(admissions)) if given.subjects is None else given.subjects
        for name, values in (("split", given.split), ("subjects", given.subjects)):
            if values is not None and len(values) != len(admissions):
                raise InputError(f"{name}: has {len(values)} values for {len(admissions)} admissions.")
        split = given.split
        if split is None:  # the same subject is always on the same side
            sides = md5_split([str(subject) for subject in subjects], (1 - VALID_SHARE, VALID_SHARE))
            split = np.array(["train", "valid"], dtype=object)[sides]
        parts = np.asarray(split, dtype=object)
        if odd := {*parts} - {*SPLITS}:
            raise InputError(f"split: {kind_of(odd.pop())} is not a split; allowed are {', '.join(SPLITS)}.")
    wanted = chosen_outcomes(rules, chosen, source)
    return {
        "admissions": admissions,
        "labels": labels[:, [list(rules).index(name) for name in wanted]],
        "outcomes": wanted,
        "split": parts,
        "subjects": numbered(subjects),
        "source": source,
    }


def _stacked(outcomes: Sequence[Any]) -> np.ndarray:
    """Return a list of outcomes as an array: one value, or one row of values, per admission."""
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else 0 for row in outcomes}
    if len(widths) > 1:
        raise InputError("outcomes: the rows differ in length; each admission needs one value for each outcome.")
    stacked = np.empty((len(outcomes), *filter(None, widths)), dtype=object)
    stacked[:] = list(outcomes)
    return stacked


def _columns(outcomes: Any, length: int) -> dict[str, np.ndarray]:
    """Return outcomes as float64 columns with NaN for null; the columns of an array are numbered."""
    if isinstance(outcomes, pd.Series):
        outcomes = {outcomes.name or "outcome": outcomes.tolist()}
    if isinstance(outcomes, list | tuple):
        outcomes = _stacked(outcomes)
    if isinstance(outcomes, np.ndarray):
        if outcomes.ndim not in (1, 2):
            raise InputError(f"outcomes: expected an array of one or two dimensions, got {outcomes.ndim}.")
        if outcomes.ndim == 2 and len(outcomes) != length:
            raise InputError(
                f"outcomes: {len(outcomes)} rows for {length} admissions; pass one row per admission, or a dict of "
                "columns."
            )
        outcomes = (
            {"outcome": outcomes} if outcomes.ndim == 1 else {f"outcome_{k}": y for k, y in enumerate(outcomes.T)}
        )
    if not isinstance(outcomes, Mapping):
        import narwhals as nw

        try:
            native: Any = outcomes
            frame = nw.from_native(native, eager_only=True)
        except TypeError:
            raise InputError(
                f"outcomes: expected an array, a frame or a dict of columns, got {type(outcomes).__name__}."
            ) from None
        outcomes = {name: frame[name].to_list() for name in frame.columns}
    result = {}
    for name, values in outcomes.items():
        values = list(values)
        if len(values) != length:
            raise InputError(f"outcomes: column {name} has {len(values)} values for {length} admissions.")
        column = np.full(length, np.nan)
        for row, value in enumerate(values):
            if value is None or value is pd.NA or value != value:
                continue
            if value not in (0, 1):
                raise InputError(
                    f"outcomes: column {name}, row {row}: {kind_of(value)} is not allowed; 0, 1 or null is."
                )
            column[row] = float(value)
        result[str(name)] = column
    return result
