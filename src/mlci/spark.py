"""The same scores on a Spark cluster: a Spark frame of admissions in, a lazy Spark frame of scores out.

Admissions come as elsewhere: `admission_id` with `codes`, or one row per `admission_id` and `code`. The work is done by
`mapInArrow`, so each executor runs the very functions that score a file on one machine, and the results are the same
bits. The model travels inside the task, which Spark broadcasts; executors need this package, but no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions, as_admissions, encode_tables, layout_of
from mlci.codes.comorbidity import Coder, Combined, drop_milder, flag_columns, pair_of, rules, score_columns, scores
from mlci.index.model import Model, load_model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WHERE = "the frame"


def score(df: "DataFrame", model: str | Path | Model, *, icd_version: int | None = None) -> "DataFrame":
    """`admission_id` and the columns of `mlci score`; `model` is a model file that the driver can read, or its content.

    Of an admission with more codes than the model takes, the first count: by the column `seq_num` where rows are codes.
    """
    model = replace(model) if isinstance(model, Model) else load_model(model)  # replaced: without what is cached
    layout, rows = _rows(df, icd_version)
    doubles = ["score", "percentile", *(f"risk_{name}" for name in model.curves)]
    types = {**dict.fromkeys(doubles, "double"), "high_severity": "boolean", "unknown_share": "double"}
    return rows.mapInArrow(partial(_score, model, layout, icd_version), _schema(df, types))


def indices(
    df: "DataFrame",
    *,
    icd_version: int | None = None,
    weights: Sequence[str] = (),
    hierarchy: bool = True,
    flags: bool = False,
) -> "DataFrame":
    """`admission_id` and the columns of `mlci indices`.

    CCI+ECI needs means and deviations of the training split (of all admissions where there is none): a job of its own,
    which runs at once.
    """
    from pyspark.sql import functions as F

    columns = score_columns(weights)
    pair = pair_of(columns)
    if icd_version is None and "icd_version" not in df.columns:
        raise InputError(f"{WHERE}: lacks the column icd_version; say icd_version=9 or 10 for all codes.")
    layout, rows = _rows(df, icd_version, carry=("split",))
    split = [name for name in rows.columns if name == "split"]
    categories = [category.column for category in rules().categories] if flags else []
    types = dict.fromkeys(columns, "integer") | dict.fromkeys(categories, "boolean") | dict.fromkeys(split, "string")
    found = rows.mapInArrow(
        partial(_indices, columns, layout, icd_version, hierarchy, flags, split), _schema(df, types)
    )
    fitted = found.where(F.col("split") == "train") if split else found
    both = [F.col(name).cast("long") for name in pair]
    sums = fitted.agg(F.count("*"), *(F.sum(each) for each in both), *(F.sum(each * each) for each in both)).first()
    assert sums is not None
    n, *totals = (int(value or 0) for value in sums)
    if not n:
        raise InputError(f"{WHERE}: no admission {'has the split train' if split else 'at all'}; CCI+ECI needs some.")
    combined = Combined.from_sums(n, np.array(totals[:2]), np.array(totals[2:]), pair, hierarchy)
    parts = [
        (each - F.lit(mean)) / F.lit(deviation) if deviation else F.lit(0.0)
        for each, mean, deviation in zip(both, combined.means, combined.deviations)
    ]
    return found.select("admission_id", *columns, (parts[0] + parts[1]).alias("cci_eci"), *categories)


def _rows(df: "DataFrame", icd_version: int | None, carry: Sequence[str] = ()) -> tuple[str, "DataFrame"]:
    """The layout and the columns that are needed, each admission's rows together; what cannot do is told here."""
    layout = layout_of(df.columns, WHERE)
    if "admission_id" not in df.columns:
        raise InputError(f"{WHERE}: lacks the column admission_id; found are {', '.join(df.columns)}.")
    order = [name for name in ("seq_num",) if name in df.columns and layout == "code"]
    wanted = ["admission_id", layout, "icd_version", *order, *(carry if layout == "codes" else ())]
    rows = df.select(*(name for name in wanted if name in df.columns))
    as_admissions(rows.limit(0).toArrow(), icd_version=icd_version)  # refuses columns of the wrong types
    if layout == "code":
        rows = rows.repartition("admission_id").sortWithinPartitions("admission_id", *order)
    return layout, rows


def _schema(df: "DataFrame", types: dict[str, str]) -> Any:
    from pyspark.sql.types import StructType

    schema = StructType([df.schema["admission_id"]])
    for name, kind in types.items():
        schema = schema.add(name, kind)
    return schema


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in batches)


def _batch(admissions: Admissions, columns: dict[str, Any]) -> pa.RecordBatch:
    named = {"admission_id": admissions.ids, **columns}
    return pa.record_batch({name: pa.array(values, from_pandas=True) for name, values in named.items()})


def _score(
    model: Model, layout: str, icd_version: int | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for admissions, _ in encode_tables(_tables(batches), layout, WHERE, icd_version=icd_version):
        yield _batch(admissions, model.columns(admissions))


def _indices(
    columns: list[str],
    layout: str,
    icd_version: int | None,
    hierarchy: bool,
    flags: bool,
    split: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    coder = Coder()
    for admissions, carried in encode_tables(_tables(batches), layout, WHERE, carry=split, icd_version=icd_version):
        bits = coder(admissions)
        bits = drop_milder(bits) if hierarchy else bits
        found = dict(zip(columns, scores(bits, columns).T))
        found |= flag_columns(bits) if flags else {}
        found |= {name: carried[name].combine_chunks() for name in split}
        yield _batch(admissions, found)
