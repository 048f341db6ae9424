"""Charlson and Elixhauser: codes in, category flags and scores out.

Quan's 2005 code lists, the published weights and the rule that a severer form drops its milder one come from `data/`.
The 17 + 31 categories are the bits of one number: each distinct code is looked up once, an admission is the bitwise OR
of its codes, a score is the sum of the weights of its bits. An admission without codes scores 0 and is kept.
"""

import csv
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mlci.base.errors import InputError
from mlci.base.files import scratch
from mlci.base.tablefile import writing
from mlci.codes import icd
from mlci.codes.admissions import Admissions, ahead, as_admissions, stream_rows
from mlci.codes.audit import Audit, Finding, audit, findings
from mlci.codes.lookback import LookBack
from mlci.codes.poa import ALL, late, reading
from mlci.codes.versions import Guess

SHORT = {"charlson": "cci", "elixhauser": "eci"}
PAPER = ("charlson", "vw")


@dataclass(frozen=True)
class Category:
    """One comorbidity; `column` is its flag's name, `yields_to` the column of the severer form that drops it."""

    column: str
    words: str
    yields_to: str | None
    weights: dict[str, int]  # by name of the weights; `count` is 1 everywhere
    needs_poa: bool  # by AHRQ's rule: counts only if present on admission, as it may arise in hospital


@dataclass(frozen=True)
class Rules:
    """The published tables; the categories' order is that of the bits."""

    categories: tuple[Category, ...]
    prefixes: dict[int, dict[str, int]]  # ICD version -> prefix -> bits


def _csv(name: str) -> Iterator[dict[str, str]]:
    with open(icd.DATA / name, newline="") as file:
        yield from csv.DictReader(file)


@cache
def rules() -> Rules:
    """Return the categories of Charlson and Elixhauser, their weights, and the beginnings of their codes.

    >>> rules().categories[0].words
    'myocardial infarction'
    """
    weights: dict[str, dict[str, int]] = {}
    for row in _csv("weights.csv"):
        of_category = weights.setdefault(f"{SHORT[row['index']]}_{row['category']}", {"count": 1})
        of_category[row["weights"]] = int(row["weight"])
    categories = []
    for row in _csv("categories.csv"):
        index = SHORT[row["index"]]
        severer = f"{index}_{row['yields_to']}" if row["yields_to"] else None
        column = f"{index}_{row['category']}"
        categories.append(Category(column, row["words"], severer, weights[column], row["poa"] == "needed"))
    bit = {category.column: 1 << place for place, category in enumerate(categories)}
    prefixes: dict[int, dict[str, int]] = {version: {} for version in icd.VERSIONS}
    for row in _csv("prefixes.csv"):
        listed, prefix = prefixes[int(row["version"])], row["prefix"]
        listed[prefix] = listed.get(prefix, 0) | bit[f"{SHORT[row['index']]}_{row['category']}"]
    return Rules(tuple(categories), prefixes)


def code_bits(codes: Sequence[str] | np.ndarray, version: int) -> np.ndarray:
    """Return the categories of each normalised code, those of all its listed beginnings, as bits (uint64).

    >>> int(code_bits(["I252"], 10)[0]) & 1  # the first category, myocardial infarction
    1
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.array(codes, pa.string())
    bits = np.zeros(len(text), dtype=np.uint64)
    for length, prefixes, of_prefix in _by_length(version):
        place = pc.index_in(pc.utf8_slice_codeunits(text, 0, length), value_set=prefixes)
        bits |= of_prefix[pc.fill_null(place, -1).to_numpy()]
    return bits


@cache
def _by_length(version: int) -> list[tuple[int, Any, np.ndarray]]:
    """The listed prefixes of each length as an Arrow array, and their bits; a last entry stands for none."""
    import pyarrow as pa

    found = []
    for length in {len(prefix) for prefix in rules().prefixes[version]}:
        values = {prefix: bits for prefix, bits in rules().prefixes[version].items() if len(prefix) == length}
        found.append((length, pa.array(values), np.array([*values.values(), 0], dtype=np.uint64)))
    return found


class _Met:
    """The distinct codes of one ICD version met so far: their categories, and how often each came."""

    def __init__(self, version: int):
        import pyarrow as pa

        self.version = version
        self.codes = pa.array([], pa.string())
        self.bits = np.zeros(0, dtype=np.uint64)
        self.counts = np.zeros(0, dtype=np.int64)

    def places(self, codes: np.ndarray) -> np.ndarray:
        """Where each of the codes, no two alike, stands among those met."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = pa.array(codes, pa.string())
        place = pc.index_in(text, value_set=self.codes).fill_null(-1).to_numpy().copy()
        new = np.flatnonzero(place < 0)
        place[new] = np.arange(len(self.codes), len(self.codes) + len(new))
        unmet = text.take(pa.array(new))
        self.codes = pa.concat_arrays([self.codes, unmet])
        self.bits = np.append(self.bits, code_bits(unmet, self.version))
        self.counts = np.append(self.counts, np.zeros(len(new), dtype=np.int64))
        return place


