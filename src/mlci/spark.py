"""Score on a Spark cluster: turn a Spark frame of admissions into a lazy Spark frame of scores.

All layouts of admissions are supported (`mlci.codes.layout`): a list of codes, one column per code, or one row per
code. `mapInArrow` runs on each executor the same functions that score a file on one machine, so results are bit-for-bit
identical. The model is part of the task, which Spark broadcasts. Executors need this package, but no torch.

For admissions in Parquet files, `score_files` uses Spark only to schedule the parts: executors read and write the files
themselves, and no row passes through Java.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.comorbidity import Coder, Combined, pair_of
from mlci.codes.family import CLASSIC, chosen, score_columns
from mlci.codes.layout import Layout, find_layout
from mlci.codes.poa import ALL, MADE_FOR, ONLY, reading
from mlci.codes.rules import rules
from mlci.codes.streams import BATCH, ROW, encode_tables
from mlci.index._people import of_table
from mlci.index.model import Model, load_model
from mlci.index.parts import Part, PartFolder, parts_of, publishing, score_part
from mlci.index.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHERE = "the frame"
# The fields of a tally that its warnings need: the parts' numbers, and their counters, are added up.
NUMBERS = ("admissions", "codes", "unknown", "few", "empty", "overlong", "stripped", "lengthy", "unsure", "unversioned")
COUNTERS = ("foreign", "misread", "attached")
SPARK = {"i": "integer", "f": "double", "b": "boolean"}  # types by NumPy's kinds


def score(
    df: "DataFrame",
    model: str | Path | Model,
    *,
    icd_version: int | None = None,
    id: str | None = None,
    codes: str | Sequence[str] | None = None,
    poa: str | None = None,
) -> "DataFrame":
    """Score the admissions of a Spark frame.

    If an admission has more codes than the model counts, the first ones count; with one row per code, the column
    `seq_num` gives their order. If the model's risks depend on age and sex, the columns `age` and `sex` are read, and a
    warning reports a missing one. Another warning names columns that look like codes by their names but are not read.

    Args:
        df: admissions in any layout of `mlci.codes.layout`.
        model: a `Model`, or a model file that the driver can read.
        icd_version: 9 or 10, for codes whose version the frame does not state.
        id: the column of admission identifiers, if its name is not recognised.
        codes: the column or columns of codes, if their names are not recognised.
        poa: count all codes, or only those present on admission. The default is what the model was made for; a warning
            reports another choice.

    Returns:
        A lazy frame of `admission_id` and the columns of `mlci score`.

    >>> import mlci
    >>> visits = spark.createDataFrame([(1, ["I50.9", "N17.9"]), (2, ["Z37.0"])], ["visit_id", "codes"])
    >>> score(visits, mlci.load("us2010").model_, icd_version=10).columns[:4]
    ['admission_id', 'score', 'percentile', 'risk_mortality']
    """
    model, counting = _made_for(model, poa)
    carry = [name for name in model.people if name in df.columns]
    missing = tuple(name for name in model.people if name not in carry)
    for sentence in Tally(model, missing=missing).warnings():
        warnings.warn(sentence, stacklevel=2)
    layout, rows = _rows(df, icd_version, id, codes, poa=counting, carry=carry)
    columns = replace(model).columns(Admissions.from_lists([]))
    types = {name: SPARK[values.dtype.kind] for name, values in columns.items()}
    return rows.mapInArrow(partial(_score, model, layout, icd_version, carry), _schema(df, layout, types))


def score_files(
    spark: "SparkSession",
    model: str | Path | Model,
    source: str,
    target: str,
    *,
    icd_version: int | None = None,
    id: str | None = None,
    codes: str | Sequence[str] | None = None,
    poa: str | None = None,
) -> Tally:
    """Score Parquet files of one row per admission; Spark only schedules the parts, and no row passes through Java.

    Each task reads some row groups of a file, scores them as `mlci score` does and writes one file. When all tasks are
    done, their files appear together, followed by `_SUCCESS`; if one fails, nothing appears. Partition columns in
    folder names (`year=2024`) are not read. A warning names columns that look like codes by their names but are not
    read. Unlike `mlci score`, repeated identifiers are not reported, because no task sees those of the others.

    Args:
        spark: a session.
        model: a `Model`, or a model file that the driver can read.
        source: a Parquet file or a folder of them: a path that all executors see, or a URI that `pyarrow.fs`
            understands (`s3://`, `gs://`, `abfs://`, `hdfs://`).
        target: a folder, as a path or URI of the same kind, that does not exist or is empty.
        icd_version: 9 or 10, for codes whose version the files do not state.
        id: the column of admission identifiers, if its name is not recognised.
        codes: the column or columns of codes, if their names are not recognised.
        poa: which codes count, as in `score`.

    Returns:
        A tally of the admissions; its method `problems` returns warnings about them.

    >>> import mlci, tempfile
    >>> from pyarrow import parquet
    >>> visits = pa.table({"visit_id": [1, 2], "codes": [["I50.9", "N17.9"], ["Z37.0"]]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parquet.write_table(visits, f"{folder}/visits.parquet")
    ...     files = (f"{folder}/visits.parquet", f"{folder}/scores")
    ...     tally = score_files(spark, mlci.load("us2010").model_, *files, icd_version=10)
    ...     tally.admissions, tally.problems(), len(parquet.read_table(files[1]))
    (2, [], 2)
    """
    model, counting = _made_for(model, poa)
    named = {"id": id, "codes": codes, "poa": counting}
    parts = parts_of(source, **named)
    unread = tuple(dict.fromkeys(part.unread for part in parts if part.unread))
    for sentence in unread:
        warnings.warn(sentence, stacklevel=2)
    with publishing(target) as folder:
        work = partial(_score_parts, model, parts, folder, {"icd_version": icd_version, **named})
        rows = spark.range(len(parts), numPartitions=len(parts)).mapInArrow(work, "tally string").collect()
    found = [json.loads(row["tally"]) for row in rows]
    totals: dict[str, Any] = {name: sum(counts[name] for counts in found) for name in NUMBERS}
    totals |= {name: sum((Counter(dict(counts[name])) for counts in found), Counter()) for name in COUNTERS}
    missing = tuple(name for name in model.people if any(name not in part.names for part in parts))
    return Tally(model, **totals, missing=missing, of_file=unread)


def indices(
    df: "DataFrame",
    index: str | Sequence[str] = CLASSIC,
    *,
    icd_version: int | None = None,
    id: str | None = None,
    codes: str | Sequence[str] | None = None,
    weights: Sequence[str] = (),
    hierarchy: bool = True,
    flags: bool = False,
    poa: str = ALL,
) -> "DataFrame":
    """Score the admissions of a Spark frame by published indices, all in one pass.

    If both Charlson and Elixhauser are requested, their combination CCI+ECI needs means and standard deviations of the
    training split (of all admissions if there is no split). These take a Spark job of their own, which runs
    immediately. A warning names columns that look like codes by their names but are not read.

    Args:
        df: admissions in any layout of `mlci.codes.layout`.
        index: one or several names from `mlci indices --list`.
        icd_version: 9 or 10, for codes whose version the frame does not state.
        id: the column of admission identifiers, if its name is not recognised.
        codes: the column or columns of codes, if their names are not recognised.
        weights: further sets of weights, by the names of `mlci indices --weights`.
        hierarchy: whether the severe form of a disease suppresses its milder form.
        flags: add one column per comorbidity.
        poa: all codes, only those present on admission, or ahrq, as in `mlci indices --poa`.

    Returns:
        A lazy frame of `admission_id` and the columns of `mlci indices`.

    >>> visits = spark.createDataFrame([(1, ["I50.9", "N17.9"]), (2, ["Z37.0"])], ["visit_id", "codes"])
    >>> indices(visits, "charlson", icd_version=10).columns
    ['admission_id', 'cci_charlson']
    """
    from pyspark.sql import functions as F

    names = chosen(index)
    columns = score_columns(weights, names)
    pair = pair_of(columns)
    layout, rows = _rows(df, icd_version, id, codes, carry=("split",), poa=reading(poa))
    if icd_version is None and layout.version is None:
        raise InputError(f"{WHERE}: lacks the column icd_version; pass icd_version=9 or 10 for all codes.")
    split = [name for name in rows.columns if name == "split"]
    nothing = np.zeros((rules(names).words, 0), dtype=np.uint64)
    empty = rules(names).scores(nothing, columns) | (rules(names).flags(nothing) if flags else {})
    types = {name: SPARK[values.dtype.kind] for name, values in empty.items()} | dict.fromkeys(split, "string")
    found = rows.mapInArrow(
        partial(_indices, names, columns, layout, icd_version, hierarchy, flags, split), _schema(df, layout, types)
    )
    if pair is None:
        return found.select("admission_id", *empty)
    fitted = found.where(F.col("split") == "train") if split else found
    points = [F.col(name).cast("long") for name in pair]
    sums = fitted.agg(
        F.count("*"), *(F.sum(column) for column in points), *(F.sum(column * column) for column in points)
    ).first()
    assert sums is not None
    n, *totals = (int(value or 0) for value in sums)
    if not n and split and not found.isEmpty():
        raise InputError(f"{WHERE}: no admission has the split train, which CCI+ECI needs.")
    combined = Combined.from_sums(n, np.array(totals[:2]), np.array(totals[2:]), pair, hierarchy)
    parts = [
        (column - F.lit(mean)) / F.lit(deviation) if deviation else F.lit(0.0)
        for column, mean, deviation in zip(points, combined.means, combined.deviations)
    ]
    return found.select("admission_id", *columns, (parts[0] + parts[1]).alias("cci_eci"), *list(empty)[len(columns) :])


def _made_for(model: str | Path | Model, poa: str | None) -> tuple[Model, str]:
    """Return the model without cached values, and which codes count; warn if the model was made for others."""
    model = replace(model if isinstance(model, Model) else load_model(model))
    counting = reading(poa or model.vocabulary.poa, (ALL, ONLY))
    if counting != model.vocabulary.poa:
        warnings.warn(f"the model was made for {MADE_FOR[model.vocabulary.poa]}, not for poa={poa!r}.", stacklevel=3)
    return model, counting


def _rows(
    df: "DataFrame",
    icd_version: int | None,
    id: str | None,
    codes: str | Sequence[str] | None,
    *,
    poa: str,
    carry: Sequence[str] = (),
) -> tuple[Layout, "DataFrame"]:
    """Find the layout, select its columns, check their types and bring each admission's rows together."""
    layout = find_layout(df.columns, WHERE, id=id, codes=codes, poa=poa)
    if layout.doubt:
        warnings.warn(layout.doubt, stacklevel=3)
    order = [name for name in ("seq_num",) if name in df.columns and layout.form == "long"]
    wanted = [*layout.columns, *order, *(name for name in carry if name in df.columns)]
    rows = df.select(*dict.fromkeys(wanted))
    named = {"id": layout.id, "codes": layout.codes}
    as_admissions(rows.limit(0).toArrow(), icd_version=icd_version, poa=poa, **named)  # checks the columns' types
    if layout.form == "long":
        rows = rows.repartition(str(layout.id)).sortWithinPartitions(str(layout.id), *order)
    return layout, rows


def _schema(df: "DataFrame", layout: Layout, types: dict[str, str]) -> Any:
    from pyspark.sql.types import StructType

    schema = StructType().add("admission_id", df.schema[str(layout.id)].dataType)
    for name, kind in types.items():
        schema = schema.add(name, kind)
    return schema


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Merge batches: Spark sends 10,000 rows at a time, too few to amortise the fixed cost of a batch."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(part.num_rows for part in gathered) >= BATCH:
            yield pa.Table.from_batches(gathered).combine_chunks()
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered).combine_chunks()


def _batch(admissions: Admissions, columns: dict[str, Any]) -> pa.RecordBatch:
    named = {"admission_id": admissions.ids, **columns}
    return pa.record_batch({name: pa.array(values, from_pandas=True) for name, values in named.items()})


def _score(
    model: Model, layout: Layout, icd_version: int | None, carry: list[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for admissions, carried in encode_tables(_tables(batches), layout, WHERE, carry=carry, icd_version=icd_version):
        people = of_table(carried, carry, WHERE, carried[ROW].to_numpy()) if carry else None
        yield _batch(admissions, model.columns(admissions, people=people))


def _score_parts(
    model: Model, parts: list[Part], folder: PartFolder, options: dict[str, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch["id"].to_pylist():
            tally = score_part(model, parts[number], folder, **options)
            counts = {name: getattr(tally, name) for name in NUMBERS}
            counts |= {name: list(getattr(tally, name).items()) for name in COUNTERS}
            yield pa.RecordBatch.from_pylist([{"tally": json.dumps(counts)}])


def _indices(
    names: tuple[str, ...],
    columns: list[str],
    layout: Layout,
    icd_version: int | None,
    hierarchy: bool,
    flags: bool,
    split: list[str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    coder = Coder(names)
    for admissions, carried in encode_tables(_tables(batches), layout, WHERE, carry=split, icd_version=icd_version):
        bits = coder.rules.settled(coder(admissions), hierarchy)
        found: dict[str, Any] = coder.rules.scores(bits, columns) | (coder.rules.flags(bits) if flags else {})
        found |= {name: carried[name].combine_chunks() for name in split}
        yield _batch(admissions, found)
