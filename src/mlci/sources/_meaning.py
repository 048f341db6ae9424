"""Find out what each column of a table means, from the user's options and from the names and values of the columns.

`understand` takes the opened table, options and a TOML file, and returns a `Meaning`. A `Meaning` can be written as a
command line or as TOML, with the guesses spelled out.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, ValidationError

from mlci.base.complaints import complaint
from mlci.base.errors import InputError, header_of
from mlci.base.tablefile import TableFile, open_table
from mlci.base.toml import read_toml, toml_line
from mlci.codes import poa
from mlci.codes.admissions import as_table, version_or_column
from mlci.codes.layout import Layout, named_column
from mlci.codes.streams import file_layout
from mlci.sources._cohort_file import RESERVED
from mlci.sources._outcomes import Rule, known, parse

SUBJECTS = ("subject_id", "mrn", "patient_id", "patient_nbr", "person_id", "patient", "subject", "pat_id", "bene_id")
AGES = ("age", "age_years", "age_at_admission", "anchor_age", "years")
SEXES = ("sex", "gender")
ADMITTED = ("admitted", "admittime", "admit_time", "admit_date", "admission_date", "admit_dt", "clm_admsn_dt")
# Outcomes that are recognised by a column's name: the outcome, the names of columns, the rule.
GUESSES = (
    ("mortality", ("died", "expired", "death", "mortality", "hospital_expire_flag", "dead", "deceased"), "{}"),
    ("mortality_30d", ("died_30d", "mortality_30d", "death_30d", "dead_30d"), "{}"),
    ("long_stay", ("long_stay",), "{}"),
    ("long_stay", ("los", "los_days", "length_of_stay", "lengthofstay", "time_in_hospital", "stay_days"), "{} > 7"),
    ("icu_transfer", ("icu_transfer", "icu", "icu_flag", "icu_admission", "in_icu"), "{}"),
    ("readmission", ("readmission", "readmitted", "readmit_30d", "readmission_30d"), "{}"),
)
KEYS = {
    "admissions": {
        "admission_id": "id",
        "subject_id": "subject",
        "age": "age",
        "sex": "sex",
        "keep": "keep",
        "split": "split",
        "admitted": "admitted",
    },
    "diagnoses": {"codes": "codes", "icd_version": "icd_version"},
}


@dataclass(frozen=True)
class Meaning:
    """What each column means; `guessed` names the fields that the user did not state."""

    layout: Layout
    icd_version: int | None
    subject: str | None
    age: str | None
    sex: str | None
    split: str | None
    admitted: str | None
    keep: tuple[str, ...]
    rules: Mapping[str, Rule]
    texts: Mapping[str, str]  # outcome -> its rule as written
    pattern: str  # the columns of codes as one would write them for --codes
    guessed: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()  # columns named like an outcome, but with other values

    @property
    def carried(self) -> list[str]:
        """The columns that are read in addition to id, codes, versions and flags."""
        columns = [
            self.subject,
            self.age,
            self.sex,
            self.split,
            self.admitted,
            *self.keep,
            *(rule.column for rule in self.rules.values()),
        ]
        return list(dict.fromkeys(filter(None, columns)))

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of `mlci cohort file`."""
        version = self.layout.version or self.icd_version
        found = {"id": self.layout.id, "subject": self.subject, "codes": self.pattern, "icd_version": version}
        found |= {"age": self.age, "sex": self.sex, "split": self.split, "admitted": self.admitted}
        return {**found, "keep": list(self.keep)}

    def command(
        self, location: str, output: str = "cohort.parquet", others: Mapping[str, Any] = MappingProxyType({})
    ) -> str:
        """Return the command line that reads the table in the same way, with the guesses spelled out.

        Args:
            location: the table.
            output: the cohort file.
            others: further options by name, which do not concern columns; True for one without a value.

        >>> import pandas as pd
        >>> with opened(pd.DataFrame({"visit_id": [1], "DX1": ["I50.9"], "died": [1]})) as table:
        ...     understand(table, {"icd_version": 10}).command("dx.csv")
        'mlci cohort file dx.csv -o cohort.parquet --id visit_id --codes DX1 --icd-version 10 --outcome mortality=died'
        """
        words = ["mlci", "cohort", "file", location, "-o", output]
        for name, value in self.options.items():
            for item in value if isinstance(value, list) else [value]:
                words += [f"--{name.replace('_', '-')}", str(item)] if item is not None else []
        for name, text in self.texts.items():
            words += ["--outcome", f"{name}={text}"]
        for name, value in others.items():
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return shlex.join(words)

    def toml(self) -> str:
        """Return the same as a TOML file for `--config`.

        >>> import pandas as pd
        >>> with opened(pd.DataFrame({"visit_id": [1], "DX1": ["I50.9"], "died": [1]})) as table:
        ...     print(understand(table, {"icd_version": 10}).toml().splitlines()[:2])
        ['[admissions]', 'admission_id = "visit_id"']
        """
        lines = []
        for section, keys in KEYS.items():
            lines += ["", f"[{section}]"]
            lines += [toml_line(key, self.options[name]) for key, name in keys.items() if self.options[name]]
        lines += ["", "[outcomes]", *(toml_line(name, text) for name, text in self.texts.items())]
        return "\n".join(lines[1:])