class Coder:
    """Turns admissions into category bits, batch after batch; each distinct code is looked up once and counted.

    Where codes come with their flags, one that arose after admission counts by AHRQ's rule: for a comorbidity that is
    chronic, and not for one that may arise in hospital.
    """

    def __init__(self):
        self.met = {version: _Met(version) for version in icd.VERSIONS}
        self.admissions = self.without_codes = self.short = self.late = 0
        self.last: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self, admissions: Admissions) -> np.ndarray:
        """The bits of each admission (uint64), milder forms included."""
        if not admissions.versions.all():
            raise InputError(
                "some codes have no ICD version; --icd-version 9 or 10 (icd_version= in Python) says it for all, or "
                "names the column that says it for each."
            )
        self._look_up(admissions.values, admissions.versions)
        indices = admissions.indices.astype(np.intp)
        counts = np.bincount(indices, minlength=len(admissions.values))
        for met, rows, places in self.places:
            met.counts[places] += counts[rows]
        start, end = admissions.offsets[:-1], admissions.offsets[1:]
        bits, some = np.zeros(len(admissions), dtype=np.uint64), start < end
        if some.any():
            of_code = self.of_value[indices]
            if admissions.poa is not None:
                of_code[late(admissions.poa)] &= ~_needing_poa()
            bits[some] = np.bitwise_or.reduceat(of_code, start[some])
        self.admissions += len(bits)
        self.without_codes += len(bits) - int(some.sum())
        self.short += admissions.short
        self.late += admissions.late if admissions.poa is None else int(late(admissions.poa).sum())
        return bits

    def _look_up(self, values: np.ndarray, versions: np.ndarray) -> None:
        """The bits of each distinct code, unless they are those of the last batch."""
        if self.last and self.last[0] is values and np.array_equal(self.last[1], versions):
            return
        self.last, self.places = (values, versions), []
        self.of_value = np.zeros(len(values), dtype=np.uint64)
        for version, met in self.met.items():
            rows = np.flatnonzero(versions == version)
            places = met.places(values[rows])
            self.of_value[rows] = met.bits[places]
            self.places.append((met, rows, places))

    def audit(self) -> list["Audit"]:
        """What the ICD tables say of the codes met so far, per ICD version."""
        found = []
        for version, met in self.met.items():
            if met.counts.any():
                found.append(audit(met.codes, met.counts, version, short=self.short if version == 9 else 0))
        return found

    def findings(self) -> list[Finding]:
        """The codes met so far that are no codes as they stand, the commonest first."""
        found = [code for version, met in self.met.items() for code in findings(met.codes, met.counts, version)]
        return sorted(found, key=lambda code: (-code.count, code.version, code.code))


@cache
def _needing_poa() -> np.uint64:
    return np.uint64(sum(1 << place for place, category in enumerate(rules().categories) if category.needs_poa))


def drop_milder(bits: np.ndarray) -> np.ndarray:
    """Clear the bit of a milder form where the severer is set: complicated diabetes drops the plain one, and so on.

    >>> bits = code_bits(["E119", "E112"], 10)
    >>> int(flags(drop_milder(bits[:1] | bits[1:])).sum()) < int(flags(bits[:1] | bits[1:]).sum())
    True
    """
    place = {category.column: np.uint64(i) for i, category in enumerate(rules().categories)}
    for category in rules().categories:
        if category.yields_to:
            severer = (bits >> place[category.yields_to]) & np.uint64(1)
            bits = bits & ~(severer << place[category.column])
    return bits


