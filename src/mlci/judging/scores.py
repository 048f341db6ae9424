"""Read score files (Parquet, CSV or Excel with `admission_id` and numeric columns) and match them with a cohort."""

import contextlib
import json
from collections.abc import Callable, Container, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from mlci.base.errors import InputError, columns_of, kind_of, reading
from mlci.base.parquet import WEIGHTS, read_parquet
from mlci.base.tablefile import open_table
from mlci.cohort import Cohort

KEY = "admission_id"
RISK = "risk_"  # risk_<outcome>: a probability
EXPECTED = "expected_"  # expected_<number>: in that number's unit
BESIDE = ("percentile", "unknown_share")


def read_scores(path: str | Path, *, columns: Sequence[str] = (), risks: bool = False) -> pd.DataFrame:
    """Read the score columns of a file.

    Args:
        path: Parquet, CSV or Excel with `admission_id` and at least one numeric column.
        columns: those to read; by default `score`, or else every numeric column. The other columns that `mlci score`
            writes (percentile, risk_*, expected_*, unknown_share) are not scores.
        risks: read the risk_* and expected_* columns too.

    Returns:
        A frame of numbers, indexed by admission.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "scores.csv")
    ...     _ = file.write_text("admission_id,score,percentile\\n007,0.5,61\\n")
    ...     read_scores(file)
                  score
    admission_id
    007             0.5
    """
    table, row_number = (read_parquet(path), _from_one) if _is_parquet(path) else _read_sheet(path)
    if KEY not in table.column_names:
        raise InputError(f"{path}: lacks the column {KEY}; {columns_of(table.column_names, (KEY, 'score'))}.")
    if table[KEY].null_count:
        row = row_number(pc.index(table[KEY].is_null(), True).as_py())
        raise InputError(f"{path}: column {KEY}, row {row}: is empty; each score needs its admission.")
    numeric = [field.name for field in table.schema if _is_number(field.type) and field.name != KEY]
    for name in columns or ("score",):
        if name not in numeric and name in table.column_names:
            _refuse_text(table[name], f"{path}: column {name}", row_number)
        if name not in numeric and columns:
            raise InputError(f"{path}: has no numeric column {name}; allowed are {', '.join(numeric) or 'none'}.")
    risky = [name for name in numeric if name.startswith((RISK, EXPECTED))]
    plain = [name for name in numeric if name not in (*BESIDE, *risky)]
    chosen = list(columns) or (["score"] if "score" in numeric else plain)
    if not chosen:
        raise InputError(f"{path}: has no numeric column other than {KEY}; at least one score column is needed.")
    chosen += [name for name in risky if risks and name not in chosen]
    values = {name: table[name].cast(pa.float64()).to_numpy() for name in chosen}
    frame = pd.DataFrame(values, index=pd.Index(table[KEY].to_pylist(), name=KEY))
    if not frame.index.is_unique:
        row = row_number(int(np.argmax(frame.index.duplicated())))
        raise InputError(f"{path}: column {KEY}, row {row}: repeats an earlier row; one row per admission is needed.")
    for name in chosen:
        numbers = frame[name].to_numpy()
        wrong = {"empty or not a finite number": ~np.isfinite(numbers)}
        if name.startswith(RISK):
            wrong["not between 0 and 1"] = (numbers < 0) | (numbers > 1)
        for fault, rows in wrong.items():
            if rows.any():
                raise InputError(f"{path}: column {name}, row {row_number(int(np.argmax(rows)))}: is {fault}.")
    return frame


def read_weights(path: str | Path) -> dict[str, float]:
    """Return the weights of outcomes that `mlci score` stored in the Parquet file `path`, if there are any.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "scores.csv").write_text("admission_id,score\\n7,0.5\\n")
    ...     read_weights(Path(folder, "scores.csv"))
    {}
    """
    if not _is_parquet(path):
        return {}
    metadata = pq.read_schema(path).metadata or {}
    return {name: float(weight) for name, weight in json.loads(metadata.get(WEIGHTS.encode(), b"{}")).items()}


def match(scores: pd.DataFrame, cohort: Cohort, *, where: str = "scores") -> tuple[pd.DataFrame, Cohort]:
    """Match scores and a cohort by admission.

    Args:
        scores: indexed by admission, from `read_scores`.
        cohort: the admissions to evaluate on.
        where: the name of the scores in error messages.

    Returns:
        The scores in the cohort's order, and the cohort's admissions that have a score. If there are none, an
        `InputError` is raised.

    >>> visits = pd.DataFrame({"visit_id": [1, 2], "codes": [["I50.9"], ["J18.9"]], "died": [1, 0]})
    >>> cohort = Cohort.from_frame(visits, icd_version=10)
    >>> scores, scored = match(pd.DataFrame({"score": [0.5]}, index=["2"]), cohort)
    >>> scores["score"].tolist(), scored.column("admission_id").tolist()
    ([0.5], [2])
    """
    own = ids = pd.Index(cohort.table[KEY].to_pylist(), name=KEY)
    if ids.inferred_type != scores.index.inferred_type:  # in a CSV file, 17 may be a number or text
        ids, written = ids.astype(str), scores.index.astype(str)
        whole = written.str.removesuffix(".0")  # pandas turns integers with missing values into 17.0
        scores = scores.set_axis(whole if own.inferred_type == "integer" and whole.is_unique else written)
    place = scores.index.get_indexer(ids)
    found = place >= 0
    if not found.any():
        raise InputError(f"{where}: none of its {len(scores):,} admissions is among the {len(ids):,} of the cohort.")
    return scores.iloc[place[found]].set_axis(own[found]), cohort.where(found)


