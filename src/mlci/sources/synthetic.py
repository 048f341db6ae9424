"""The source `synthetic`: a simulated hospital in which the severity of each admission is known.

A patient has a chronic burden, which grows with age and stays. An admission has an acute burden, which depends on the
reason for admission. Severity is the sum of both. Codes are not drawn from severity itself: chronic codes are drawn
given the chronic burden, and acute codes given the acute burden and the kind of patient, so that the meaning of a code
depends on the other codes. Each outcome is drawn from severity alone, through a response curve of its own. So the best
possible score is `true_severity`, every outcome is monotone in it, and an index of chronic diseases sees a part of it.

Patients are drawn in blocks, each with a random stream of its own: memory is bounded, and the first n admissions of a
seed are the same whatever the size of the hospital. Readmissions are more than 30 days apart and the dead do not
return, so that a death belongs to one admission. Several hospitals differ in known ways (`_network`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.optimize import root_scalar
from scipy.special import expit

from mlci.base.errors import InputError
from mlci.sources import Draft, Step
from mlci.sources._later import Later
from mlci.sources._network import Network, shifted, treated
from mlci.sources._raw import write_mimic4
from mlci.sources._world import CONTEXTS, GRID, Urn, rows_of, world

PATIENTS = 2**13  # per block
DAY = 86_400
LONG_STAY, MONTH = 7 * DAY, 30 * DAY
MOST_CODES = 39  # the most that MIMIC-IV holds for an admission
AGES = (40, 65)  # ages at which the reasons for admission change
MOST_HOSPITALS, MOST_ADMISSIONS = 1000, 1_000_000_000
CHRONIC, ACUTE = 0.6, 0.8  # weights of the two burdens in severity
OUTCOMES = {
    "mortality": "died in hospital",
    "mortality_30d": "died within 30 days of admission, in or out of hospital",
    "long_stay": "stayed more than 7 days",
    "icu_transfer": "entered intensive care after admission",
}
REGISTER = ("admitted", "discharged", "died", "dod", "first_icu")  # times that only raw tables hold
RATES = {"mortality": 0.019, "mortality_30d": 0.030, "long_stay": 0.22, "icu_transfer": 0.16}  # as in MIMIC-IV


@dataclass(frozen=True)
class _Curve:
    """Risk by severity: a logistic curve from `floor` to `ceiling`, half-way at `onset`."""

    floor: float
    ceiling: float
    slope: float
    onset: float = 0.0

    def __call__(self, severity: np.ndarray) -> np.ndarray:
        return self.floor + (self.ceiling - self.floor) * expit(self.slope * (severity - self.onset))

    def at_rate(self, rate: float, severity: np.ndarray, here: np.ndarray) -> "_Curve":
        """Move the curve until the mean risk is `rate`; `here` is the probability that each admission takes place."""

        def moved(onset: float) -> "_Curve":
            return replace(self, onset=onset)

        return moved(root_scalar(lambda onset: np.sum((moved(onset)(severity) - rate) * here), bracket=(-20, 20)).root)


@dataclass(frozen=True)
class _Patients:
    """A block of patients and their planned admissions, without codes."""

    age: np.ndarray  # at first admission
    female: np.ndarray
    chronic: np.ndarray
    patient: np.ndarray  # the patient of each admission
    nth: np.ndarray  # the number of the admission among the patient's, from 0
    reason: np.ndarray  # chapter of the principal diagnosis
    acute: np.ndarray

    @property
    def severity(self) -> np.ndarray:
        return CHRONIC * self.chronic[self.patient] + ACUTE * self.acute


def _patients(rng: np.random.Generator, many: int) -> _Patients:
    chapters = rows_of("chapters.csv")
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
    return _Patients(age, female, chronic, patient, nth, reason, acute)


@dataclass(frozen=True)
class _Response:
    """The scale of severity and the curves of the outcomes, set on a reference population and the same everywhere."""

    mean: float
    sd: float
    mortality: _Curve  # rises late and steeply: only the sickest die
    after_discharge: _Curve  # death of those alive at discharge, within 30 days of admission
    long_stay: _Curve  # rises early and slowly
    icu_transfer: _Curve  # rises steeply from the middle on, and is never certain


@cache
def _response() -> _Response:
    people = _patients(np.random.default_rng(0), 40_000)
    mean, sd = float(people.severity.mean()), float(people.severity.std())
    severity = (people.severity - mean) / sd
    first = people.nth == 0
    here = np.ones(len(severity))
    # The dead do not return, so the sickest are admitted less often than planned: curves and probabilities of
    # admission are found in turn.
    for _ in range(4):
        mortality = _Curve(0, 0.8, 2.8).at_rate(RATES["mortality"], severity, here)
        alive = 1 - mortality(severity)
        rest = (RATES["mortality_30d"] - RATES["mortality"]) / np.average(alive, weights=here)
        after = _Curve(0, 0.3, 1.8).at_rate(rest, severity, here * alive)
        survival = np.log(alive * (1 - after(severity)))
        before = np.cumsum(survival) - survival
        here = np.exp(before - before[first][people.patient])
    long_stay = _Curve(0.03, 0.85, 1.4).at_rate(RATES["long_stay"], severity, here)
    icu_transfer = _Curve(0.01, 0.9, 2.6).at_rate(RATES["icu_transfer"], severity, here)
    return _Response(mean, sd, mortality, after, long_stay, icu_transfer)


def _admissions(
    many: int, *, seed: int, icd9_share: float = 0.0, hospitals: int | None = None, later_share: float = 0.0
) -> Iterator[pa.Table]:
    """Yield the hospital's admissions by patient and time, block by block, with the times that raw tables hold."""
    network = Network.alone() if hospitals is None else Network.of(hospitals, seed=seed)
    left = many
    block = 0
    while left > 0:
        table = _block(seed, block, icd9_share, network, later_share).slice(0, left)
        yield table.set_column(0, "admission_id", pa.array(np.arange(len(table)) + 20_000_001 + many - left))
        left -= len(table)
        block += 1


