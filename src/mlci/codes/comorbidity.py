"""Compute published comorbidity indices: category flags and scores of any choice of indices, in one pass.

Lists and rules come from `family` and `rules`; the default is Charlson and Elixhauser by Quan's lists. Each distinct
code is looked up once. An admission without codes is kept and scores 0.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlci.base.errors import InputError
from mlci.codes import certainty, icd
from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.audit import Audit, Finding, audit, findings, out_of_year
from mlci.codes.family import CLASSIC, chosen, score_columns
from mlci.codes.lookback import trimmed
from mlci.codes.poa import ALL, late, reading
from mlci.codes.rules import Rules, rules
from mlci.codes.years import ByYear

if TYPE_CHECKING:
    from mlci.codes.carrying import Carry

PAPER = ("charlson", "vw")
AGE_LIMIT = 130  # years that no patient reaches
LISTED, COUNT, SKIP = PRINCIPAL = ("listed", "count", "skip")  # choices for an admission's first diagnosis


class _Met:
    """The distinct codes of one ICD version met so far, with the categories and the count of each."""

    def __init__(self, own: Rules, version: int):
        import pyarrow as pa

        self.rules, self.version = own, version
        self.codes = pa.array([], pa.string())
        self.counts = np.zeros(0, dtype=np.int64)
        self._bits = {late: np.zeros((own.words, 0), dtype=np.uint64) for late in (False, True)}

    def places(self, codes: np.ndarray) -> np.ndarray:
        """Return the place of each of the distinct `codes` among those met; add the new ones."""
        import pyarrow as pa
        import pyarrow.compute as pc

        text = pa.array(codes, pa.string())
        place = pc.index_in(text, value_set=self.codes).fill_null(-1).to_numpy().copy()
        new = np.flatnonzero(place < 0)
        place[new] = np.arange(len(self.codes), len(self.codes) + len(new))
        self.codes = pa.concat_arrays([self.codes, text.take(pa.array(new))])
        self.counts = np.append(self.counts, np.zeros(len(new), dtype=np.int64))
        return place

    def bits(self, late: bool) -> np.ndarray:
        """Return the categories of every code met: of codes that arose after admission (`late`), or of present ones."""
        known = self._bits[late]
        if known.shape[1] < len(self.codes):
            new = self.rules.code_bits(self.codes[known.shape[1] :], self.version, late=late)
            self._bits[late] = np.hstack([known, new])
        return self._bits[late]


class Coder:
    """Turns admissions into category bits, batch after batch; each distinct code is looked up once and counted.

    If codes have flags, AHRQ's rule decides about a code that arose after admission: it counts for a chronic
    comorbidity, but not for one that may arise in hospital.

    Args:
        names: names of indices.
        principal: whether the first diagnosis counts: as each list says (`listed`), always (`count`), never (`skip`).
    """

    def __init__(self, names: Sequence[str] = CLASSIC, *, principal: str = LISTED):
        self.rules = rules(tuple(names))
        self.met = {version: _Met(self.rules, version) for version in icd.VERSIONS}
        self.admissions = self.without_codes = self.short = self.late = self.unsure = 0
        self.last: tuple[np.ndarray, np.ndarray] | None = None
        masks = {LISTED: self.rules.secondary_alone, COUNT: np.uint64(0), SKIP: ~np.uint64(0)}
        if principal not in masks:
            raise InputError(f"principal {principal!r} is not known; allowed are {', '.join(PRINCIPAL)}.")
        self.skipped = np.broadcast_to(masks[principal], self.rules.words)

    def __call__(self, admissions: Admissions) -> np.ndarray:
        """Return the category bits of each admission, in a row for each word of 64; milder forms are included."""
        if not admissions.versions.all():
            raise InputError(
                "some codes have no ICD version; --icd-version 9 or 10 (icd_version= in Python) states it for all, or "
                "names the column that holds it."
            )
        self._look_up(admissions.values, admissions.versions)
        indices = admissions.indices.astype(np.intp)
        counts = np.bincount(indices, minlength=len(admissions.values))
        for met, rows, places in self.places:
            met.counts[places] += counts[rows]
        self.admissions += len(admissions)
        self.without_codes += int((admissions.counts == 0).sum())
        self.short += admissions.short
        self.unsure += admissions.unsure
        self.late += admissions.late if admissions.poa is None else int(late(admissions.poa).sum())
        return self.bits(admissions, skipped=self.skipped)

    def scores(self, admissions: Admissions, columns: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the scores of admissions by column; a milder form does not count if the severer one is present.

        Args:
            admissions: normalised codes.
            columns: names that `score_columns` returns.

        >>> Coder().scores(Admissions.from_lists([["E119", "E112"]], icd_version=10), ["cci_charlson"])
        {'cci_charlson': array([2], dtype=int32)}
        """
        return self.rules.scores(self.rules.settled(self(admissions)), columns)

    def bits(self, admissions: Admissions, *, skipped: np.ndarray | None = None) -> np.ndarray:
        """Return the category bits of each admission, without counting its codes.

        Args:
            admissions: normalised codes.
            skipped: the bits that an admission's first diagnosis cannot set.

        >>> visits = Admissions.from_lists([["E119", "E112"], ["XXX"]], icd_version=10)
        >>> coder = Coder(["charlson"])
        >>> [name for name, flag in coder.rules.flags(coder.bits(visits)).items() if flag[0]]
        ['cci_diab', 'cci_diabwc']
        """
        self._look_up(admissions.values, admissions.versions)
        indices = admissions.indices.astype(np.intp)
        start, end = admissions.offsets[:-1], admissions.offsets[1:]
        bits, some = np.zeros((self.rules.words, len(admissions)), dtype=np.uint64), start < end
        arose = None if admissions.poa is None else late(admissions.poa)
        for word in range(self.rules.words) if some.any() else ():
            of_code = self.of_value(False)[word][indices]
            if arose is not None:
                of_code[arose] = self.of_value(True)[word][indices[arose]]
            if skipped is not None and skipped[word]:
                of_code[start[some]] &= ~skipped[word]
            bits[word, some] = np.bitwise_or.reduceat(of_code, start[some])
        return bits

    def past(self, admissions: Admissions, carry: "Carry | None") -> dict[float, np.ndarray]:
        """Return the category bits that admissions pass on to later ones; all codes count, whatever their flags.

        Args:
            admissions: normalised codes.
            carry: how long each code counts; None: always.

        Returns:
            Number of days → bits of the codes that count so long.

        >>> visits = Admissions.from_lists([["E119", "E112"], ["XXX"]], icd_version=10)
        >>> list(Coder(["charlson"]).past(visits, None))
        [inf]
        """
        plain = replace(admissions, poa=None)
        if carry is None:
            return {np.inf: self.bits(plain)}
        reach = np.zeros(len(plain.values))
        for version in icd.VERSIONS:
            rows = plain.versions == version
            reach[rows] = carry.reach(plain.values[rows], version)
        return {float(days): self.bits(plain.keep(reach == days)) for days in np.unique(reach) if days > 0}

    def _look_up(self, values: np.ndarray, versions: np.ndarray) -> None:
        """Find the place of each distinct code among those met; do nothing if the codes are those of the last batch."""
        if self.last and self.last[0] is values and np.array_equal(self.last[1], versions):
            return
        self.last, self.places, self.found, self.values = (values, versions), [], {}, len(values)
        for version, met in self.met.items():
            rows = np.flatnonzero(versions == version)
            if len(rows):
                self.places.append((met, rows, met.places(values[rows])))

    def of_value(self, late: bool = False) -> np.ndarray:
        """Return the category bits of each distinct code of the last batch.

        Args:
            late: whether the codes arose after admission.

        >>> coder = Coder(["charlson"])
        >>> _ = coder(Admissions.from_lists([["I252", "XXX"]], icd_version=10))
        >>> coder.of_value().tolist()  # myocardial infarction is the first category
        [[1, 0]]
        """
        if late not in self.found:
            self.found[late] = np.zeros((self.rules.words, self.values), dtype=np.uint64)
            for met, rows, places in self.places:
                self.found[late][:, rows] = met.bits(late)[:, places]
        return self.found[late]

    def unlisted(self) -> list[str]:
        """Return a sentence for each index that has no list for the ICD version of some codes met so far.

        >>> coder = Coder(["hfrs"])
        >>> _ = coder(Admissions.from_lists([["4280"]], icd_version=9))
        >>> coder.unlisted()
        ['hfrs has no list for ICD-9: admissions with such codes get no score (codes: 1).']
        """
        found = []
        for version, met in self.met.items():
            scoreless = f"admissions with such codes get no score (codes: {met.counts.sum():,})"
            for index in self.rules.indices:
                if met.counts.any() and version not in index.versions:
                    found.append(f"{index.name} has no list for ICD-{version}: {scoreless}.")
        return found

    def letter_notes(self) -> list[str]:
        """Return notes on codes that German letters of certainty mark as suspected or ruled out.

        >>> coder = Coder(["charlson"])
        >>> _ = coder(as_admissions([["I21.4 A"]], icd_version=10))
        >>> coder.letter_notes()
        ['1 code is marked as suspected (V) or ruled out (A), as German diagnoses are, and does not count.']
        """
        codes, counts = self.met[10].codes.to_numpy(zero_copy_only=False), self.met[10].counts
        places = certainty.attached(codes)
        return certainty.notes(self.unsure, dict(zip(codes[places], counts[places].tolist())))

    def audit(self) -> list["Audit"]:
        """Return a comparison of the codes met so far with the ICD tables, per ICD version.

        >>> visits = Admissions.from_lists([["E119", "E112"], ["XXX"]], icd_version=10)
        >>> coder = Coder(["charlson"])
        >>> _ = coder(visits)
        >>> [(found.version, found.codes) for found in coder.audit()]
        [(10, 3)]
        """
        found = []
        for version, met in self.met.items():
            if met.counts.any():
                found.append(audit(met.codes, met.counts, version, short=self.short if version == 9 else 0))
        return found

    def findings(self, by_year: ByYear) -> list[Finding]:
        """Return the codes met so far that are not valid, at all or in their year, the most frequent first.

        Args:
            by_year: the same codes by the year of their admission.

        >>> visits = Admissions.from_lists([["E119", "E112"], ["XXX"]], icd_version=10)
        >>> coder = Coder(["charlson"])
        >>> _ = coder(visits)
        >>> [found.code for found in coder.findings(ByYear())]
        ['E112', 'XXX']
        """
        found = [code for version, met in self.met.items() for code in findings(met.codes, met.counts, version)]
        found += out_of_year(by_year)
        return sorted(found, key=lambda code: (-code.count, code.version, code.code))