def opened(location: Any) -> Any:
    """Open the table that `location` names; use it in a `with` statement.

    Args:
        location: a CSV, Parquet or Excel file, `-` for standard input, or a frame.

    Returns:
        A `TableFile`.

    >>> import pandas as pd
    >>> with opened(pd.DataFrame({"visit_id": [1], "DX1": ["I50.9"]})) as table:
    ...     table.names
    ('visit_id', 'DX1')
    """
    if isinstance(location, str | Path):
        return open_table(location)
    table = as_table(location)

    def rows(columns: list[str], repeated: Sequence[str], many: int) -> Iterator[pa.Table]:
        yield table.select(columns)

    return nullcontext(TableFile("the frame", tuple(table.column_names), 1, rows))


def understand(file: TableFile, options: Mapping[str, Any], config: Any = None) -> Meaning:
    """Find the columns that the user named, and guess the others.

    Args:
        file: the table, opened.
        options: the options of `read` that the user gave, by name.
        config: a TOML file with the same options, or its content; `options` override it.

    Returns:
        The meaning of the columns. A named column that is missing raises an `InputError`.

    >>> import pandas as pd
    >>> with opened(pd.DataFrame({"visit_id": [1, 2], "DX1": ["I50.9", "E11.9"], "died": [1, 0]})) as table:
    ...     meaning = understand(table, {"icd_version": 10})
    ...     {name: rule.column for name, rule in meaning.rules.items()}
    {'mortality': 'died'}
    """
    given = _given(options, config)
    version, column = version_or_column(given.get("icd_version"))
    layout = file_layout(file, id=given.get("id"), codes=given.get("codes"), version=column, poa=poa.ANY)
    free = [name for name in file.names if name not in layout.columns]
    found: dict[str, str | None] = {}
    roles = {"subject": SUBJECTS, "age": AGES, "sex": SEXES, "split": ("split",), "admitted": ADMITTED}
    for role, names in roles.items():
        if given.get(role):
            found[role] = named_column(file.names, [given[role]], file.where, f"--{role}")
        else:
            lower = {name.lower(): name for name in reversed(free)}
            found[role] = next((lower[name] for name in names if name in lower), None)
    texts, unfit = (dict(given["outcomes"]), ()) if given.get("outcomes") else _guessed_outcomes(file, free)
    rules = {}
    for name, text in texts.items():
        if not name.strip():
            raise InputError(f"outcome {name!r}: a name is needed, as in mortality=expired.")
        rule = parse(str(text), f"outcome {name}")
        if rule.kind not in ("flag", "value", "compare"):
            raise InputError(
                f"outcome {name}: {text!r} needs times, which `mlci cohort tables` reads (docs/own-tables.md)."
            )
        rules[name] = replace(rule, column=named_column(file.names, [rule.column], file.where, f"--outcome {name}"))
    if unfit and not rules:
        raise InputError(
            f"{file.where}: most values of {header_of(unfit)} are neither 0 and 1, nor yes and no, nor (of a length of "
            "stay) numbers; say which count, as in --outcome 'mortality=expired:DEAD'."
        )
    if not rules:
        raise InputError(
            f"{file.where}: no column has the name of an outcome; give one, as in --outcome 'mortality=expired:Y'; the "
            f"columns are {header_of(file.names)}."
        )
    own = {"admission_id": layout.id, "subject_id": found["subject"], "icd_version": layout.version}
    own |= {role: found[role] for role in ("age", "sex", "split")}
    named = (named_column(file.names, [name], file.where, "--keep") for name in given.get("keep", ()))
    keep = tuple(name for name in named if own.get(name) != name)  # the others are in the cohort anyway
    if taken := {*RESERVED} & {*keep}:
        raise InputError(
            f"{file.where}: the name {min(taken)} is taken: the cohort has a column of that name from elsewhere; leave "
            "it out of --keep."
        )
    if taken := {*RESERVED, *keep} & {*rules}:
        raise InputError(f"{file.where}: the name {min(taken)} is taken; give the outcome another one.")
    values = {"id": layout.id, "codes": layout.codes, "icd_version": layout.version, **found, "outcomes": texts}
    return Meaning(
        layout,
        version,
        **found,
        keep=keep,
        rules=rules,
        texts=texts,
        pattern=_pattern(layout.codes, file.names),
        guessed=tuple(name for name, value in values.items() if value and not given.get(name)),
        unfit=unfit,
    )