def _block(seed: int, block: int, icd9_share: float, network: Network, later_share: float) -> pa.Table:
    rng = np.random.default_rng([seed, block])
    people, curves = _patients(rng, PATIENTS), _response()
    severity = (people.severity - curves.mean) / curves.sd
    # A separate stream, so that admissions do not depend on the number of hospitals.
    placing = np.random.default_rng([seed, block, 1])
    hospital = network.place(placing, severity[people.nth == 0])[people.patient]
    later = Later.of(np.random.default_rng([seed, block, 2]), len(severity), later_share) if later_share else None
    at_admission, severity = severity, severity if later is None else later.severity(severity)
    fate = _fate(rng, severity, network.quality[hospital])
    times = _times(rng, people, severity, fate)
    version = np.where(rng.random(PATIENTS)[people.patient] + 0.15 * people.nth < icd9_share, 9, 10)
    codes, counts = _codes(rng, people, version, network.coding[hospital])
    lists = pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), codes)
    lists, flags = (lists, None) if later is None else later.codes(lists, version)
    many = len(severity)

    def when(seconds: np.ndarray, known: np.ndarray | bool = True) -> pa.Array:
        return pa.array(seconds.astype("datetime64[s]"), mask=np.broadcast_to(~np.asarray(known), many))

    # Some are brought to intensive care at once, which is no transfer.
    at_once = rng.random(many) < 0.02
    table = pa.table(
        {
            "admission_id": pa.nulls(many, pa.int64()),
            "subject_id": 10_000_001 + block * PATIENTS + people.patient,
            "icd_version": pa.array(version, pa.int8()),
            "codes": lists,
            "mortality": fate.died,
            "mortality_30d": times.dead & (times.dod - times.admitted <= MONTH),
            "long_stay": fate.long_stay,
            "icu_transfer": fate.icu_transfer,
            "age": np.minimum(times.age, 90).astype(float),  # as MIMIC has it: over 89 is 90
            "sex": np.where(people.female[people.patient], "F", "M"),
            "true_severity": severity,
            **({} if flags is None else {"true_severity_at_admission": at_admission, "poa": flags}),
            **(_known_of(network, hospital, treated(placing, at_admission)) if len(network) > 1 else {}),
            "admitted": when(times.admitted),
            "discharged": when(times.discharged),
            "died": when(times.discharged, fate.died),
            "dod": when(times.dod, times.dead),
            "first_icu": when(
                np.where(fate.icu_transfer, times.first_icu, times.admitted), fate.icu_transfer | at_once
            ),
        }
    )
    return table.filter(pa.array(times.here))