def charlson(
    codes: Any,
    *,
    icd_version: int = 10,
    weights: str | Sequence[str] = "charlson",
    hierarchy: bool = True,
    flags: bool = False,
    poa: str = ALL,
) -> Any:
    """Return Charlson scores as a frame of the same kind as the input.

    Args:
        codes: a list of lists, a cohort, or a pandas, polars or Arrow frame, one row per admission (`codes`) or per
            code (`admission_id`, `code`); its `icd_version` column, if any, overrides the argument.
        icd_version: the ICD version of the codes.
        weights: one or several of charlson (1987), quan (2011), schneeweiss (2003), count.
        hierarchy: whether to drop a milder form if the severer one is present.
        flags: whether to add one column for each category.
        poa: `all` codes; `only` those present on admission; `ahrq`: acute comorbidities if present on admission and
            chronic ones always, as AHRQ does. The last two need flags: a column `poa`, or `POA1` for `DX1`.

    >>> charlson([["I50.9", "E11.9"], []], icd_version=10)["cci_charlson"].tolist()
    [2, 0]
    """
    return _frame(codes, ["charlson"], weights, icd_version=icd_version, hierarchy=hierarchy, flags=flags, poa=poa)


def elixhauser(
    codes: Any,
    *,
    icd_version: int = 10,
    weights: str | Sequence[str] = "vw",
    hierarchy: bool = True,
    flags: bool = False,
    poa: str = ALL,
) -> Any:
    """Return Elixhauser scores as a frame of the same kind as the input.

    Args:
        codes, icd_version, hierarchy, flags, poa: as in `charlson`.
        weights: one or several of vw (van Walraven), swiss, thompson, thompson29, count.

    >>> elixhauser([["I50.9", "E11.9"], []], icd_version=10)["eci_vw"].tolist()
    [7, 0]
    """
    return _frame(codes, ["elixhauser"], weights, icd_version=icd_version, hierarchy=hierarchy, flags=flags, poa=poa)


