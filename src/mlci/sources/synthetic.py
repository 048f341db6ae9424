"""A synthetic hospital whose severity is known: how many admissions and a seed come in, out come codes and outcomes.

A patient has a chronic burden (it grows with age and stays), an admission an acute one (it depends on the reason for
admission); severity is their sum. Severity never touches a code directly: chronic codes are drawn given the chronic
burden, acute ones given the acute burden and the kind of patient, so that a code's meaning depends on its company.
Each outcome is drawn from severity alone through a response curve of its own. Thus the best possible score is
`true_severity`, every outcome is monotone in it, and an index that reads only chronic diseases sees a part of it.

Patients come in blocks with a random stream each: memory is bounded, and the first n admissions of a seed are the
same whatever the size of the hospital. Readmissions come more than 30 days later and the dead do not return, so that
a death belongs to one admission.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.optimize import root_scalar
from scipy.special import expit

from mlci.base.errors import InputError
from mlci.codes import icd
from mlci.sources import Draft, Step
from mlci.sources._raw import write_mimic4

DATA = Path(__file__).parent / "data"
PATIENTS = 2**13  # in a block
DAY = 86_400
LONG_STAY, MONTH = 7 * DAY, 30 * DAY
MOST_CODES = 39  # the most that MIMIC-IV holds for an admission
AGES = (40, 65)  # where the reasons for admission change
CHRONIC, ACUTE = 0.6, 0.8  # shares of the two burdens in severity
GRID = np.arange(-3, 3, 0.25) + 0.125  # a burden is known to a code by its cell of this grid
CONTEXTS = ("medical", "surgical", "cancer", "birth")
OUTCOMES = {
    "mortality": "died in hospital",
    "mortality_30d": "died within 30 days of admission, in or out of hospital",
    "long_stay": "stayed more than 7 days",
    "icu_transfer": "entered intensive care after admission",
}
REGISTER = ("admitted", "discharged", "died", "dod", "first_icu")  # what a hospital's tables hold of an admission
RATES = {"mortality": 0.019, "mortality_30d": 0.030, "long_stay": 0.22, "icu_transfer": 0.16}  # as in MIMIC-IV


@dataclass(frozen=True)
class Curve:
    """Risk as severity grows: from `floor` to `ceiling`, half-way at `onset`."""

    floor: float
    ceiling: float
    slope: float
    onset: float = 0.0

    def __call__(self, severity: np.ndarray) -> np.ndarray:
        return self.floor + (self.ceiling - self.floor) * expit(self.slope * (severity - self.onset))

    def at_rate(self, rate: float, severity: np.ndarray, here: np.ndarray) -> "Curve":
        """The curve moved along severity until the mean risk is `rate`; `here` is each admission's chance to be one."""

        def moved(onset: float) -> "Curve":
            return replace(self, onset=onset)

        return moved(root_scalar(lambda onset: np.sum((moved(onset)(severity) - rate) * here), bracket=(-20, 20)).root)


@dataclass(frozen=True)
class Urn:
    """Items with chances, in groups. A draw is one binary search in all groups laid end to end."""

    items: np.ndarray
    cumulative: np.ndarray  # group g ends at g + 1

    @classmethod
    def of(cls, groups: list[tuple[np.ndarray, np.ndarray]]) -> "Urn":
        """From (items, weights) of each group."""
        ends = [g + np.cumsum(weights) / np.sum(weights) for g, (_, weights) in enumerate(groups)]
        for g, end in enumerate(ends):
            end[-1] = g + 1
        return cls(np.concatenate([items for items, _ in groups]), np.concatenate(ends))

    def draw(self, group: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        # Held off 1 by more than the rounding of `group + uniform`, which must not reach the next group.
        return self.items[np.searchsorted(self.cumulative, group + uniform * (1 - 1e-9), side="right")]


@dataclass(frozen=True)
class World:
    """What all hospitals of one ICD version share: codes, how common each is and what it says about severity."""

    codes: np.ndarray
    principal: Urn  # by reason for admission and acute burden
    complication: Urn  # by context and acute burden
    chronic: Urn  # by sex and chronic burden


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DATA / name).read_text("utf-8").splitlines()))


