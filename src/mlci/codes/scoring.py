"""Compute published indices for a file of any layout and size, and write the scores to a file.

Scores are kept on disk until the means and SDs of CCI+ECI are known, so that memory does not grow with the file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError
from mlci.base.files import scratch
from mlci.base.tablewriter import writing
from mlci.codes.audit import Audit, Finding
from mlci.codes.comorbidity import LISTED, Coder, Combined, ages_of, pair_of, points_of
from mlci.codes.family import CLASSIC, chosen, score_columns
from mlci.codes.lookback import LookBack
from mlci.codes.poa import AHRQ, ALL, ANY, KEEP, reading
from mlci.codes.streams import ROW, ahead, stream_rows
from mlci.codes.versions import Guess
from mlci.codes.years import ByYear, years_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Written:
    """The result of `write_scores`."""

    admissions: int
    without_codes: int
    audits: list[Audit]
    findings: list[Finding]
    unlisted: list[str]  # sentences on indices without a list for some codes' ICD version
    combined: Combined | None  # if both of its indices are written, and there are admissions
    split: bool  # whether CCI+ECI was fitted on a training split
    late: int  # the number of codes that arose after admission, if flags were read
    of_file: list[str]  # notes on the file, a sentence each


def _coded(
    source: str | Path,
    coder: Coder,
    look_back: LookBack | None,
    carry: Sequence[str],
    *,
    poa: str | None,
    guess: Guess | None,
    by_year: ByYear | None,
    options: dict[str, Any],
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Yield the identifiers, bits and further columns of a file's admissions; with a look-back, all at once.

    A file without rows gives one part without rows. Codes that arose during an earlier admission count as history;
    codes that arose during this admission count only if `poa` says so.
    """
    import pyarrow as pa

    carry = tuple(dict.fromkeys((*carry, *(look_back.columns if look_back else ()))))
    how = reading(poa or ALL) if look_back is None else {None: ANY, ALL: ALL}.get(poa, KEEP)
    ids, own, past, others = [], [], [], []
    for part, carried in stream_rows(source, carry=carry, poa=how, **options):
        part = guess(part) if guess else part
        counted = part if poa == AHRQ else part.present()
        if by_year is not None:
            by_year.add(counted, years_of(carried, by_year.column, str(source)))
        bits = coder(counted)
        if look_back is None:
            yield part.ids, bits, carried
            continue
        all_count = part.poa is None and look_back.carry is None and not coder.skipped.any()
        past.append({np.inf: bits} if all_count else coder.past(part, look_back.carry))
        ids.append(part.ids)
        own.append(bits)
        others.append(carried)
    if not coder.admissions:
        no_bits = np.zeros((coder.rules.words, 0), dtype=np.uint64)
        yield np.arange(0), no_bits, pa.table({name: pa.nulls(0) for name in carry})
    elif look_back:
        none = [np.zeros_like(bits) for bits in own]
        reaches = {days for bits in past for days in bits}
        by_reach = {days: np.hstack([bits.get(days, zero) for bits, zero in zip(past, none)]) for days in reaches}
        table = pa.concat_tables(others, promote_options="permissive")
        yield np.concatenate(ids), look_back.carried(np.hstack(own), by_reach, table, str(source)), table