def indices(
    codes: Any,
    index: str | Sequence[str] = CLASSIC,
    *,
    icd_version: int = 10,
    weights: str | Sequence[str] = (),
    hierarchy: bool = True,
    flags: bool = False,
    poa: str = ALL,
    principal: str = LISTED,
    age: Any = None,
) -> Any:
    """Return the scores of published indices, all in one pass, as a frame of the same kind as the input.

    Args:
        codes, icd_version, hierarchy, flags, poa: as in `charlson`.
        index: one or several names of `mlci indices --list`, such as ahrq, gagne or hfrs.
        weights: one or several names; an index that has none of them uses its default weights.
        principal: whether an admission's first diagnosis counts: as each list says (`listed`: AHRQ's Refined lists skip
            it), always (`count`), never (`skip`).
        age: ages in years, one for each admission; Charlson scores then have a column with points for age too.

    >>> indices([["I50.9", "E11.9"], []], "charlson,gagne", age=[71, 40]).to_dict("list")
    {'admission_id': [0, 1], 'cci_charlson': [2, 0], 'gagne_score': [2, 0], 'cci_charlson_age': [5, 0]}
    """
    return _frame(
        codes,
        chosen(index),
        weights,
        icd_version=icd_version,
        hierarchy=hierarchy,
        flags=flags,
        poa=poa,
        principal=principal,
        age=age,
    )


