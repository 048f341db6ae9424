"""Write a model's predictions for a cohort in the schema of meds-evaluation, one row per admission."""

from pathlib import Path
from typing import TYPE_CHECKING

from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.cohort import Cohort
from mlci.index._people import of_data
from mlci.index.model import Model

if TYPE_CHECKING:
    import pyarrow as pa

TIME = "prediction_time"


def predictions(model: Model, cohort: Cohort, outcome: str) -> "pa.Table":
    """Return the risk of an outcome at each discharge, as meds-evaluation reads it.

    Args:
        model: an index.
        cohort: the output of `mlci cohort meds`; admissions whose outcome is unknown are left out.
        outcome: of both the model and the cohort.

    Returns:
        One row per admission: subject_id, prediction_time, boolean_value, predicted_boolean_value (a risk of one half
        or more) and predicted_boolean_probability.

    >>> import pyarrow as pa
    >>> from mlci.index.estimator import load
    >>> rows = {"admission_id": [7], "subject_id": [1], "icd_version": [10], "codes": [["I509"]], "mortality": [False]}
    >>> cohort = Cohort(pa.table(rows | {"prediction_time": [None]}), "meds", {"mortality": "died"})
    >>> predictions(load("us2010").model_, cohort, "mortality")["boolean_value"].to_pylist()
    [False]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, there in (("model", model.outcomes), ("cohort", cohort.outcomes)):
        if outcome not in there:
            raise InputError(f"the {name} has no outcome {outcome!r}; it has {', '.join(there)}.")
    if TIME not in cohort.table.column_names:
        raise InputError(f"the cohort lacks the column {TIME}; `mlci cohort meds` makes a cohort with it.")
    if not pa.types.is_integer(cohort.table["subject_id"].type):
        raise InputError("the cohort's subject_id is text; meds-evaluation accepts only integers.")
    people = of_data(cohort, model.people, len(cohort))
    risk = model.columns(model.as_admissions(cohort), people=people)[f"risk_{outcome}"]
    table = pa.table(
        {
            "subject_id": cohort.table["subject_id"].cast(pa.int64()),
            TIME: cohort.table[TIME].cast(pa.timestamp("us")),
            "boolean_value": cohort.table[outcome].cast(pa.bool_()),
            "predicted_boolean_value": pa.array(risk >= 0.5),
            "predicted_boolean_probability": pa.array(risk, pa.float64()),
        }
    )
    return table.filter(pc.is_valid(table["boolean_value"]))


def write_predictions(model: Model, cohort: Cohort, outcome: str, target: str | Path) -> int:
    """Write `predictions` as Parquet.

    Args:
        model, cohort, outcome: as in `predictions`.
        target: the file.

    Returns:
        The number of predictions.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from mlci.index.estimator import load
    >>> rows = {"admission_id": [7], "subject_id": [1], "icd_version": [10], "codes": [["I509"]], "mortality": [False]}
    >>> cohort = Cohort(pa.table(rows | {"prediction_time": [None]}), "meds", {"mortality": "died"})
    >>> with TemporaryDirectory() as folder:
    ...     write_predictions(load("us2010").model_, cohort, "mortality", f"{folder}/predictions.parquet")
    1
    """
    from pyarrow import parquet

    table = predictions(model, cohort, outcome)
    with atomic(target) as temporary:
        parquet.write_table(table, temporary, write_page_checksum=True)
    return len(table)
