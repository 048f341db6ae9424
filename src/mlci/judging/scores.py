"""Score files: `admission_id` and one or more numeric columns, Parquet or CSV; read, and matched with a cohort."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mlci.base.errors import InputError
from mlci.cohort import Cohort

KEY = "admission_id"
RISK = "risk_"  # risk_<outcome>: a probability
BESIDE = ("percentile", "unknown_share")


def read_scores(path: str | Path, *, columns: Sequence[str] = (), risks: bool = False) -> pd.DataFrame:
    """The score columns, indexed by admission: those named, else `score`, else every numeric one.

    What `mlci score` writes beside the score (percentile, risk_*, ...) is no score; `risks` adds the risk columns.
    """
    try:
        table = pa.parquet.read_table(path) if _is_parquet(Path(path)) else pa.csv.read_csv(path)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: cannot be read as Parquet or CSV ({str(error).splitlines()[0]}).") from error
    if KEY not in table.column_names:
        raise InputError(f"{path}: lacks the column {KEY}; it has {', '.join(table.column_names)}.")
    numeric = [field.name for field in table.schema if _is_number(field.type) and field.name != KEY]
    for name in columns:
        if name not in numeric:
            raise InputError(f"{path}: has no numeric column {name}; allowed are {', '.join(numeric) or 'none'}.")
    risky = [name for name in numeric if name.startswith(RISK)]
    plain = [name for name in numeric if name not in (*BESIDE, *risky)]
    chosen = list(columns) or (["score"] if "score" in numeric else plain)
    if not chosen:
        raise InputError(f"{path}: has no numeric column beside {KEY}; one score column at least is needed.")
    chosen += [name for name in risky if risks and name not in chosen]
    values = {name: table[name].cast(pa.float64()).to_numpy() for name in chosen}
    frame = pd.DataFrame(values, index=pd.Index(table[KEY].to_pylist(), name=KEY))
    if not frame.index.is_unique:
        twice = frame.index[frame.index.duplicated()][0]
        raise InputError(f"{path}: {KEY} {twice} occurs more than once; one row per admission is needed.")
    for name in chosen:
        wrong = ~np.isfinite(frame[name].to_numpy())
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(f"{path}: column {name}, row {row + 1}: {frame[name].iloc[row]} is not a finite number.")
    return frame


def match(scores: pd.DataFrame, cohort: Cohort, *, where: str = "scores") -> tuple[pd.DataFrame, Cohort]:
    """The cohort's admissions that have scores, and those scores in their order; none at all is an error."""
    ids = pd.Index(cohort.table[KEY].to_pylist())
    if ids.inferred_type != scores.index.inferred_type:  # a CSV file does not say whether 17 is a number or a name
        ids, scores = ids.astype(str), scores.set_axis(scores.index.astype(str))
    place = scores.index.get_indexer(ids)
    found = place >= 0
    if not found.any():
        raise InputError(f"{where}: none of its {len(scores):,} admissions is among the {len(ids):,} of the cohort.")
    return scores.iloc[place[found]], cohort.where(found)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
