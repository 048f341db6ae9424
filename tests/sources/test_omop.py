import pytest

import hospitals
from mlci.cohort import build_cohort


def visit(tmp_path, *, start=("2150-03-01", ""), end=("2150-03-05", ""), death=(), icu=(), conditions=((0, "I50.9"),)):
    """One OMOP patient with one visit: dates with or without time, a death, an ICU detail, diagnoses."""
    tables = {
        "visit_occurrence": [[7, 1, 9201, *start, *end]],
        "visit_detail": [[7, 32037, *icu]] if icu else [],
        "condition_occurrence": [[i, 1, 7, concept, value] for i, (concept, value) in enumerate(conditions)],
        "concept": [[1, "ICD9CM", "E860.0"], [2, "ICD10CM", "E86.0"], [3, "SNOMED", "84114007"]],
        "death": [[1, *death]] if death else [],
        "person": [[1, 8507, 2090]],
    }
    headers = {**hospitals.OMOP, "death": ["person_id", "death_date", "death_datetime"]}
    return hospitals.write(tmp_path / "one", tables, headers)


def outcomes(folder) -> dict:
    cohort = build_cohort("omop", folder)
    return {name: cohort.table[name][0].as_py() for name in cohort.outcomes}


def test_the_demo_as_omop_is_the_demo(demos, tmp_path):
    demo = demos / "mimic4_demo"
    ours, theirs = build_cohort("omop", hospitals.omop(demo, tmp_path)), build_cohort("mimic4", demo)
    assert ours.table.equals(theirs.table)
    assert [(step.removed, step.left) for step in ours.attrition] == [(0, 276), (1, 275), (152, 123)]


def test_icd_9_as_omop(demos, tmp_path):
    demo = demos / "mimic4_demo"
    ours = build_cohort("omop", hospitals.omop(demo, tmp_path), icd_version=9)
    assert ours.table.equals(build_cohort("mimic4", demo, icd_version=9).table)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, {"mortality": False, "mortality_30d": False, "long_stay": False, "icu_transfer": False}),
        ({"death": ("2150-03-05", "")}, {"mortality": True, "mortality_30d": True}),
        ({"death": ("2150-03-06", "")}, {"mortality": False, "mortality_30d": True}),
        ({"end": ("", "")}, {"mortality": False, "long_stay": None}),
        ({"end": ("", ""), "death": ("2150-03-05", "")}, {"mortality": None, "mortality_30d": True}),
        ({"end": ("2150-03-09", "")}, {"long_stay": True}),
        # A time on one side only: both sides are dates, 7 days apart.
        ({"start": ("2150-03-01", "2150-03-01 20:00:00"), "end": ("2150-03-08", "")}, {"long_stay": False}),
        ({"icu": ("2150-03-02", "")}, {"icu_transfer": True}),
        ({"icu": ("2150-03-01", "")}, {"icu_transfer": None}),  # the same day, no times: the order is not known
        (
            {"start": ("2150-03-01", "2150-03-01 08:00:00"), "icu": ("2150-03-01", "2150-03-01 08:00:01")},
            {"icu_transfer": True},
        ),
        (
            {
                "start": ("2150-03-01", "2150-03-01 08:00:00"),
                "end": ("2150-03-05", "2150-03-05 12:00:00"),
                "death": ("2150-03-05", "2150-03-05 13:00:00"),
            },
            {"mortality": False, "mortality_30d": True},
        ),
    ],
)
def test_dates_without_times(tmp_path, case, expected):
    found = outcomes(visit(tmp_path, **case))
    assert {name: found[name] for name in expected} == expected


def test_the_version_of_a_code_is_told_or_the_code_is_dropped(tmp_path):
    conditions = [(2, "x"), (1, "x"), (0, "E86.0"), (0, "V45.81"), (0, "428.0"), (3, "i50.9 "), (0, "heart failure")]
    cohort = build_cohort("omop", visit(tmp_path, conditions=conditions))
    assert cohort.table["codes"].to_pylist() == [["E860", "I509"]]
    assert any(note.startswith("2 diagnoses of another ICD version") for note in cohort.notes)
    assert any(note.startswith("3 diagnoses whose ICD version cannot be told") for note in cohort.notes)
