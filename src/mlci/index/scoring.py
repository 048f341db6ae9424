"""Score a file in bounded memory: batches are read, scored, converted to columns and written at the same time.

Take a model and a file of admissions (`mlci.codes.streams`). Write a file of scores and return a `Tally`, which counts
how well the admissions match those that the model was made for.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError
from mlci.base.parquet import WEIGHTS
from mlci.base.spreadsheets import defused
from mlci.base.tablefile import TableFile
from mlci.base.tablewriter import writing
from mlci.codes.admissions import Admissions
from mlci.codes.streams import ROW, ahead, stream_rows
from mlci.codes.versions import Guess
from mlci.index._people import persons_of_table, rows_of_persons
from mlci.index._reading import Reading
from mlci.index.model import Model
from mlci.index.shift import Agreement, outcome_columns
from mlci.index.tally import Tally

if TYPE_CHECKING:
    import pyarrow as pa


def score_file(
    model: Model,
    source: str | Path | TableFile,
    target: str | Path,
    *,
    icd_version: int | str | None = None,
    id: str | None = None,
    codes: str | None = None,
    restore_zeros: bool = False,
    defuse: bool = False,
    strict: bool = False,
    poa: str | None = None,
    on_guess: Callable[[str], None] | None = None,
    on_batch: Callable[[int], None] | None = None,
    on_scores: Callable[[Admissions, Mapping[str, np.ndarray], Mapping[str, list]], None] | None = None,
) -> Tally:
    """Score a file of any size in bounded memory.

    Args:
        model: an index.
        source: a Parquet, CSV or Excel file of admissions, or an open table.
        target: a Parquet, CSV or Excel file to write, with `admission_id` and the columns of `Model.columns`.
        icd_version: 9 or 10 for all codes, or the name of a column that holds it.
        id: the column of admission identifiers, if its name is not recognised.
        codes: the columns of codes, if their names are not recognised.
        restore_zeros: put back the leading zeros that ICD-9 codes have lost.
        defuse: mark identifiers that a spreadsheet would read as formulas.
        strict: ignore codes that the model does not know, as in `Model.columns`.
        poa: count `all` codes or `only` those present on admission; by default, what the model was made for.
        on_guess: called with a sentence if the ICD version is inferred from the codes; None forbids inferring it.
        on_batch: called with the number of admissions scored so far.
        on_scores: called with the admissions of each batch, their columns, and their age and sex if the risks use them.

    Returns:
        A count of how well the admissions match those that the model was made for.

    >>> from tempfile import TemporaryDirectory
    >>> from mlci.index.estimator import load
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "visits.csv").write_text("visit_id,DX1,DX2\\n1,I50.9,N17.9\\n2,Z37.0,")
    ...     tally = score_file(load("us2010").model_, f"{folder}/visits.csv", f"{folder}/scores.csv", icd_version=10)
    >>> tally.admissions, tally.codes, tally.unknown
    (2, 3, 0)
    """
    options = {"icd_version": icd_version, "id": id, "codes": codes, "restore_zeros": restore_zeros, "unused": True}
    of_file: list[str] = []
    options |= {"on_doubt": of_file.append}
    paths = [] if isinstance(source, TableFile) else [source]
    tally, outcomes = Tally(model), outcome_columns(paths[0], model.outcomes) if paths else {}

    def read() -> Iterator[tuple[Admissions, "pa.Table", dict[str, list], Reading]]:
        parts = stream_admissions(model, source, poa=poa, on_guess=on_guess, **options)
        for number, (admissions, carried) in enumerate(parts):
            rows, first = carried[ROW].to_numpy(), number == 0
            persons = persons_of_table(carried, model.people, str(source), rows, whole=first) if model.people else {}
            people = rows_of_persons(persons, len(admissions))
            yield admissions, carried, persons, (model.read_strictly if strict else model.read)(admissions, people)

    def scored() -> Iterator[tuple[Admissions, dict[str, np.ndarray], dict[str, list], "pa.Table"]]:
        nonlocal tally
        empty = True
        for admissions, carried, persons, reading in ahead(read()):
            columns = model.columns(admissions, strict=strict, reading=reading)
            if empty:
                missing = tuple(name for name in model.people if name not in carried.column_names)
                tally = replace(tally, missing=missing)
            yield admissions, columns, persons, _as_table(model, admissions, columns, defuse)
            empty = False
        if empty:  # a file without rows gives a score file without rows
            admissions = Admissions.from_lists([])
            columns = model.columns(admissions, strict=strict)
            yield admissions, columns, {}, _as_table(model, admissions, columns, defuse)

    with writing(target, inputs=paths) as write:  # values rarely repeat: no dictionary encoding
        for admissions, columns, persons, table in ahead(scored()):  # up to four batches are in work at once
            write(table)
            rows = slice(tally.admissions, tally.admissions + len(admissions))
            agreements = {
                name: Agreement.of(columns[f"risk_{name}"].astype(float), label[rows])
                for name, label in outcomes.items()
                if f"risk_{name}" in columns
            }
            tally = tally.add(admissions, columns, agreements)
            if on_scores:
                on_scores(admissions, columns, persons)
            if on_batch:
                on_batch(tally.admissions)
    return replace(tally, of_file=tuple(of_file))


def stream_admissions(
    model: Model,
    source: str | Path | TableFile,
    *,
    poa: str | None = None,
    on_guess: Callable[[str], None] | None = None,
    **options: Any,
) -> Iterator[tuple[Admissions, "pa.Table"]]:
    """Read the admissions of a file in batches, with the codes and columns that a model uses.

    Args:
        model: an index.
        source: a Parquet, CSV or Excel file of admissions, or an open table.
        poa: which codes count, as in `score_file`.
        on_guess: called with a sentence if the ICD version is inferred from the codes; None forbids inferring it.
        **options: those of `mlci.codes.streams.stream_rows`.

    Returns:
        An iterator over batches of admissions, each with a table of age and sex if the model uses them.

    >>> from tempfile import TemporaryDirectory
    >>> from mlci.index.estimator import load
    >>> model = load("us2010").model_
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "visits.csv").write_text("visit_id,DX1,DX2\\n1,I50.9,N17.9\\n2,Z37.0,")
    ...     [len(visits) for visits, _ in stream_admissions(model, f"{folder}/visits.csv", icd_version=10)]
    [2]
    """
    several = len({*model.icd_versions} - {0}) > 1
    guess = Guess(str(source), on_guess) if on_guess and several else lambda batch: batch
    for batch, carried in stream_rows(source, poa=poa or model.vocabulary.poa, carry=model.people, **options):
        admissions = guess(batch)
        if several and 0 in admissions.versions and not admissions.versions[admissions.indices].all():
            raise InputError(  # none of them would be understood
                f"{source}: some codes have no ICD version, and the model knows several; give --icd-version 9 or 10 "
                "(icd_version= in Python) for all codes, or the name of a column that holds the version."
            )
        yield admissions, carried


def _as_table(model: Model, admissions: Admissions, columns: Mapping[str, np.ndarray], defuse: bool) -> "pa.Table":
    """Return a batch of scores, with the weights that chose the cutoff as metadata for `mlci diagnose`."""
    import pyarrow as pa

    kinds = {"high_severity": pa.bool_()}  # declared, since a batch may hold no value
    ids = np.array(defused(admissions.ids), dtype=object) if defuse else admissions.ids
    named = {"admission_id": ids, **columns}
    arrays = {name: pa.array(values, kinds.get(name), from_pandas=_gaps(values)) for name, values in named.items()}
    return pa.table(arrays, metadata={WEIGHTS: json.dumps(model.card.get("weights", {}))})


def _gaps(values: Any) -> bool:
    """Return whether a value may be missing; if not, Arrow uses the numbers without a copy."""
    return getattr(values, "dtype", None) != np.float64 or bool(np.isnan(values).any())
