"""Write small hospital tables for tests: MIMIC-IV folders with known outcomes, and demo data as OMOP and MIMIC-III."""

import csv
from pathlib import Path

import pandas as pd

HEADERS = {
    "hosp/admissions": ["subject_id", "hadm_id", "admittime", "dischtime", "deathtime"],
    "hosp/patients": ["subject_id", "gender", "anchor_age", "anchor_year", "dod"],
    "hosp/diagnoses_icd": ["subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"],
    "icu/icustays": ["subject_id", "hadm_id", "intime"],
}
ADMITTED = "2150-03-01 06:00:00"
# One patient each, admitted at ADMITTED, with times around the limits of the rules: (discharge, death in hospital,
# date of death, ICU entry) -> (mortality, mortality_30d, long_stay, icu_transfer).
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
    """Return MIMIC-IV tables with one patient per case of EDGES, and one whose time of admission is not recorded."""
    cases = [(ADMITTED, *case) for case, _ in EDGES] + [("", "2150-03-08 06:00:00", "", "2150-03-09 00:00:00", "")]
    return {
        "hosp/admissions": [[i, 100 + i, admitted, out, died] for i, (admitted, out, died, _, _) in enumerate(cases)],
        "hosp/patients": [[i, "F", 60, 2149, dod] for i, (_, _, _, dod, _) in enumerate(cases)],
        "hosp/diagnoses_icd": [[i, 100 + i, 1, "I50.9", 10] for i in range(len(cases))],
        "icu/icustays": [[i, 100 + i, icu] for i, (_, _, _, _, icu) in enumerate(cases) if icu],
    }


def omop(demo: Path, folder: Path) -> Path:
    """Write the MIMIC-IV demo as an OMOP CDM, with dotted codes, unmapped source concepts and an outpatient visit."""

    def rows(name: str) -> list[dict[str, str]]:
        with (demo / f"{name}.csv").open(newline="") as lines:
            return list(csv.DictReader(lines))

    def dotted(code: str) -> str:
        return f"{code[:3]}.{code[3:]}" if len(code) > 3 else code

    def times(text: str) -> tuple[str, str]:
        return text[:10], text

    patients, diagnoses = rows("hosp/patients"), rows("hosp/diagnoses_icd")
    concepts = {
        key: 40_000_000 + i for i, key in enumerate(sorted({(d["icd_version"], d["icd_code"]) for d in diagnoses}))
    }
    conditions = []
    for i, d in enumerate(sorted(diagnoses, key=lambda d: (int(d["hadm_id"]), int(d["seq_num"])))):
        # Two kinds of code have no source concept: every ICD-9 code that begins with a digit, and every third ICD-10
        # code that cannot be an ICD-9 code.
        lost = d["icd_code"][0].isdigit() if d["icd_version"] == "9" else i % 3 == 0 and d["icd_code"][0] not in "EV"
        concept = 0 if lost else concepts[d["icd_version"], d["icd_code"]]
        conditions.append([i, d["subject_id"], d["hadm_id"], concept, dotted(d["icd_code"]) if lost else d["icd_code"]])
    visits = [
        [a["hadm_id"], a["subject_id"], 262 if a["edregtime"] else 9201, *times(a["admittime"]), *times(a["dischtime"])]
        for a in rows("hosp/admissions")
    ]
    clinic = [[1, visits[0][1], 9202, "2150-01-01", "2150-01-01 09:00:00", "2150-01-01", "2150-01-01 10:00:00"]]
    units = [[s["hadm_id"], 32037, *times(s["intime"])] for s in rows("icu/icustays")]
    wards = [[visits[0][0], 8717, visits[0][3], visits[0][4]]]
    tables = {
        "visit_occurrence": visits + clinic,
        "visit_detail": units + wards,
        "condition_occurrence": conditions,
        "concept": [
            [number, "ICD10CM" if version == "10" else "ICD9CM", dotted(code)]
            for (version, code), number in concepts.items()
        ]
        + [[316139, "SNOMED", "84114007"]],
        "death": [[p["subject_id"], p["dod"]] for p in patients if p["dod"]],
        "person": [
            [p["subject_id"], 8532 if p["gender"] == "F" else 8507, int(p["anchor_year"]) - int(p["anchor_age"])]
            for p in patients
        ],
    }
    return write(folder, tables, OMOP)


def reverse_one_stay(folder: Path) -> int:
    """Let one stay in MIMIC-IV's raw tables end before it begins, as some real ones do; return its `hadm_id`."""
    path = folder / "hosp" / "admissions.csv.gz"
    table = pd.read_csv(path, dtype=str)
    table.loc[7, "dischtime"] = "2000-01-01 00:00:00"
    table.to_csv(path, index=False)
    return int(table.loc[7, "hadm_id"])


def as_mimic3(mimic4: Path, folder: Path) -> Path:
    """Write raw tables of MIMIC-IV, with ICD-9 codes only, in the form of MIMIC-III."""
    tables = {path.name.split(".")[0]: pd.read_csv(path, dtype=str) for path in mimic4.rglob("*.csv.gz")}
    people = tables["patients"]
    born = people["anchor_year"].astype(int) - people["anchor_age"].astype(int)
    tables["patients"] = people.assign(dob=born.astype(str) + "-01-01 00:00:00", dod=people["dod"] + " 00:00:00")
    tables["diagnoses_icd"] = tables["diagnoses_icd"].rename(columns={"icd_code": "icd9_code"})
    folder.mkdir()
    for name, table in tables.items():
        table.rename(columns=str.upper).to_csv(folder / f"{name.upper()}.csv.gz", index=False)
    return folder


OMOP = {
    name: header.split()
    for name, header in {
        "visit_occurrence": "visit_occurrence_id person_id visit_concept_id "
        "visit_start_date visit_start_datetime visit_end_date visit_end_datetime",
        "visit_detail": "visit_occurrence_id visit_detail_concept_id "
        "visit_detail_start_date visit_detail_start_datetime",
        "condition_occurrence": "condition_occurrence_id person_id visit_occurrence_id "
        "condition_source_concept_id condition_source_value",
        "concept": "concept_id vocabulary_id concept_code",
        "death": "person_id death_date",
        "person": "person_id gender_concept_id year_of_birth",
    }.items()
}