def write_scores(
    source: str | Path,
    target: str | Path,
    *,
    index: str | Sequence[str] = CLASSIC,
    weights: Sequence[str] = (),
    hierarchy: bool = True,
    with_flags: bool = False,
    poa: str | None = None,
    principal: str = LISTED,
    age: str | None = None,
    look_back: LookBack | None = None,
    by_year: ByYear | None = None,
    on_guess: Callable[[str], None] | None = None,
    on_batch: Callable[[int], None] | None = None,
    **options: Any,
) -> Written:
    """Score a file of admissions into another file, in memory that does not grow with it.

    Args:
        source: a Parquet, CSV or Excel file.
        target: a Parquet, CSV or Excel file.
        index, weights, hierarchy, poa, principal: as in `indices`.
        with_flags: whether to write a column per category too.
        age: the column of ages in years, for scores with points for age.
        look_back: count the categories of a patient's earlier admissions too; these are held in memory. Codes that
            arose during the admission itself then do not count, unless `poa` says so.
        by_year: count codes by the year of their admission, and look for errors in each of them (`findings`).
        on_guess: called with a sentence if the ICD version is guessed from the codes; without it, nothing is guessed.
        on_batch: called with the number of admissions so far.
        options: options of `stream_rows`, such as `id`, `codes` and `icd_version`.

    Returns:
        The numbers of what was read, and what was not understood. CCI+ECI, if both indices are written, is fitted on
        the training split of the file, or on all admissions if the file has no split.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "visits.csv").write_text("visit_id,DX1,DX2\\n1,I50.9,C78.0\\n2,E11.9,")
    ...     done = write_scores(f"{folder}/visits.csv", f"{folder}/scores.csv", index="charlson", icd_version=10)
    ...     print(done.admissions, Path(folder, "scores.csv").read_text().split())
    2 ['"admission_id","cci_charlson"', '1,7', '2,1']
    """
    import pyarrow as pa

    names = chosen(index)
    columns = score_columns(weights, names)
    pair = pair_of(columns)
    coder, split, of_file, ageless = Coder(names, principal=principal), False, [], [0]
    how = {"unused": True, "on_doubt": of_file.append, **options}
    seen = {"guess": Guess(str(source), on_guess) if on_guess else None, "by_year": by_year}

    def scored(ids: np.ndarray, bits: np.ndarray, carried: Any) -> dict[str, Any]:
        bits = coder.rules.settled(bits, hierarchy)
        found = coder.rules.scores(bits, columns)
        with_age = _with_age(coder, found, carried, age, str(source), ageless) if age is not None else {}
        return {"admission_id": ids, **found, **with_age, **(coder.rules.flags(bits) if with_flags else {})}

    def training(spool: Path) -> Iterator[np.ndarray]:
        nonlocal split
        sink: Any = None
        carry = ("split", *filter(None, [age, by_year and by_year.column]))
        for part in _coded(source, coder, look_back, carry, poa=poa, **seen, options=how):
            found, carried = scored(*part), part[2]
            rows = pa.record_batch(found)
            sink = sink or pa.ipc.new_stream(spool, rows.schema)
            sink.write(rows)
            if on_batch:
                on_batch(coder.admissions)
            split = "split" in carried.column_names
            points = points_of(found, pair or (columns[0], columns[0]))
            yield points[np.asarray(carried["split"]) == "train"] if split else points
        sink.close()  # there is at least one part

    # Scores repeat, so their columns get dictionaries; identifiers do not repeat.
    with writing(target, inputs=[source], repeated=[*columns, "cci_eci"]) as write, scratch() as folder:
        spool = folder / "scores.arrow"
        combined = Combined.of(training(spool), pair or (columns[0], columns[0]), hierarchy)
        if pair and coder.admissions and not combined.admissions:
            raise InputError(f"{source}: column split: no admission is in 'train', whose mean and SD CCI+ECI needs.")
        for table in ahead(_spooled(spool, combined if pair else None, 1 + len(columns))):
            write(table)
    reports = coder.audit(), [] if by_year is None else coder.findings(by_year), coder.unlisted()
    combined = combined if pair and coder.admissions else None
    of_file += [*coder.letter_notes(), *_missing_ages(age, sum(ageless), coder.admissions)]
    return Written(coder.admissions, coder.without_codes, *reports, combined, split, coder.late, of_file)


def _spooled(spool: Path, combined: Combined | None, place: int) -> "Iterator[pa.Table]":
    """Yield the stored scores; if CCI+ECI was fitted, insert it as the column at `place`."""
    import pyarrow as pa

    with pa.OSFile(str(spool)) as stored:
        for rows in pa.ipc.open_stream(stored):
            table = pa.table(rows)
            if combined:
                table = table.add_column(place, "cci_eci", pa.array(combined.apply(points_of(table, combined.columns))))
            yield table


def _missing_ages(name: str | None, missing: int, admissions: int) -> list[str]:
    found = f"column {name}: is empty for {missing:,} of {admissions:,} admissions; no point is added."
    return [found] if missing else []


def _with_age(
    coder: Coder, found: dict[str, Any], carried: "pa.Table", name: str, where: str, ageless: list[int]
) -> dict[str, Any]:
    """Return the scores with points for age; append to `ageless` how many ages are not known."""
    if name not in carried.column_names:
        raise InputError(f"{where}: lacks the column {name} of ages (--age).")
    rows = carried[ROW].to_numpy() if ROW in carried.column_names else None  # none in a file without admissions
    ages = ages_of(carried[name], len(carried), f"{where}: column {name}", rows)
    ageless.append(int(np.isnan(ages).sum()))
    return coder.rules.with_age(found, ages)