def _known_of(network: Network, hospital: np.ndarray, given: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns on hospitals: whether a treatment was given, the hospital and its true parameters."""
    return {
        "treated": given,
        "hospital": network.names()[hospital],
        "true_quality": network.quality[hospital],
        "true_coding": network.coding[hospital],
    }


@dataclass(frozen=True)
class _Fate:
    """The outcomes of each admission."""

    died: np.ndarray  # in hospital
    died_outside: np.ndarray  # within 30 days of admission
    long_stay: np.ndarray
    icu_transfer: np.ndarray


def _fate(rng: np.random.Generator, severity: np.ndarray, quality: np.ndarray) -> _Fate:
    """Draw outcomes from severity and from `quality`, which the hospital adds to the log-odds of every outcome."""
    curves = _response()

    def happens(curve: _Curve) -> np.ndarray:
        return rng.random(len(severity)) < shifted(curve(severity), quality)

    died = happens(curves.mortality)
    died_outside = ~died & happens(curves.after_discharge)
    return _Fate(died, died_outside, happens(curves.long_stay), happens(curves.icu_transfer))


@dataclass(frozen=True)
class _Times:
    """The times of each admission, in seconds since 1970, and whether it takes place."""

    here: np.ndarray  # whether the patient is still alive
    admitted: np.ndarray
    discharged: np.ndarray
    first_icu: np.ndarray  # if there is a transfer
    dead: np.ndarray  # whether the register has a death: in hospital, within 30 days, or within the following year
    dod: np.ndarray  # date of death, if dead
    age: np.ndarray


def _times(rng: np.random.Generator, people: _Patients, severity: np.ndarray, fate: _Fate) -> _Times:
    many, first, fatal = len(severity), people.nth == 0, fate.died | fate.died_outside

    def between(low: np.ndarray | int, high: np.ndarray | int) -> np.ndarray:
        """Draw a whole number of seconds for each admission, at least `low` and less than `high`."""
        return np.floor(low + (np.asarray(high) - low) * rng.random(many)).astype(np.int64)

    # Nobody dies in the first 24 hours: a register that holds dates alone would lose a death on the day of admission.
    longer = LONG_STAY + 1 + (rng.exponential(7 * DAY, many)).astype(np.int64)
    within_a_month = LONG_STAY + 1 + (longer - LONG_STAY - 1) % (MONTH - 2 * DAY - LONG_STAY)
    longer = np.where(fate.died_outside, within_a_month, longer)
    stay = np.where(fate.long_stay, longer, between(np.where(fate.died, DAY, DAY // 3), LONG_STAY + 1))
    first_icu = between(1, stay)
    outside = between(np.maximum(stay, DAY), MONTH)
    # The next admission is more than 30 days after this one.
    gap = np.maximum(stay, MONTH) + 2 * DAY + rng.exponential(250 * DAY, many).astype(np.int64)
    start = np.cumsum(gap) - gap
    begin = (np.datetime64("2110-01-01", "s") - np.datetime64(0, "s")).astype(np.int64)
    born_again = begin + rng.integers(0, 80 * 365 * DAY, PATIENTS)
    admitted = born_again[people.patient] + start - start[first][people.patient]

    # The dead do not return.
    before = np.cumsum(fatal) - fatal
    here = before == before[first][people.patient]
    last = here & ~np.append(here[1:] & ~first[1:], False)
    later = last & ~fatal & (rng.random(many) < 0.25 * expit(severity - 1))  # within the year that a register follows
    much_later = np.maximum(stay, MONTH) + 2 * DAY + between(0, 300 * DAY)
    death = np.select([fate.died, fate.died_outside, later], [stay, outside, much_later], -1)
    year = admitted.astype("datetime64[s]").astype("datetime64[Y]").astype(int) + 1970
    age = people.age.astype(np.int64)[people.patient] + year - year[first][people.patient]
    dod = (admitted + death) // DAY * DAY
    return _Times(here, admitted, admitted + stay, admitted + first_icu, death >= 0, dod, age)


def _codes(
    rng: np.random.Generator, people: _Patients, version: np.ndarray, coding: np.ndarray
) -> tuple[pa.Array, np.ndarray]:
    """Return the codes of all admissions as a flat array, and their numbers; `coding` is the hospital's coding rate."""
    contexts = np.array([CONTEXTS.index(row["context"]) for row in rows_of("chapters.csv")])
    burden = people.chronic[people.patient]
    many = len(burden)

    def cell(burden: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(GRID, burden), 0, len(GRID) - 1)

    def number(mean: float, growth: np.ndarray) -> np.ndarray:
        spread = rng.gamma(4, 1 / 4, many)
        habit = np.where(version == 9, 0.8, 1.0) * coding
        return np.minimum(rng.poisson(habit * mean * spread * np.exp(growth)), MOST_CODES - 1)

    acute, chronic = number(4.5, 0.35 * people.acute), number(7.0, 0.30 * burden)
    chronic = np.minimum(chronic, MOST_CODES - 1 - acute)
    # A patient's chronic diseases are the same at each admission, but the number that is recorded differs.
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
    # The principal diagnosis is first; the others follow in random order, each once.
    place = np.where(kind == 0, 0.0, rng.random(len(code)))
    order = np.argsort(admission + place)
    once = np.sort(np.unique(admission[order] * 2**20 + code[order], return_index=True)[1])
    order = order[once]
    counts = np.bincount(admission[order], minlength=many)
    return pc.take(pa.array(np.concatenate(values)), pa.array(code[order])), counts


def read(
    location: int | str,
    *,
    seed: int = 0,
    icd9_share: float = 0.0,
    hospitals: int | None = None,
    later_share: float = 0.0,
    as_mimic4: str | Path | None = None,
) -> Draft:
    """Draw the admissions of a synthetic hospital, or of several.

    Args:
        location: the number of admissions.
        seed: the seed of the hospital.
        icd9_share: the share of patients whose first admission is coded in ICD-9.
        hospitals: the number of hospitals; by default one. The column `hospital` names the hospital, `true_quality` is
            what it adds to the log-odds of every outcome, `true_coding` is the number of codes that it records per code
            of an average hospital (`_network`), and `treated` is a treatment without effect.
        later_share: the share of severity (of its variance) that arises after admission and shows only in
            complications. `poa` then flags each code, and `true_severity_at_admission` is severity without that share
            (`_later`).
        as_mimic4: a folder to which the raw tables are written too, in the form of MIMIC-IV.

    Returns:
        A draft with four outcomes and a column `true_severity`, which no real hospital has.

    >>> rows = read(1000, seed=1).table.to_pandas()
    >>> rows.groupby("mortality").true_severity.mean().round(1).to_dict()
    {False: -0.1, True: 1.8}
    """
    try:
        many = int(location)
    except ValueError:
        many = 0
    if not 0 < many <= MOST_ADMISSIONS:
        raise InputError(
            f"{location!r} is not a number of admissions; allowed is a whole number from 1 to {MOST_ADMISSIONS:,}."
        )
    if seed < 0:
        raise InputError(f"seed: {seed} is negative; allowed is a whole number from 0.")
    if not 0 <= icd9_share <= 1:
        raise InputError(f"icd9_share: {icd9_share} is not a share; allowed is 0 to 1.")
    if hospitals is not None and not 2 <= hospitals <= MOST_HOSPITALS:
        raise InputError(
            f"hospitals: {hospitals} is not allowed; allowed is a whole number from 2 to {MOST_HOSPITALS}."
        )
    if not 0 <= later_share < 1:
        raise InputError(f"later_share: {later_share} is not allowed; allowed is 0 to less than 1.")
    if later_share and as_mimic4 is not None:
        raise InputError("as_mimic4: MIMIC-IV's tables have no place for flags; leave out later_share.")
    if hospitals is not None and as_mimic4 is not None:
        raise InputError("as_mimic4: MIMIC-IV's tables have no place for a hospital's name; leave out hospitals.")
    blocks = _admissions(many, seed=seed, icd9_share=icd9_share, hospitals=hospitals, later_share=later_share)
    if as_mimic4 is not None:
        blocks = write_mimic4(blocks, Path(as_mimic4))
    table = pa.concat_tables(block.drop_columns([name for name in REGISTER if name != "admitted"]) for block in blocks)
    step = Step(f"admissions to the synthetic hospital{'s' * (hospitals is not None)}", 0, many)
    return Draft(table.drop_columns("admitted"), OUTCOMES, (step,), admitted=table["admitted"])