def _frame(
    data: Any,
    names: Sequence[str],
    weights: str | Sequence[str],
    *,
    icd_version: int,
    flags: bool,
    poa: str,
    age: Any = None,
    **options: Any,
) -> Any:
    """Return scores as a frame; `options` are those of `_bits`."""
    import narwhals as nw

    columns = score_columns([weights] if isinstance(weights, str) else weights, names)
    admissions = as_admissions(data, icd_version=icd.check_version(icd_version), poa=reading(poa))
    lists = rules(tuple(names))
    bits = _bits(admissions, names, stacklevel=4, **options)
    points = lists.scores(bits, columns)
    found = {"admission_id": admissions.ids} | {name: _filled(values) for name, values in points.items()}
    if age is not None:
        with_age = lists.with_age(points, ages_of(age, len(admissions)))
        found |= {name: _filled(values) for name, values in with_age.items()}
    if flags:
        found |= lists.flags(bits)
    native = nw.from_native(data).implementation if nw.dependencies.is_into_dataframe(data) else "pandas"
    return nw.from_dict(found, backend=native).to_native()


def _filled(values: np.ndarray) -> np.ndarray:
    """Return scores for a frame: masked ones become NaN."""
    return np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else values


def ages_of(ages: Any, admissions: int, where: str = "age", rows: np.ndarray | None = None) -> np.ndarray:
    """Return ages in years as numbers, NaN where unknown.

    Args:
        ages: an Arrow column, or anything that Arrow can make an array of.
        admissions: the number of admissions, each of which needs an age or null.
        where: the name of the ages in messages.
        rows: the row numbers of the file, for messages.

    >>> ages_of(["71", None], 2)
    array([71., nan])
    """
    import pyarrow as pa

    def cell(place: int | None) -> str:
        return where if rows is None or place is None else f"{where}, row {rows[place]}"

    try:
        column = ages if isinstance(ages, pa.ChunkedArray) else pa.chunked_array([pa.array(ages, from_pandas=True)])
        found = trimmed(column).cast(pa.float64()).to_numpy()
    # Text that is no number, a type without a cast to numbers (lists, dates), and values of several types.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        values = [] if rows is None else ages.to_pylist()
        where = cell(next((place for place, value in enumerate(values) if not _is_number(value)), None))
        raise InputError(f"{where}: a value is not a number; allowed are ages in years, or empty cells.") from None
    if len(found) != admissions:
        raise InputError(f"{where}: has {len(found):,} values for {admissions:,} admissions; each needs one.")
    odd = np.flatnonzero((found < 0) | (found >= AGE_LIMIT))
    if len(odd):
        raise InputError(
            f"{cell(odd[0])}: a number is not an age from 0 to {AGE_LIMIT - 1}; empty the cells of ages that are not "
            "known."
        )
    return found


def _is_number(value: Any) -> bool:
    try:
        float(value or 0)
    except (TypeError, ValueError):
        return False
    return True


def _bits(
    admissions: Admissions, names: Sequence[str] = CLASSIC, *, hierarchy: bool, principal: str = LISTED, stacklevel: int
) -> np.ndarray:
    coder = Coder(names, principal=principal)
    bits = coder(admissions)
    audited = (sentence for found in coder.audit() for sentence in found.warnings)
    for sentence in (*audited, *coder.letter_notes(), *coder.unlisted()):
        warnings.warn(sentence, stacklevel=stacklevel)
    return coder.rules.settled(bits, hierarchy)