def read_seeds(
    paths: Sequence[str | Path], cohort: Cohort, *, columns: Sequence[str] = ()
) -> tuple[dict[str, list[np.ndarray]], Cohort]:
    """Read score files as indices with seeds: a column that several files share is one index, one seed per file.

    Args:
        paths: of score files; the column `score` of a single file is named after the file.
        cohort: the admissions to evaluate on.
        columns: those to read, as in `read_scores`.

    Returns:
        For each index an array of scores per seed, and the cohort's admissions that every file has, in their order.

    >>> import tempfile
    >>> cohort = Cohort.from_frame(pd.DataFrame({"visit_id": [1], "codes": [["I50.9"]], "died": [1]}), icd_version=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder, f"{seed}.csv") for seed in (11, 101)]
    ...     _ = [file.write_text("admission_id,paper\\n1,0.5\\n") for file in files]
    ...     read_seeds(files, cohort)[0]
    {'paper': [array([0.5]), array([0.5])]}
    """
    frames = {path: read_scores(path, columns=columns) for path in paths}
    for path, frame in frames.items():
        _, cohort = match(frame, cohort, where=str(path))
    found: dict[str, list[np.ndarray]] = {}
    for path, frame in frames.items():
        matched, _ = match(frame, cohort, where=str(path))
        for column in matched:
            name = Path(path).stem if column == "score" and len(frames) == 1 else str(column)
            found.setdefault(name, []).append(matched[column].to_numpy())
    return found, cohort


def read_models(
    paths: Sequence[str | Path], cohort: Cohort, *, columns: Sequence[str] = ()
) -> tuple[dict[str, np.ndarray], Cohort]:
    """Read score files as models: every column of every file is one model.

    Args:
        paths: of score files; a file's only column, or its column `score`, is named after the file.
        cohort: the admissions to evaluate on.
        columns: those to read, as in `read_scores`.

    Returns:
        An array of scores for each model, and the cohort's admissions that every file has, in their order.

    >>> import tempfile
    >>> cohort = Cohort.from_frame(pd.DataFrame({"visit_id": [1], "codes": [["I50.9"]], "died": [1]}), icd_version=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "ours.csv")
    ...     _ = file.write_text("admission_id,score\\n1,0.5\\n")
    ...     read_models([file], cohort)[0]
    {'ours': array([0.5])}
    """
    frames = {Path(path): read_scores(path, columns=columns) for path in paths}
    for path, frame in frames.items():
        _, cohort = match(frame, cohort, where=str(path))
    found: dict[str, np.ndarray] = {}
    for path, frame in frames.items():
        matched, _ = match(frame, cohort, where=str(path))
        alone = matched.shape[1] == 1 and len(frames) > 1
        for column in matched:
            found[model_name(path, str(column), alone=alone, taken=found)] = matched[column].to_numpy()
    return found, cohort


def model_name(path: Path, column: str, *, alone: bool, taken: Container[str]) -> str:
    """Return the name of a score among those of several files.

    Args:
        path: of its file.
        column: of the file. A column `score` is named after the file.
        alone: whether it is the only one of its file; it is then named after the file too.
        taken: the names of other scores.

    >>> files = [Path("runs", seed, "scores.parquet") for seed in ("11", "101", "1001")]
    >>> found = []
    >>> for path in files:
    ...     found.append(model_name(path, "paper", alone=True, taken=found))
    >>> found
    ['scores', 'scores:paper', 'runs/1001/scores.parquet:paper']
    """
    names = path.stem if column == "score" or alone else column, f"{path.stem}:{column}", f"{path}:{column}"
    return next((name for name in names if name not in taken), names[-1])


def _is_parquet(path: str | Path) -> bool:
    with reading(path, "Parquet or CSV"), open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _from_one(place: int) -> int:
    return place + 1


def _refuse_text(column: pa.ChunkedArray, where: str, row_number: Callable[[int], int]) -> None:
    """Report the first text of a column that should hold numbers."""
    for place, value in enumerate(column.to_pylist()):
        try:
            float(value or "nan")
        except (TypeError, ValueError):
            raise InputError(f"{where}, row {row_number(place)}: {kind_of(value)} is not a number.") from None


def _read_sheet(path: str | Path) -> tuple[pa.Table, Callable[[int], int]]:
    """Read a table with identifiers as text, because 007 is not 7; `match` compares them with the cohort's type.

    Return the number of a row in an editor too.
    """
    with open_table(path) as file:
        file.check_exact([KEY])
        table = pa.concat_tables(file.read([name for name in file.names if name]))
    for place, name in enumerate(table.column_names):
        if name != KEY and table[name].null_count < len(table):
            with contextlib.suppress(pa.ArrowInvalid):  # a column of text remains text
                table = table.set_column(place, name, table[name].cast(pa.float64()))
    return table, file.row_number


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
