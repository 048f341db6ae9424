"""Explain a file: what each recorded code adds to its admission's score and to the log-odds of each outcome.

Turn a model and a file of admissions (`mlci.codes.streams`) into a table with one row per recorded code. For the
`table` recipe rows add up: each admission starts with a row for the value without codes, and the sum of its rows is its
score. For a network a row is the change when the code is left out, and rows do not add up.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.tablewriter import writing
from mlci.codes import icd
from mlci.codes.admissions import Admissions
from mlci.index._explain import shares, titles_of
from mlci.index.model import Model
from mlci.index.scoring import stream_admissions
from mlci.index.tally import Tally

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 8192  # admissions at a time: each has one row per code, and a network scores it again for each code
WITHOUT = "without codes"


def explain_file(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    on_guess: Callable[[str], None] | None = None,
    on_batch: Callable[[int], None] | None = None,
    **columns: Any,
) -> Tally:
    """Explain every admission of a file of any size.

    Args:
        model: an index.
        source: a Parquet, CSV or Excel file of admissions.
        target: a Parquet, CSV or Excel file, which will hold the table of `explained` for all admissions.
        on_guess: called with a sentence if the ICD version is guessed from the codes; without it nothing is guessed.
        on_batch: called with the number of admissions done.
        **columns: options of `score_file` for the columns of the file: `icd_version`, `id`, `codes`, `restore_zeros`.

    Returns:
        A tally with the warnings about the admissions.

    >>> from tempfile import TemporaryDirectory
    >>> from mlci.index.estimator import load
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "visits.csv").write_text("visit_id,DX1,DX2\\n1,I50.9,N17.9\\n2,Z37.0,")
    ...     tally = explain_file(load("us2010").model_, f"{folder}/visits.csv", f"{folder}/why.csv", icd_version=10)
    ...     lines = Path(folder, "why.csv").read_text().splitlines()
    >>> tally.admissions, len(lines), lines[2][:39]
    (2, 6, '1,"I50.9","Heart failure, unspecified",')
    """
    tally, of_file = Tally(model), []
    options = {"on_guess": on_guess, "on_doubt": of_file.append, "batch": BATCH, **columns}
    with writing(target, inputs=[source], repeated=True) as write:
        for admissions, _ in stream_admissions(model, source, **options):
            write(explained(model, admissions))
            tally = tally.add(admissions)
            if on_batch:
                on_batch(tally.admissions)
        if not tally.admissions:  # an empty file gives an empty table
            write(explained(model, Admissions.from_lists([])))
    return replace(tally, of_file=tuple(of_file))


def explained(model: Model, admissions: Admissions) -> "pa.Table":
    """Return one row per recorded code, in order, and for a table one more per admission: the value without codes.

    Args:
        model: an index.
        admissions: normalised codes.

    Returns:
        The columns `admission_id`, `code`, `title`, `known` (to the model), `score`, and `log_odds_*` of each outcome
        for which the index has log-odds.

    >>> from mlci.index.estimator import load
    >>> model = load("us2010").model_
    >>> visits = model.as_admissions([["I50.9", "N17.9"], ["Z37.0"]], icd_version=10)
    >>> rows = explained(model, visits).to_pandas()
    >>> rows["title"].tolist()[:3]
    ['without codes', 'Heart failure, unspecified', 'Acute kidney failure, unspecified']
    >>> bool(np.allclose(rows.groupby("admission_id")["score"].sum(), model.score(visits)))
    True
    """
    import pyarrow as pa

    recorded, found = admissions.indices, shares(model, admissions, model.read(admissions))
    versions = [int(version) for version in admissions.versions]
    written = np.array([icd.dotted(str(code), own) for code, own in zip(admissions.values, versions)], dtype=object)
    titles = np.array(titles_of(model, admissions), dtype=object)
    columns = {
        "admission_id": np.repeat(admissions.ids, admissions.counts),
        "code": written[recorded],
        "title": titles[recorded],
        "known": model.known(admissions)[recorded],
        "score": found.score,
    }
    without = {"code": None, "title": WITHOUT, "known": None, "score": model.without_codes.score[0]}
    if found.log_odds is not None and model.without_codes.log_odds is not None:
        names = [f"log_odds_{name}" for name in model.learned]
        columns |= dict(zip(names, found.log_odds.T))
        without |= dict(zip(names, model.without_codes.log_odds[0]))
    if model.additive:
        begins = admissions.offsets[:-1]
        columns = {
            name: np.insert(_nullable(values), begins, without.get(name, admissions.ids))
            for name, values in columns.items()
        }
    kinds = {"code": pa.string(), "title": pa.string(), "known": pa.bool_()}
    return pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})


def _nullable(values: np.ndarray) -> np.ndarray:
    """Return the values in a type that can hold None."""
    return values.astype(object) if values.dtype == bool else values