def _in_chapter(category: str, chapter: dict[str, str], version: int) -> bool:
    if version == 10:
        return category.startswith(tuple(chapter["icd10"].split()))
    low, _, high = chapter["icd9"].partition("-")
    return low <= category <= high if high else category.startswith(low)


@cache
def world(version: int) -> World:
    rng = np.random.default_rng(version)  # the world is one, whatever the hospital's seed
    chapters, conditions = _rows("chapters.csv"), _rows("conditions.csv")
    billable = pq.read_table(icd.DATA / "titles.parquet", filters=[("version", "=", version), ("billable", "=", True)])
    codes = billable["code"].to_numpy()

    categories, category = np.unique([code[:3] for code in codes], return_inverse=True)
    of = [next((n for n, row in enumerate(chapters) if _in_chapter(name, row, version)), -1) for name in categories]
    chapter = np.array(of)[category]
    # A hospital meets a part of the codes: of the chapters with tens of thousands (injuries), 1,500 each.
    rank = rng.random(len(codes))
    keep = np.concatenate(
        [np.flatnonzero(chapter == c)[np.argsort(rank[chapter == c])][:1500] for c in range(len(chapters))]
    )
    prefixes = {prefix: n for n, row in enumerate(conditions) for prefix in row[f"icd{version}"].split()}
    named = np.array([_longest(code, prefixes) for code in codes])
    keep = np.union1d(keep, np.flatnonzero((named >= 0) & (chapter >= 0)))
    codes, category, chapter, named = codes[keep], category[keep], chapter[keep], named[keep]

    # How common: a condition or chapter has its share, its codes a long tail, the unspecified ones (..9, ..0) first.
    group = np.where(named >= 0, named, len(conditions) + chapter)
    about = [*conditions, *chapters]
    chronic = np.array([row["kind"] == "chronic" for row in about])[group]
    share = np.array([float(row["share"]) for row in about])
    # Where a condition's first entry is itself a code, it is the commonest.
    typical = [row[f"icd{version}"].split()[0] for row in conditions]
    order = rng.random(len(codes)) - 0.5 * np.array([code[-1] in "09" for code in codes]) - 2 * np.isin(codes, typical)
    common = np.empty(len(codes))
    for g in np.unique(group):
        member = np.flatnonzero(group == g)
        place = np.argsort(np.argsort(order[member]))
        tail = 1 / (place + 1.5) ** 1.6 if g < len(conditions) else 1 / (place + 4) ** 1.25
        common[member] = share[g] * tail / tail.sum()

    # What it says: the condition's slope, or one that the codes of a category (three characters) share.
    slope = np.where(
        named >= 0,
        np.array([float(row["slope"]) for row in conditions])[named],
        rng.normal(0, 0.30, len(categories))[category],
    ) + rng.normal(0, 0.12, len(codes))
    twist = rng.normal(0, 0.35, (len(CONTEXTS), len(categories)))[:, category]
    sexes = np.array([row["sex"] for row in about])[group]

    def groups(
        rows: np.ndarray, slopes: np.ndarray, common: np.ndarray = common
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """By burden; over all burdens (a normal one) a code is as common as it should be, whatever its slope."""
        rows = np.flatnonzero(rows)
        return [(rows, common[rows] * np.exp(slopes[rows] * burden - slopes[rows] ** 2 / 2)) for burden in GRID]

    births = common * np.where(sexes == "F", 10, 1)
    return World(
        codes=codes,
        principal=Urn.of([g for c in range(len(chapters)) for g in groups(chapter == c, slope)]),
        complication=Urn.of(
            [
                g
                for context, turn in zip(CONTEXTS, twist)
                for g in groups(
                    ~chronic & np.isin(sexes, ["", "F"] if context == "birth" else ""), slope + turn, births
                )
            ]
        ),
        chronic=Urn.of([g for sex in "FM" for g in groups(chronic & np.isin(sexes, ["", sex]), slope)]),
    )


def _longest(code: str, prefixes: dict[str, int]) -> int:
    """The condition of the longest prefix that fits, or -1."""
    return next((prefixes[code[:n]] for n in range(len(code), 1, -1) if code[:n] in prefixes), -1)


@dataclass(frozen=True)
class Patients:
    """A block of patients and their planned admissions, without codes."""

    age: np.ndarray  # at first admission
    female: np.ndarray
    chronic: np.ndarray
    patient: np.ndarray  # of each admission
    nth: np.ndarray  # admission of its patient, from 0
    reason: np.ndarray  # chapter of the principal diagnosis
    acute: np.ndarray

    @property
    def severity(self) -> np.ndarray:
        return CHRONIC * self.chronic[self.patient] + ACUTE * self.acute


def _patients(rng: np.random.Generator, many: int) -> Patients:
    chapters = _rows("chapters.csv")
    age = 18 + 72 * rng.beta(2, 1.5, many)
    female = rng.random(many) < 0.52
    chronic = 0.55 * (age - 59.1) / 16.8 + 0.83 * rng.normal(size=many)
    admissions = 1 + rng.poisson(rng.gamma(0.45, 2.2, many) * np.exp(0.4 * chronic))
    patient = np.repeat(np.arange(many), admissions)
    nth = np.arange(len(patient)) - np.repeat(np.cumsum(admissions) - admissions, admissions)
    reasons = Urn.of(
        [
            (np.arange(len(chapters)), np.array([float(row[when]) * (row["sex"] in ("", sex)) for row in chapters]))
            for sex in "FM"
            for when in ("young", "middle", "old")
        ]
    )
    group = np.where(female, 0, 3) + np.digitize(age, AGES)
    reason = reasons.draw(group[patient], rng.random(len(patient)))
    acute = np.array([float(row["severity"]) for row in chapters])[reason] + rng.normal(size=len(patient))
    return Patients(age, female, chronic, patient, nth, reason, acute)


@dataclass(frozen=True)
class Response:
    """Severity's scale and the outcomes' curves: the same in every hospital, set on a reference population."""

    mean: float
    sd: float
    mortality: Curve  # late and steep: only the sickest
    after_discharge: Curve  # of those alive at discharge, within 30 days of admission
    long_stay: Curve  # early and slow
    icu_transfer: Curve  # steep from the middle on, and never certain


@cache
def response() -> Response:
    people = _patients(np.random.default_rng(0), 40_000)
    mean, sd = float(people.severity.mean()), float(people.severity.std())
    severity = (people.severity - mean) / sd
    first = people.nth == 0
    here = np.ones(len(severity))
    # The dead do not return, so the sickest are met less often than planned: the curves and the chance to be met
    # are found in turn.
    for _ in range(4):
        mortality = Curve(0, 0.8, 2.8).at_rate(RATES["mortality"], severity, here)
        alive = 1 - mortality(severity)
        rest = (RATES["mortality_30d"] - RATES["mortality"]) / np.average(alive, weights=here)
        after = Curve(0, 0.3, 1.8).at_rate(rest, severity, here * alive)
        survival = np.log(alive * (1 - after(severity)))
        before = np.cumsum(survival) - survival
        here = np.exp(before - before[first][people.patient])
    long_stay = Curve(0.03, 0.85, 1.4).at_rate(RATES["long_stay"], severity, here)
    icu_transfer = Curve(0.01, 0.9, 2.6).at_rate(RATES["icu_transfer"], severity, here)
    return Response(mean, sd, mortality, after, long_stay, icu_transfer)


def admissions(many: int, *, seed: int, icd9_share: float = 0.0) -> Iterator[pa.Table]:
    """The hospital's admissions by patient and time, block by block, with all that its databases would hold of them."""
    left = many
    block = 0
    while left > 0:
        table = _block(seed, block, icd9_share).slice(0, left)
        yield table.set_column(0, "admission_id", pa.array(np.arange(len(table)) + 20_000_001 + many - left))
        left -= len(table)
        block += 1


def _block(seed: int, block: int, icd9_share: float) -> pa.Table:
    rng = np.random.default_rng([seed, block])
    people, curves = _patients(rng, PATIENTS), response()
    severity = (people.severity - curves.mean) / curves.sd
    many = len(severity)

    def happens(risk: np.ndarray | float) -> np.ndarray:
        return rng.random(many) < risk

    def between(low: np.ndarray | int, high: np.ndarray | int) -> np.ndarray:
        """Draw a whole number of seconds for each admission, at least `low` and less than `high`."""
        return np.floor(low + (np.asarray(high) - low) * rng.random(many)).astype(np.int64)

    died = happens(curves.mortality(severity))
    died_outside = ~died & happens(curves.after_discharge(severity))
    long_stay = happens(curves.long_stay(severity))
    icu_transfer = happens(curves.icu_transfer(severity))

    # Times in seconds since admission. A death on the day of admission would be lost on a register that keeps dates
    # alone, so nobody dies in the first day.
    longer = LONG_STAY + 1 + (rng.exponential(7 * DAY, many)).astype(np.int64)
    longer = np.where(died_outside, LONG_STAY + 1 + (longer - LONG_STAY - 1) % (MONTH - 2 * DAY - LONG_STAY), longer)
    stay = np.where(long_stay, longer, between(np.where(died, DAY, DAY // 3), LONG_STAY + 1))
    first_icu = between(1, stay)
    outside = between(np.maximum(stay, DAY), MONTH)
    # The next admission comes when this one's month is over; a life goes on from there.
    gap = np.maximum(stay, MONTH) + 2 * DAY + rng.exponential(250 * DAY, many).astype(np.int64)
    start = np.cumsum(gap) - gap
    first = people.nth == 0
    begin = (np.datetime64("2110-01-01", "s") - np.datetime64(0, "s")).astype(np.int64)
    born_again = begin + rng.integers(0, 80 * 365 * DAY, PATIENTS)
    admitted = born_again[people.patient] + start - start[first][people.patient]

    # The dead do not return.
    gone = np.cumsum(died | died_outside)
    before = gone - (died | died_outside)
    here = before == before[first][people.patient]
    last = here & ~np.append(here[1:] & ~first[1:], False)
    later = (
        last & ~died & ~died_outside & happens(0.25 * expit(severity - 1))
    )  # within the year that a register follows
    death = np.select(
        [died, died_outside, later], [stay, outside, np.maximum(stay, MONTH) + 2 * DAY + between(0, 300 * DAY)], -1
    )
    dod = (admitted + death) // DAY * DAY
    year = admitted.astype("datetime64[s]").astype("datetime64[Y]").astype(int) + 1970
    age = people.age.astype(np.int64)[people.patient] + year - year[first][people.patient]

    version = np.where(rng.random(PATIENTS)[people.patient] + 0.15 * people.nth < icd9_share, 9, 10)
    codes, counts = _codes(rng, people, version)

    def when(seconds: np.ndarray, known: np.ndarray | bool = True) -> pa.Array:
        return pa.array(seconds.astype("datetime64[s]"), mask=np.broadcast_to(~np.asarray(known), many))

    table = pa.table(
        {
            "admission_id": pa.nulls(many, pa.int64()),
            "subject_id": 10_000_001 + block * PATIENTS + people.patient,
            "icd_version": pa.array(version, pa.int8()),
            "codes": pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), codes),
            "mortality": died,
            "mortality_30d": (death >= 0) & (dod - admitted <= MONTH),
            "long_stay": long_stay,
            "icu_transfer": icu_transfer,
            "age": np.minimum(age, 90).astype(float),  # as MIMIC has it: over 89 is 90
            "sex": np.where(people.female[people.patient], "F", "M"),
            "true_severity": severity,
            "admitted": when(admitted),
            "discharged": when(admitted + stay),
            "died": when(admitted + stay, died),
            "dod": when(dod, death >= 0),
            # Some are brought to intensive care at once, which is no transfer.
            "first_icu": when(np.where(icu_transfer, admitted + first_icu, admitted), icu_transfer | happens(0.02)),
        }
    )
    return table.filter(pa.array(here))


def _codes(rng: np.random.Generator, people: Patients, version: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The codes of all admissions, one after the other, and how many each has."""
    contexts = np.array([CONTEXTS.index(row["context"]) for row in _rows("chapters.csv")])
    burden = people.chronic[people.patient]
    many = len(burden)

    def cell(burden: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(GRID, burden), 0, len(GRID) - 1)

    def number(mean: float, growth: np.ndarray) -> np.ndarray:
        spread = rng.gamma(4, 1 / 4, many)
        return np.minimum(
            rng.poisson(np.where(version == 9, 0.8, 1.0) * mean * spread * np.exp(growth)), MOST_CODES - 1
        )

    acute, chronic = number(4.5, 0.35 * people.acute), number(7.0, 0.30 * burden)
    chronic = np.minimum(chronic, MOST_CODES - 1 - acute)
    # A patient's chronic diseases are the same at each admission; how many of them are recorded is not.
    everyone = np.arange(many)
    a, c = np.repeat(everyone, acute), np.repeat(everyone, chronic)
    slot = np.arange(len(c)) - np.repeat(np.cumsum(chronic) - chronic, chronic)
    memory = rng.random((len(people.chronic), MOST_CODES))
    admission = np.concatenate([everyone, a, c])
    chance = np.concatenate([rng.random(many + len(a)), memory[people.patient[c], slot]])
    group = np.concatenate(
        [
            people.reason * len(GRID) + cell(people.acute),
            (contexts[people.reason] * len(GRID) + cell(people.acute))[a],
            (np.where(people.female[people.patient], 0, 1) * len(GRID) + cell(burden))[c],
        ]
    )
    kind = np.repeat([0, 1, 2], [many, len(a), len(c)])
    code = np.empty(len(admission), dtype=np.int64)
    values = []
    for number_ in (10, 9):
        if not (version == number_).any():
            continue
        for k, urn in enumerate((world(number_).principal, world(number_).complication, world(number_).chronic)):
            rows = (kind == k) & (version[admission] == number_)
            code[rows] = urn.draw(group[rows], chance[rows]) + sum(map(len, values))
        values.append(world(number_).codes)
    # The principal diagnosis first, the others in any order, each once.
    place = np.where(kind == 0, 0.0, rng.random(len(code)))
    order = np.argsort(admission + place)
    once = np.sort(np.unique(admission[order] * 2**20 + code[order], return_index=True)[1])
    order = order[once]
    counts = np.bincount(admission[order], minlength=many)
    return pc.take(pa.array(np.concatenate(values)), pa.array(code[order])), counts


def read(location: int | str, *, seed: int = 0, icd9_share: float = 0.0, as_mimic4: str | Path | None = None) -> Draft:
    """So many admissions of the hospital of this seed.

    `icd9_share` of the patients are first met in the days of ICD-9; `as_mimic4` is a folder that gets the hospital's
    raw tables, in the form of MIMIC-IV's.
    """
    try:
        many = int(location)
    except ValueError:
        many = 0
    if many < 1:
        raise InputError(f"{location!r} is not a number of admissions; allowed is a whole number from 1.")
    if seed < 0:
        raise InputError(f"seed: {seed} is negative; allowed is a whole number from 0.")
    if not 0 <= icd9_share <= 1:
        raise InputError(f"icd9_share: {icd9_share} is not a share; allowed is 0 to 1.")
    blocks = admissions(many, seed=seed, icd9_share=icd9_share)
    if as_mimic4 is not None:
        blocks = write_mimic4(blocks, Path(as_mimic4))
    table = pa.concat_tables(block.drop_columns(list(REGISTER)) for block in blocks)
    return Draft(table, OUTCOMES, (Step("admissions to the synthetic hospital", 0, many),))
