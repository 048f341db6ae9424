"""Small hospitals for the tests: MIMIC-shaped folders with known answers, and the demos loaded into servers."""

import csv
from pathlib import Path

HEADERS = {
    "hosp/admissions": ["subject_id", "hadm_id", "admittime", "dischtime", "deathtime"],
    "hosp/patients": ["subject_id", "gender", "anchor_age", "anchor_year", "dod"],
    "hosp/diagnoses_icd": ["subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"],
    "icu/icustays": ["subject_id", "hadm_id", "intime"],
}
ADMITTED = "2150-03-01 06:00:00"
# What happens to one patient admitted at ADMITTED, and the outcomes that follow: (discharge, death in hospital, date of
# death, ICU entry) -> (mortality, mortality_30d, long_stay, icu_transfer). Times are those of the engines' edge cases.
EDGES = [
    (("2150-03-08 06:00:00", "", "", ""), (False, False, False, False)),  # 7 days to the second
    (("2150-03-08 05:59:59", "", "", ADMITTED), (False, False, False, False)),  # ICU at admission itself
    (("2150-03-08 06:00:01", "", "", "2150-03-01 06:00:01"), (False, False, True, True)),  # one second more
    (("2150-03-02 00:00:00", "", "2150-03-31 06:00:00", ""), (False, True, False, False)),  # 30 days to the second
    (("2150-03-02 00:00:00", "", "2150-03-31 05:59:59", ""), (False, True, False, False)),
    (("2150-03-02 00:00:00", "", "2150-03-31 06:00:01", ""), (False, False, False, False)),
    (("2150-03-02 00:00:00", "", ADMITTED, ""), (False, True, False, False)),  # 0 days
    (
        ("2150-03-02 00:00:00", "2150-03-01 09:00:00", "2150-03-01 00:00:00", ""),
        (True, False, False, False),
    ),  # bare date
    (("", "", "2150-03-02 00:00:00", "2150-03-01 05:59:59"), (False, True, None, False)),  # discharge not recorded
]


def write(folder: Path, tables: dict[str, list[list]], headers: dict[str, list[str]] = HEADERS) -> Path:
    """Write each table as CSV under its header."""
    for name, header in headers.items():
        file = folder / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", newline="") as lines:
            csv.writer(lines).writerows([header, *tables.get(name, [])])
    return folder


def edges() -> dict[str, list[list]]:
    """One patient per case of EDGES; a last one whose time of admission is not recorded."""
    cases = [(ADMITTED, *case) for case, _ in EDGES] + [("", "2150-03-08 06:00:00", "", "2150-03-09 00:00:00", "")]
    return {
        "hosp/admissions": [[i, 100 + i, admitted, out, died] for i, (admitted, out, died, _, _) in enumerate(cases)],
        "hosp/patients": [[i, "F", 60, 2149, dod] for i, (_, _, _, dod, _) in enumerate(cases)],
        "hosp/diagnoses_icd": [[i, 100 + i, 1, "I50.9", 10] for i in range(len(cases))],
        "icu/icustays": [[i, 100 + i, icu] for i, (_, _, _, _, icu) in enumerate(cases) if icu],
    }