@dataclass(frozen=True)
class Combined:
    """CCI+ECI: the sum of two z-scores, by the mean and population SD of the admissions that it was fitted on."""

    columns: tuple[str, str]
    hierarchy: bool
    means: tuple[float, float]
    deviations: tuple[float, float]
    admissions: int  # the number that it was fitted on

    @classmethod
    def fit(
        cls, data: Any, *, icd_version: int | None = None, weights: Sequence[str] = PAPER, hierarchy: bool = True
    ) -> "Combined":
        """Fit the scales on training admissions.

        Args:
            data: anything that `as_admissions` takes.
            icd_version: 9 or 10 for codes whose version the data do not state.
            weights: the weights of the two indices.
            hierarchy: whether to drop a milder form if the severer one is present.

        Returns:
            The fitted sum.

        >>> Combined.fit([["I50.9"], []], icd_version=10).means
        (0.5, 3.5)
        """
        columns = pair_of(score_columns(weights))
        assert columns is not None  # both indices are in CLASSIC
        bits = _bits(as_admissions(data, icd_version=icd_version), hierarchy=hierarchy, stacklevel=3)
        return cls.of([points_of(rules().scores(bits, columns), columns)], columns, hierarchy)

    @classmethod
    def of(cls, batches: Iterable[np.ndarray], columns: tuple[str, str], hierarchy: bool) -> "Combined":
        """Fit the scales on batches of the two scores, which are whole numbers, so that sums of squares are exact.

        Args:
            batches: arrays of admissions x 2.
            columns: the names of the two scores.
            hierarchy: whether milder forms were dropped if the severer one was present.

        Returns:
            The fitted sum.

        >>> Combined.of([np.array([[1, 7], [0, 0]])], ("cci_charlson", "eci_vw"), hierarchy=True).deviations
        (0.5, 3.5)
        """
        n, total, squares = 0, np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
        for batch in batches:
            points = batch.astype(np.int64)
            n, total, squares = n + len(points), total + points.sum(0), squares + (points**2).sum(0)
        return cls.from_sums(n, total, squares, columns, hierarchy)

    @classmethod
    def from_sums(
        cls, n: int, total: np.ndarray, squares: np.ndarray, columns: tuple[str, str], hierarchy: bool
    ) -> "Combined":
        """Return the sum fitted on admissions with these totals, which are exact.

        Args:
            n: the number of admissions.
            total: the sums of the two scores.
            squares: the sums of their squares.
            columns: the names of the two scores.
            hierarchy: whether milder forms were dropped if the severer one was present.

        >>> columns = ("cci_charlson", "eci_vw")
        >>> Combined.from_sums(2, np.array([1, 7]), np.array([1, 49]), columns, hierarchy=True).means
        (0.5, 3.5)
        """
        mean = total / max(n, 1)
        deviation = np.sqrt((n * squares - total**2) / max(n, 1) ** 2)
        return cls(columns, hierarchy, tuple(mean.tolist()), tuple(deviation.tolist()), n)

    def score(self, data: Any, *, icd_version: int | None = None) -> np.ndarray:
        """Return a number for each admission.

        Args:
            data: anything that `as_admissions` takes.
            icd_version: 9 or 10 for codes whose version the data do not state.

        >>> Combined.fit([["I50.9"], []], icd_version=10).score([["I50.9"], []], icd_version=10).tolist()
        [2.0, -2.0]
        """
        bits = _bits(as_admissions(data, icd_version=icd_version), hierarchy=self.hierarchy, stacklevel=3)
        return self.apply(points_of(rules().scores(bits, self.columns), self.columns))

    def apply(self, points: np.ndarray) -> np.ndarray:
        """Return the sum for each admission.

        Args:
            points: the two scores of each admission; a score that was constant in training adds nothing.

        >>> Combined.fit([["I50.9"], []], icd_version=10).apply(np.array([[1, 7]])).tolist()
        [2.0]
        """
        deviation = np.array(self.deviations)
        return ((points - np.array(self.means)) / np.where(deviation > 0, deviation, np.inf)).sum(axis=1)


def pair_of(columns: Sequence[str]) -> tuple[str, str] | None:
    """Return the two score `columns` that CCI+ECI adds up, the first of each index; None if an index has none.

    >>> pair_of(["cci_charlson", "cci_quan", "eci_vw"])
    ('cci_charlson', 'eci_vw')
    """
    first = [next((name for name in columns if name.startswith(short)), None) for short in ("cci_", "eci_")]
    return (first[0], first[1]) if first[0] and first[1] else None


def points_of(found: Any, pair: Sequence[str]) -> np.ndarray:
    """Return a `pair` of the `found` scores as an array of two columns.

    >>> points_of({"cci_charlson": [1, 0], "eci_vw": [7, 0]}, ("cci_charlson", "eci_vw")).tolist()
    [[1, 7], [0, 0]]
    """
    return np.column_stack([found[name] for name in pair])