def _given(options: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return the options that the user gave, in the call or in a TOML file."""
    stated = (*_configured(config).items(), *options.items())
    given = {name: value for name, value in stated if value not in (None, (), {}, [])}
    if not isinstance(given.get("outcomes", {}), Mapping):
        raise InputError('outcomes: a mapping of names to rules is needed, such as {"mortality": "expired:Y"}.')
    if isinstance(given.get("keep"), str):
        given["keep"] = [given["keep"]]
    return given


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Admissions(_Section):
    admission_id: str | None = None
    subject_id: str | None = None
    age: str | None = None
    sex: str | None = None
    keep: list[str] = []
    split: str | None = None
    admitted: str | None = None


class _Diagnoses(_Section):
    codes: str | list[str] | None = None
    icd_version: int | str | None = None


class _File(_Section):
    admissions: _Admissions = _Admissions()
    diagnoses: _Diagnoses = _Diagnoses()
    outcomes: dict[str, str] = {}


def _configured(config: Any) -> dict[str, Any]:
    """Return the options that a TOML file holds."""
    if config is None:
        return {}
    where = "config" if isinstance(config, Mapping) else str(config)
    try:
        content = _File.model_validate(dict(config) if isinstance(config, Mapping) else read_toml(config))
    except ValidationError as error:
        reason = complaint(error.errors(include_url=False), allowed=_keys, repeat=True)
        raise InputError(f"{where}: {reason}.") from error
    found = {
        name: getattr(getattr(content, section), key) for section, keys in KEYS.items() for key, name in keys.items()
    }
    return found | {"outcomes": content.outcomes}


def _keys(path: Sequence[str]) -> Iterable[str]:
    """Return the keys of the file, or of one of its sections."""
    return KEYS[path[0]] if path else _File.model_fields


def _guessed_outcomes(file: TableFile, free: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Guess outcomes by the names of columns, if most values fit; a value that does not fit is an error later.

    Return the rules by outcome, and the columns whose values do not fit.
    """
    lower = {name.lower(): name for name in reversed(free)}
    texts: dict[str, str] = {}
    unfit: list[str] = []
    for outcome, names, form in GUESSES:
        column = next((lower[name] for name in names if name in lower), None)
        if column is None or outcome in texts:
            continue
        rule = replace(parse(form.format(column), outcome), column=column)
        if _mostly_fits(file, rule):
            texts[outcome] = form.format(column)
        else:
            unfit.append(column)
    return texts, tuple(unfit)


def _mostly_fits(file: TableFile, rule: Rule) -> bool:
    fitting = odd = 0
    for part in file.read([rule.column]):
        value, filled = applied(part[rule.column], rule)
        fitting += len(value) - value.null_count
        odd += pc.sum(pc.and_(pc.is_null(value), filled)).as_py() or 0
    return fitting > odd or not odd


def applied(column: pa.ChunkedArray | pa.Array, rule: Rule) -> tuple[pa.Array, pa.Array]:
    """Return a rule's outcome for each row, and whether the row has a value at all.

    Durations become text such as "9 days, 0:00:00", which is no number: Arrow would count their units, not days.
    """
    if pa.types.is_duration(column.type):
        column = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    table = ibis.memtable(pa.table({"text": column.cast(pa.string())}))
    number = table.text.strip().try_cast("float64")
    rows = table.select(value=rule.of(table.text, number), filled=known(table.text)).to_pyarrow()
    return rows["value"].combine_chunks(), rows["filled"].combine_chunks()


def _pattern(chosen: Sequence[str], names: Sequence[str]) -> str:
    """Return the chosen names as one pattern, if only they begin with its stem; else separated by commas.

    A comma within a name becomes `?`, which stands for any one character.
    """
    stem = "".join(letters[0] for letters in takewhile(lambda letters: len({*letters}) == 1, zip(*chosen)))
    stem = stem.rstrip("0123456789")
    alike = [name for name in names if name.lower().startswith(stem.lower())]
    patterns = [f"{stem}*"] if len(chosen) > 1 and stem and len(alike) == len(chosen) else chosen
    return ",".join(pattern.replace(",", "?") for pattern in patterns)