def _octets(bits: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(bits, dtype="<u8").view(np.uint8).reshape(-1, 8)


def flags(bits: np.ndarray) -> np.ndarray:
    """Return 0 and 1 for the bits of each admission, one column per category.

    >>> flags(code_bits(["I252", "XXX"], 10)).sum(axis=1).tolist()
    [1, 0]
    """
    return np.unpackbits(_octets(bits), axis=1, count=len(rules().categories), bitorder="little")


def scores(bits: np.ndarray, columns: Sequence[str]) -> np.ndarray:
    """Return whole-numbered scores of the bits of each admission, one column per score.

    Args:
        bits: the categories of each admission.
        columns: `cci_` with charlson, quan or count, `eci_` with vw, swiss or count.

    >>> scores(code_bits(["I509"], 10), ["cci_charlson", "eci_vw"]).tolist()
    [[1, 7]]
    """
    tables = _octet_scores(tuple(columns))
    octets = _octets(bits)
    return np.stack([sum(part[octets[:, i]] for i, part in enumerate(table)) for table in tables], axis=1)


@cache
def _octet_scores(columns: tuple[str, ...]) -> np.ndarray:
    """What each of the 256 values of each octet of the bits adds to each score: eight categories at one look."""
    weights = np.zeros((len(columns), 64), dtype=np.int32)
    for place, category in enumerate(rules().categories):
        for k, column in enumerate(columns):
            if column[:4] == category.column[:4]:
                weights[k, place] = category.weights[column[4:]]
    octets = -(-len(rules().categories) // 8)
    single = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.int32)
    return np.einsum("vb,kob->kov", single, weights[:, : 8 * octets].reshape(len(columns), octets, 8))


def weight_names(index: str) -> list[str]:
    """Return the names of the weights of `charlson` or `elixhauser`.

    >>> weight_names("elixhauser")
    ['vw', 'swiss', 'count']
    """
    first = next(category for category in rules().categories if category.column.startswith(SHORT[index]))
    return [name for name in first.weights if name != "count"] + ["count"]


def score_columns(weights: Iterable[str], indices: Iterable[str] = tuple(SHORT)) -> list[str]:
    """Return the score columns that weights ask for, in the tables' order.

    Args:
        weights: their names; an index that none of them is for takes the paper's.
        indices: charlson, elixhauser or both.

    >>> score_columns(["quan"])
    ['cci_quan', 'eci_vw']
    """
    weights, indices = list(weights), list(indices)
    allowed = list(dict.fromkeys(name for index in indices for name in weight_names(index)))
    for name in weights:
        if name not in allowed:
            raise InputError(f"weights {name!r} are not known; allowed are {', '.join(allowed)}.")
    columns = []
    for index in indices:
        wanted = [name for name in weight_names(index) if name in weights]
        default = [name for name in weight_names(index) if name in PAPER]
        columns += [f"{SHORT[index]}_{name}" for name in wanted or default]
    return columns


def charlson(
    codes: Any,
    *,
    icd_version: int = 10,
    weights: str | Sequence[str] = "charlson",
    hierarchy: bool = True,
    flags: bool = False,
    poa: str = ALL,
) -> Any:
    """Return Charlson scores as a frame of the kind that came in.

    Args:
        codes: a list of lists, a cohort, or a pandas, polars or Arrow frame, one row per admission (`codes`) or per
            code (`admission_id`, `code`); its `icd_version` column, if any, goes before the argument.
        icd_version: of the codes.
        weights: one or several of charlson (1987), quan (2011), count.
        hierarchy: whether to drop a milder form beside its severer one.
        flags: whether to add one column for each category.
        poa: all codes; only those present on admission; ahrq: as AHRQ does, acute comorbidities if present on admission
            and chronic ones in any case. The last two need flags: a cohort's or frame's `poa`, or `POA1` beside `DX1`.

    >>> charlson([["I50.9", "E11.9"], []], icd_version=10)["cci_charlson"].tolist()
    [2, 0]
    """
    return _frame("charlson", codes, icd_version, weights, hierarchy, flags, poa)


def elixhauser(
    codes: Any,
    *,
    icd_version: int = 10,
    weights: str | Sequence[str] = "vw",
    hierarchy: bool = True,
    flags: bool = False,
    poa: str = ALL,
) -> Any:
    """Return Elixhauser scores as a frame of the kind that came in.

    Args:
        codes, icd_version, hierarchy, flags, poa: as in `charlson`.
        weights: one or several of vw (van Walraven), swiss, count.

    >>> elixhauser([["I50.9", "E11.9"], []], icd_version=10)["eci_vw"].tolist()
    [7, 0]
    """
    return _frame("elixhauser", codes, icd_version, weights, hierarchy, flags, poa)


def _frame(
    index: str,
    data: Any,
    icd_version: int,
    weights: str | Sequence[str],
    hierarchy: bool,
    with_flags: bool,
    poa: str = ALL,
):
    import narwhals as nw

    columns = score_columns([weights] if isinstance(weights, str) else weights, [index])
    admissions = as_admissions(data, icd_version=icd.check_version(icd_version), poa=reading(poa))
    bits = _bits(admissions, hierarchy, stacklevel=4)
    found = {"admission_id": admissions.ids, **dict(zip(columns, scores(bits, columns).T))}
    if with_flags:
        found |= {name: flag for name, flag in flag_columns(bits).items() if name.startswith(SHORT[index])}
    native = nw.from_native(data).implementation if nw.dependencies.is_into_dataframe(data) else "pandas"
    return nw.from_dict(found, backend=native).to_native()


def flag_columns(bits: np.ndarray) -> dict[str, np.ndarray]:
    """Return one Boolean array per category, by its column's name.

    >>> [name for name, flag in flag_columns(code_bits(["I252"], 10)).items() if flag[0]]
    ['cci_mi']
    """
    return {category.column: flag for category, flag in zip(rules().categories, flags(bits).astype(bool).T)}


def _bits(admissions: Admissions, hierarchy: bool, stacklevel: int) -> np.ndarray:
    coder = Coder()
    bits = coder(admissions)
    for found in coder.audit():
        for sentence in found.warnings:
            warnings.warn(sentence, stacklevel=stacklevel)
    return drop_milder(bits) if hierarchy else bits


@dataclass(frozen=True)
class Combined:
    """CCI+ECI: the sum of the two z-scores, with mean and (population) deviation of the admissions it was fitted on."""

    columns: tuple[str, str]
    hierarchy: bool
    means: tuple[float, float]
    deviations: tuple[float, float]
    admissions: int  # that it was fitted on

    @classmethod
    def fit(
        cls, data: Any, *, icd_version: int | None = None, weights: Sequence[str] = PAPER, hierarchy: bool = True
    ) -> "Combined":
        """Fit on the training admissions: anything that `as_admissions` takes."""
        columns = pair_of(score_columns(weights))
        bits = _bits(as_admissions(data, icd_version=icd_version), hierarchy, stacklevel=3)
        return cls.of([scores(bits, columns)], columns, hierarchy)

    @classmethod
    def of(cls, batches: Iterable[np.ndarray], columns: tuple[str, str], hierarchy: bool) -> "Combined":
        """Fit on batches of the two scores: whole numbers, so running sums of squares lose nothing."""
        n, total, squares = 0, np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
        for batch in batches:
            points = batch.astype(np.int64)
            n, total, squares = n + len(points), total + points.sum(0), squares + (points**2).sum(0)
        return cls.from_sums(n, total, squares, columns, hierarchy)

    @classmethod
    def from_sums(
        cls, n: int, total: np.ndarray, squares: np.ndarray, columns: tuple[str, str], hierarchy: bool
    ) -> "Combined":
        """From the number of admissions and the sums of the two scores and of their squares, exact whole numbers."""
        mean = total / max(n, 1)
        deviation = np.sqrt((n * squares - total**2) / max(n, 1) ** 2)
        return cls(columns, hierarchy, tuple(mean.tolist()), tuple(deviation.tolist()), n)

    def score(self, data: Any, *, icd_version: int | None = None) -> np.ndarray:
        """One number per admission."""
        bits = _bits(as_admissions(data, icd_version=icd_version), self.hierarchy, stacklevel=3)
        return self.apply(scores(bits, self.columns))

    def apply(self, points: np.ndarray) -> np.ndarray:
        """From the two scores; one that never varied in training adds nothing."""
        deviation = np.array(self.deviations)
        return ((points - np.array(self.means)) / np.where(deviation > 0, deviation, np.inf)).sum(axis=1)


def pair_of(columns: Sequence[str]) -> tuple[str, str]:
    """Return the two scores that CCI+ECI adds up: the first of each index.

    >>> pair_of(["cci_charlson", "cci_quan", "eci_vw"])
    ('cci_charlson', 'eci_vw')
    """
    return next(c for c in columns if c.startswith("cci")), next(c for c in columns if c.startswith("eci"))


@dataclass(frozen=True)
class Written:
    """What `write_scores` did."""

    admissions: int
    without_codes: int
    audits: list[Audit]
    findings: list[Finding]
    combined: Combined
    split: bool  # whether CCI+ECI was fitted on a training split
    late: int  # codes that arose after admission, where that was asked


def _coded(
    source: str | Path, coder: Callable[[Admissions], np.ndarray], look_back: LookBack | None, options: dict[str, Any]
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """The identifiers, bits and carried columns of a file's admissions; with a look-back, all of them at once."""
    import pyarrow as pa

    carry = ("split", *((look_back.subject, look_back.admitted) if look_back else ()))
    batches = ((part.ids, coder(part), carried) for part, carried in stream_rows(source, carry=carry, **options))
    if look_back is None:
        yield from batches
        return
    parts = list(batches)
    if parts:
        ids, bits, carried = zip(*parts)
        table = pa.concat_tables(carried, promote_options="permissive")
        yield np.concatenate(ids), look_back.carried(np.concatenate(bits), table, str(source)), table


def write_scores(
    source: str | Path,
    target: str | Path,
    *,
    weights: Sequence[str] = (),
    hierarchy: bool = True,
    with_flags: bool = False,
    poa: str = ALL,
    look_back: LookBack | None = None,
    on_guess: Callable[[str], None] | None = None,
    on_batch: Callable[[int], None] | None = None,
    **options: Any,
) -> Written:
    """Score a file of admissions into a Parquet, CSV or Excel file, in memory that does not grow with it.

    `options` are those of `stream_rows`: `id`, `codes` and `icd_version` name the file's columns where their names do
    not speak for themselves. With `on_guess`, which is called with a sentence, the codes may tell their ICD version
    where the file does not. `poa` says which codes count, as in `charlson`. CCI+ECI is fitted on the training split
    where the file has one, else on all its admissions. Its moments are known only at the end, so the scores wait in a
    temporary file. `look_back` counts the categories of a patient's earlier admissions too, and holds those in memory.
    """
    import pyarrow as pa

    columns = score_columns(weights)
    pair = pair_of(columns)
    coder, split = Coder(), False

    def training(spool: Path) -> Iterator[np.ndarray]:
        nonlocal split
        sink = None
        how = {"unused": True, "poa": reading(poa), **options}
        guess = Guess(str(source), on_guess) if on_guess else lambda batch: batch
        for ids, bits, carried in _coded(source, lambda batch: coder(guess(batch)), look_back, how):
            bits = drop_milder(bits) if hierarchy else bits
            found = scores(bits, columns)
            rows = {"admission_id": ids, **dict(zip(columns, found.T))}
            rows = pa.record_batch(rows | ({"bits": bits} if with_flags else {}))
            sink = sink or pa.ipc.new_stream(spool, rows.schema)
            sink.write(rows)
            if on_batch:
                on_batch(coder.admissions)
            split = "split" in carried.column_names
            points = found[:, [columns.index(name) for name in pair]]
            yield points[np.asarray(carried["split"]) == "train"] if split else points
        if sink is None:
            raise InputError(f"{source}: holds no admissions.")
        sink.close()

    def tables(spool: Path) -> Iterator[pa.Table]:
        with pa.OSFile(str(spool)) as stored:
            for rows in pa.ipc.open_stream(stored):
                found = {name: rows[name] for name in ("admission_id", *columns)}
                found["cci_eci"] = combined.apply(np.column_stack([found[name] for name in pair]))
                found |= flag_columns(rows["bits"].to_numpy()) if with_flags else {}
                yield pa.table(found)

    # Scores repeat, identifiers do not: a dictionary of them would be built in vain.
    with writing(target, inputs=[source], repeated=[*columns, "cci_eci"]) as write, scratch() as folder:
        spool = folder / "scores.arrow"
        combined = Combined.of(training(spool), pair, hierarchy)
        if not combined.admissions:
            raise InputError(f"{source}: column split: no admission is in 'train', whose mean and SD CCI+ECI needs.")
        for table in ahead(tables(spool)):
            write(table)
    return Written(coder.admissions, coder.without_codes, coder.audit(), coder.findings(), combined, split, coder.late)
