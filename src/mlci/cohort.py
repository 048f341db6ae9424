"""A cohort: one row per admission, with its codes, its outcomes (null = not known) and its split.

`build_cohort` makes a cohort from a source, `read_cohort` reads one from a file. No later step needs to know where the
rows came from.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mlci
from mlci import sources
from mlci.base.errors import InputError, name_of
from mlci.base.files import atomic
from mlci.base.lazy import lazy_property
from mlci.base.parquet import open_parquet, read_parquet, write_parquet
from mlci.base.shown import html_table, text_table
from mlci.base.tablefile import is_sheet
from mlci.codes.admissions import Admissions, as_table
from mlci.codes.carrying import read_carry
from mlci.codes.poa import ALL, ONLY, late, no_flags, read_flags
from mlci.sources import Step
from mlci.sources._assembled import assembled, check_proportions
from mlci.sources._cohort_file import SPLITS, check_columns, check_rows, write_facts
from mlci.sources._earlier import OBSERVED, add_earlier_codes, with_history, with_times

RATES = ("outcome", "known", "happened")


@dataclass(frozen=True, repr=False)
class Cohort:
    """One row per admission; `outcomes` maps each outcome's column to its rule in words.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit": [1, 2], "DX1": ["I50.9", "E11.9"], "DX2": ["N17.9", None], "died": ["Y", "N"]})
    >>> Cohort.from_frame(visits, id="visit", codes="DX*", outcomes={"mortality": "died"}, icd_version=10)
    Cohort of 2 admissions, 2 patients (file); codes per admission: median 2 [1, 2]
    outcome      known  happened
    mortality        2  1 (50.0%)
    """

    table: pa.Table
    source: str
    outcomes: dict[str, str]
    attrition: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    version: str = field(default=mlci.__version__)
    look_back: float = 0  # in days; codes of the patient's earlier admissions within it follow an admission's own codes

    def __len__(self) -> int:
        return self.table.num_rows

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        id: str | None = None,
        subject: str | None = None,
        codes: str | Sequence[str] | None = None,
        icd_version: int | str | None = None,
        outcomes: Mapping[str, str] | None = None,
        age: str | None = None,
        sex: str | None = None,
        split: str | None = None,
        keep: Sequence[str] = (),
        restore_zeros: bool = False,
        **options: Any,
    ) -> "Cohort":
        """Build a cohort from a frame; the arguments are the options of `mlci cohort file`.

        Args:
            frame: pandas, polars (lazy too) or Arrow.
            id: the column of admissions, if its name is not one that is recognised.
            subject: the column of patients.
            codes: a column or a pattern (`DX*`), or several.
            icd_version: 9 or 10 for all codes, or the column that holds it.
            outcomes: for each outcome its rule (`expired:Y`, `los > 7`) or its column.
            age: the column of ages in years.
            sex: the column of sexes.
            split: the column that holds train, valid or test.
            keep: further columns to keep.
            restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.
            **options: further options of `build_cohort`, such as `split_by` and `proportions`.

        Returns:
            The cohort.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit": [1, 2], "DX1": ["I50.9", "E11.9"], "days": [9, 2]})
        >>> rules = {"long_stay": "days > 7"}
        >>> Cohort.from_frame(visits, id="visit", codes="DX*", outcomes=rules, icd_version=10).labels()
        array([[1.],
               [0.]])
        """
        options |= {"id": id, "subject": subject, "codes": codes, "icd_version": icd_version, "outcomes": outcomes}
        options |= {"age": age, "sex": sex, "split": split, "keep": keep, "restore_zeros": restore_zeros}
        return build_cohort("file", as_table(frame), **options)

    def __repr__(self) -> str:
        return f"{self._title()}\n{text_table(self._rates(), RATES)}"

    def _repr_html_(self) -> str:
        first = self.head(3)
        rows = [[_short(value) for value in row.values()] for row in first.to_pylist()]
        return (
            f"<p>{escape(self._title())}</p>{html_table(self._rates(), RATES)}"
            f"{html_table(rows, first.column_names, caption='First admissions')}"
        )

    def _title(self) -> str:
        lengths = pc.list_value_length(self.table["codes"]).to_numpy()
        patients = pc.count_distinct(self.table["subject_id"]).as_py()
        size = f"Cohort of {len(self):,} admissions, {patients:,} patients ({self.source})"
        return f"{size}; codes per admission: median {_quartiles(lengths)}"

    def _rates(self) -> list[list[str]]:
        rows = []
        for name in self.outcomes:
            column = self.table[name]
            known = len(self) - column.null_count
            rows.append([name, f"{known:,}", _share(pc.sum(column).as_py() or 0, known)])
        return rows

    def head(self, n: int = 5) -> pa.Table:
        """Return the first admissions.

        Args:
            n: how many.

        Returns:
            An Arrow table, one row per admission.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> Cohort.from_frame(visits, icd_version=10).head(1)["codes"].to_pylist()
        [['I509']]
        """
        return self.table[:n]

    def to_pandas(self) -> Any:
        """Return the admissions as a pandas frame, one row each.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> Cohort.from_frame(visits, icd_version=10).to_pandas()["admission_id"].tolist()
        [7, 8]
        """
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """Return the admissions as a polars frame, one row each.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> Cohort.from_frame(visits, icd_version=10).to_polars()["admission_id"].to_list()
        [7, 8]
        """
        try:
            import polars
        except ImportError as error:
            raise InputError("to_polars needs `pip install polars`.") from error
        return polars.from_arrow(self.table)

    def split(self, *names: str) -> "Cohort":
        """Select the admissions of one or several splits.

        Args:
            *names: one or several of train, valid and test.

        Returns:
            The smaller cohort.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> visits["part"] = ["train", "test"]
        >>> len(Cohort.from_frame(visits, icd_version=10, split="part").split("train"))
        1
        """
        for name in names:
            if name not in SPLITS:
                raise InputError(f"there is no split {name!r}; allowed are {', '.join(SPLITS)}.")
        chosen = pc.is_in(self.table["split"], value_set=pa.array(names, pa.string()))
        return self.where(chosen.to_numpy())

    def where(self, rows: np.ndarray) -> "Cohort":
        """Select admissions; source, outcomes and notes stay as they are.

        Args:
            rows: a Boolean array, one value per admission.

        Returns:
            The smaller cohort.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> Cohort.from_frame(visits, icd_version=10).where(np.array([False, True])).column("admission_id")
        array([8])
        """
        table = self.table.filter(pa.array(rows))
        return replace(self, table=table)

    def sample(self, size: int, *, seed: int) -> "Cohort":
        """Draw admissions at random.

        Args:
            size: the largest number of admissions to draw.
            seed: the seed of the draw.

        Returns:
            The smaller cohort, in the same order.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8, 9], "codes": [["I50.9"]] * 3, "died": [1, 0, 0]})
        >>> len(Cohort.from_frame(visits, icd_version=10).sample(2, seed=0))
        2
        """
        if len(self) <= size:
            return self
        chosen = np.zeros(len(self), dtype=bool)
        chosen[np.random.default_rng(seed).choice(len(self), size, replace=False)] = True
        return self.where(chosen)

    def column(self, name: str) -> np.ndarray:
        """Return one column as an array.

        Args:
            name: the column's name; a missing column raises an `InputError`.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> Cohort.from_frame(visits, icd_version=10).column("admission_id")
        array([7, 8])
        """
        if name not in self.table.column_names:
            raise InputError(f"the cohort has no column {name!r}; it has {', '.join(self.table.column_names)}.")
        return self.table[name].to_numpy()

    def labels(self, *names: str) -> np.ndarray:
        """Return outcomes as numbers.

        Args:
            *names: names of outcomes; all by default.

        Returns:
            A float64 array with a row per admission and a column per outcome; NaN where an outcome is not known.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, None]})
        >>> Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"}).labels("mortality")
        array([[ 1.],
               [nan]])
        """
        for name in names:
            if name not in self.outcomes:
                raise InputError(f"the cohort has no outcome {name!r}; it has {', '.join(self.outcomes) or 'none'}.")
        columns = [self.table[name].cast(pa.float64()).to_numpy() for name in names or self.outcomes]
        return np.column_stack(columns) if columns else np.empty((len(self), 0))

    def admissions(self, *, poa: str = ALL) -> Admissions:
        """Return the code lists, dictionary-encoded, in the form that every scorer takes.

        Args:
            poa: `all` codes, `only` those present on admission, or (any other word) all of them with their flags.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> Cohort.from_frame(visits, icd_version=10).admissions().values.tolist()
        ['I509', 'E119']
        """
        if poa == ONLY:
            return self.present().admissions()
        return self._lists if poa == ALL else replace(self._lists, poa=self._flags())

    @lazy_property
    def _lists(self) -> Admissions:
        """Encode the code lists, once: every part of a report needs them."""
        codes = self.table["codes"].combine_chunks()
        offsets = codes.offsets.to_numpy().astype(np.int64)
        flat = codes.values.slice(offsets[0], offsets[-1] - offsets[0])
        version_of = np.repeat(self.column("icd_version").astype(np.int8), np.diff(offsets))
        indices = np.empty(len(flat), dtype=np.int32)
        values, versions, start = [np.empty(0, dtype=object)], [np.empty(0, dtype=np.int8)], 0
        for version in np.unique(version_of):  # the same text in two ICD versions is two codes
            here = version_of == version
            encoded = (flat if here.all() else flat.filter(pa.array(here))).dictionary_encode()
            indices[here] = encoded.indices.to_numpy() + start
            values.append(encoded.dictionary.to_numpy(zero_copy_only=False))
            versions.append(np.full(len(encoded.dictionary), version, dtype=np.int8))
            start += len(encoded.dictionary)
        return Admissions(
            ids=self.column("admission_id"),
            values=np.concatenate(values),
            versions=np.concatenate(versions),
            indices=indices,
            offsets=offsets - offsets[0],
        )

    def present(self) -> "Cohort":
        """Leave out the codes that arose after admission, and their flags.

        Returns:
            A cohort of the same admissions. A cohort without flags (`poa`) raises an `InputError`.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7], "codes": [["I50.9", "T81.4XXA"]], "poa": [["Y", "N"]], "died": [1]})
        >>> Cohort.from_frame(visits, icd_version=10).present().table["codes"].to_pylist()
        [['I509']]
        """
        kept = ~late(self._flags())
        codes = self.table["codes"].combine_chunks()
        lengths = codes.value_lengths().to_numpy()
        counts = np.bincount(np.repeat(np.arange(len(self)), lengths)[kept], minlength=len(self))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        table = self.table
        for name in ("codes", "poa"):
            flat = table[name].combine_chunks().flatten().filter(pa.array(kept))
            lists = pa.ListArray.from_arrays(pa.array(offsets), flat)
            table = table.set_column(table.column_names.index(name), name, lists)
        return replace(self, table=table)

    def looking_back(self, days: float, *, carry: str | Path | None = None) -> "Cohort":
        """Add the codes of each patient's earlier admissions.

        Args:
            days: how many days before an admission an earlier one may have begun; 0 adds nothing.
            carry: which codes count: `comorbidities`, or a table of how long each code counts (`mlci.codes.carrying`);
                all by default.

        Returns:
            A cohort of the same admissions, in which the added codes follow an admission's own. A cohort without the
            times of admission (`days_observed`), or with a look-back already, raises an `InputError`.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "mrn": [1, 1], "codes": [["I50.9"], ["E11.9"]], "died": [0, 1]})
        >>> visits["admitted"] = ["2020-01-01", "2020-03-01"]
        >>> Cohort.from_frame(visits, icd_version=10, subject="mrn").looking_back(90).table["codes"].to_pylist()
        [['I509'], ['E119', 'I509']]
        """
        if self.look_back:
            raise InputError(f"the cohort looks back {self.look_back:g} days already; make it without --look-back.")
        if OBSERVED not in self.table.column_names:
            raise InputError(
                f"the cohort does not say when admissions began (it lacks the column {OBSERVED}, which `mlci cohort` "
                "writes if the source has times)."
            )
        if days == 0:
            return self
        found = add_earlier_codes(self.table, days, read_carry(carry) if carry else None)
        return replace(self, table=found.table, look_back=days, notes=(*self.notes, found.words()))

    def _flags(self) -> np.ndarray:
        """Return the present-on-admission flag of each recorded code."""
        if "poa" not in self.table.column_names:
            raise no_flags("the cohort")
        flags = self.table["poa"].combine_chunks()
        ends = np.cumsum(pc.fill_null(pc.list_value_length(flags), 0).to_numpy())

        def row_number(place: int) -> int:
            return int(np.searchsorted(ends, place, side="right")) + 1

        return read_flags(flags.flatten(), "the cohort", "poa", row_number)

    def describe(self) -> dict[str, list[str]]:
        """Describe the cohort as the Table 1 of a paper does.

        Returns:
            For each line its values as text: for all admissions, then for train, valid and test.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> {len(values) for values in Cohort.from_frame(visits, icd_version=10).describe().values()}
        {4}
        """
        lists = self._lists
        table = self.table.drop_columns([*{"codes", "poa"} & set(self.table.column_names)])
        lengths, splits = np.diff(lists.offsets), table["split"]
        lines: dict[str, list[str]] = {}
        for rows in (
            np.ones(len(self), bool),
            *(pc.is_in(splits, value_set=pa.array([name])).to_numpy() for name in SPLITS),
        ):
            found = np.bincount(lists.indices[np.repeat(rows, lengths)], minlength=len(lists.values)) > 0
            distinct = pa.array(lists.values[found], pa.string()).unique()
            for name, text in _table_one(table.filter(pa.array(rows)), lengths[rows], distinct, self.outcomes):
                lines.setdefault(name, []).append(text)
        return lines

    def write(self, path: str | Path) -> None:
        """Write the cohort file: Parquet, with source, outcomes, attrition and notes in its metadata.

        Args:
            path: the file to write; it appears complete or not at all.

        >>> import tempfile
        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [7, 8], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Cohort.from_frame(visits, icd_version=10).write(f"{folder}/cohort.parquet")
        ...     len(read_cohort(f"{folder}/cohort.parquet"))
        2
        """
        if is_sheet(path):
            raise InputError(f"{path}: a cohort file is written as Parquet; name it .parquet.")
        facts = {
            "source": self.source,
            "outcomes": self.outcomes,
            "attrition": [asdict(step) for step in self.attrition],
            "notes": self.notes,
            "version": self.version,
            "look_back": self.look_back,
        }
        with atomic(path) as temporary:
            write_parquet(write_facts(self.table, facts), temporary)

    def in_order(self) -> "Cohort":
        """Return the cohort sorted by admission, so that a fit does not depend on the order of the rows.

        >>> import pandas as pd
        >>> visits = pd.DataFrame({"visit_id": [8, 7], "codes": [["I50.9"], ["E11.9"]], "died": [1, 0]})
        >>> Cohort.from_frame(visits, icd_version=10).in_order().column("admission_id")
        array([7, 8])
        """
        order = pc.sort_indices(self.table["admission_id"]).to_numpy()
        if (order == np.arange(len(self))).all():
            return self
        table = self.table.take(order)
        return replace(self, table=table)


def read_cohort(path: str | Path) -> Cohort:
    """Read a cohort file.

    Args:
        path: a Parquet file that `Cohort.write` or `mlci cohort` wrote.

    Returns:
        The cohort. A damaged file, or one with other columns, raises an `InputError`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     build_cohort("synthetic", 200).write(f"{folder}/cohort.parquet")
    ...     len(read_cohort(f"{folder}/cohort.parquet"))
    200
    """
    _check_name(path)
    return _checked(read_parquet(path), str(path))


def cohort_head(path: str | Path) -> Cohort:
    """Read a cohort file without its rows.

    Args:
        path: a cohort file.

    Returns:
        An empty cohort with the file's source, outcomes, attrition and columns.

    >>> import tempfile
    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": [1], "codes": [["I50.9"]], "died": [0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"})
    ...     cohort.write(f"{folder}/cohort.parquet")
    ...     head = cohort_head(f"{folder}/cohort.parquet")
    >>> len(head), list(head.outcomes)
    (0, ['mortality'])
    """
    _check_name(path)
    with open_parquet(path) as file:
        return _checked(file.schema_arrow.empty_table(), str(path))


def _check_name(path: str | Path) -> None:
    """Refuse a spreadsheet where a cohort file is needed, and name the command that converts it."""
    if is_sheet(path) and Path(path).is_file():
        name = name_of(path)
        command = f"mlci cohort file {name} -o cohort.parquet"
        raise InputError(f"{name}: is not a cohort file; `{command}` makes one from it.")


def _checked(table: pa.Table, where: str) -> Cohort:
    from mlci.sources._facts import read_facts  # needs pydantic, which building a cohort does not

    facts = read_facts(table.schema, where)
    check_columns(table.schema, facts.outcomes, where)
    check_rows(table, where)
    attrition = tuple(Step(**step.model_dump()) for step in facts.attrition)
    return Cohort(
        table, facts.source, facts.outcomes, attrition, tuple(facts.notes), facts.version, look_back=facts.look_back
    )


def build_cohort(
    source: str,
    location: Any,
    *,
    split_by: str = "subject_id",
    proportions: Sequence[float] = (0.7, 0.1, 0.2),
    restore_zeros: bool = False,
    look_back: float | None = None,
    carry: str | Path | None = None,
    wash_out: bool = False,
    **options: Any,
) -> Cohort:
    """Build a cohort: read a source, normalise its codes, and draw the split.

    Args:
        source: a module of `mlci.sources`, such as mimic4, omop, tables or synthetic.
        location: a folder, a database, a file, or for synthetic the number of admissions.
        split_by: the column whose distinct values are divided among train, valid and test; a split that the source
            has already is kept.
        proportions: the proportions of train, valid and test.
        restore_zeros: whether to restore leading zeros that ICD-9 codes have lost.
        look_back: in days; codes of a patient's admissions that began at most so long before count too.
        carry: which of those codes: `comorbidities`, or a table of how long each code counts (`mlci.codes.carrying`).
        wash_out: whether to leave out admissions less than `look_back` days after the patient's first.
        options: options of the source.

    Returns:
        The cohort.

    >>> cohort = build_cohort("synthetic", 200)
    >>> len(cohort), "mortality" in cohort.outcomes
    (200, True)
    """
    check_proportions(proportions)
    draft = _read(source, location, options, restore_zeros=restore_zeros)
    draft = with_times(draft, source, needed=look_back is not None)
    if look_back is not None:
        rule = read_carry(carry) if carry else None
        draft = with_history(draft, look_back, rule, wash_out=wash_out, source=source)
    elif wash_out or carry:
        if carry:
            raise InputError("carry needs a look_back: it says which codes are carried.")
        raise InputError("wash_out needs a look_back: admissions observed for fewer days are left out.")
    draft = assembled(draft, source, split_by=split_by, proportions=proportions, restore_zeros=restore_zeros)
    cohort = Cohort(draft.table, source, draft.outcomes, draft.attrition, look_back=look_back or 0)
    return replace(cohort, notes=(*draft.notes, *_unusable(cohort)))


def _read(source: str, location: Any, options: dict[str, Any], *, restore_zeros: bool) -> sources.Draft:
    """Read a source; refuse an option that the source does not have."""
    reader = sources.find(source).read
    allowed = [
        name for name, option in inspect.signature(reader).parameters.items() if option.kind == option.KEYWORD_ONLY
    ]
    unknown = [name for name in options if name not in allowed]
    if unknown:
        raise InputError(f"source {source}: has no option {unknown[0]}; allowed are {', '.join(allowed) or 'none'}.")
    zeros = {"restore_zeros": restore_zeros} if "restore_zeros" in allowed else {}
    return reader(location, **options, **zeros)


def _unusable(cohort: Cohort) -> list[str]:
    """Return a note for each outcome with one class only, in all its admissions or where all outcomes are known."""
    labels = cohort.labels()
    all_known = ~np.isnan(labels).any(axis=1)
    notes = []
    for name, y in zip(cohort.outcomes, labels.T):
        known = y[~np.isnan(y)]
        kept = y[all_known]
        if len(np.unique(known)) < 2:
            notes.append(f"{name} cannot be used: {int(known.sum())} of {len(known)} admissions have it.")
        elif len(np.unique(kept)) < 2:
            notes.append(
                f"{name} has only one class if all outcomes must be known: {int(known.sum())} of {len(known)} "
                f"admissions have it, but {int(kept.sum())} of the {len(kept)} whose outcomes are all known."
            )
    return notes


def _table_one(
    table: pa.Table, lengths: np.ndarray, distinct: pa.Array, outcomes: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield the lines of Table 1 for some admissions, given their numbers of codes and their distinct codes.

    Age and sex have a line if the cohort has these columns.
    """
    n = table.num_rows
    yield "admissions", f"{n:,}"
    yield "patients", f"{pc.count_distinct(table['subject_id']).as_py():,}"
    yield "codes per admission, median [IQR]", _quartiles(lengths)
    yield "admissions without codes", f"{np.sum(lengths == 0):,}"
    yield "vocabulary: distinct codes", f"{len(distinct):,}"
    yield "vocabulary: first four characters", f"{len(pc.utf8_slice_codeunits(distinct, 0, 4).unique()):,}"
    if "age" in table.column_names:
        ages = table["age"].cast(pa.float64()).to_numpy()
        yield "age, median [IQR]", _quartiles(ages[~np.isnan(ages)])
    if "sex" in table.column_names:
        women = pc.sum(pc.equal(table["sex"], "F")).as_py() or 0
        yield "women", _share(women, n - table["sex"].null_count)
    for name in outcomes:
        column = table[name]
        yield name, _share(pc.sum(column).as_py() or 0, n - column.null_count)
        yield f"{name}: not known", f"{column.null_count:,}"


def _short(value: Any) -> str:
    """Return the text of a cell, shortened where it is long; the codes of a list are separated by blanks."""
    text = " ".join(value) if isinstance(value, list) else "" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _quartiles(values: np.ndarray) -> str:
    if not len(values):
        return "-"
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.0f} [{low:.0f}, {high:.0f}]"


def _share(count: int, of: int) -> str:
    return f"{count:,} ({count / of:.1%})" if of else "-"
