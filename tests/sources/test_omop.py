import pytest

import hospitals
import mlci
from mlci.cohort import build_cohort


def visit(tmp_path, **case):
    """One OMOP patient with one visit."""
    return visits(tmp_path, [case])


def visits(tmp_path, cases):
    """OMOP patients with one visit each: dates with or without time, a death, an ICU detail, diagnoses."""
    tables = {name: [] for name in ("visit_occurrence", "visit_detail", "condition_occurrence", "death", "person")}
    tables["concept"] = [[1, "ICD9CM", "E860.0"], [2, "ICD10CM", "E86.0"], [3, "SNOMED", "84114007"]]
    for number, case in enumerate(cases):
        person, id, conditions = 1 + number, 7 + number, case.get("conditions", ((0, "I50.9"),))
        dates = case.get("start", ("2150-03-01", "")), case.get("end", ("2150-03-05", ""))
        tables["person"].append([person, 8507, 2090])
        tables["visit_occurrence"].append([id, person, 9201, *dates[0], *dates[1]])
        tables["visit_detail"] += [[id, 32037, *case["icu"]]] if "icu" in case else []
        tables["death"] += [[person, *case["death"]]] if "death" in case else []
        first = len(tables["condition_occurrence"])
        tables["condition_occurrence"] += [[first + i, person, id, *kind] for i, kind in enumerate(conditions)]
    headers = {**hospitals.OMOP, "death": ["person_id", "death_date", "death_datetime"]}
    return hospitals.write(tmp_path / "one", tables, headers)


def test_the_demo_as_omop_is_the_demo(demos, tmp_path):
    demo = demos / "mimic4_demo"
    ours, theirs = build_cohort("omop", hospitals.omop(demo, tmp_path)), build_cohort("mimic4", demo)
    assert ours.table.equals(theirs.table)
    assert [(step.removed, step.left) for step in ours.attrition] == [(0, 276), (1, 275), (152, 123)]


def test_icd_9_as_omop(demos, tmp_path):
    demo = demos / "mimic4_demo"
    ours = build_cohort("omop", hospitals.omop(demo, tmp_path), icd_version=9)
    assert ours.table.equals(build_cohort("mimic4", demo, icd_version=9).table)


DATED = [
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
]


def test_dates_without_times(tmp_path):
    rows = build_cohort("omop", visits(tmp_path, [case for case, _ in DATED])).table.to_pylist()
    for row, (case, expected) in zip(rows, DATED, strict=True):
        assert {name: row[name] for name in expected} == expected, case


def test_the_version_of_a_code_is_found_or_the_code_is_dropped(tmp_path):
    conditions = [
        (2, "x"),
        (1, "x"),
        (0, "E86.0"),
        (0, "V45.81"),
        (0, "428.0"),
        (3, "i50.9 "),
        (0, "heart failure"),
        (0, ""),
    ]
    cohort = build_cohort("omop", visit(tmp_path, conditions=conditions))
    assert cohort.table["codes"].to_pylist() == [["E860", "I509"]]
    assert any(note.startswith("2 diagnoses of another ICD version") for note in cohort.notes)
    assert any(note.startswith("2 diagnoses whose ICD version cannot be told") for note in cohort.notes)
    assert any(note.startswith("2 diagnoses hold no ICD code") for note in cohort.notes)
    # Beside more codes of one version, what both can have written is of that one.
    more = build_cohort("omop", visit(tmp_path / "more", conditions=[*conditions, (0, "N17.9")]))
    assert more.table["codes"].to_pylist() == [["E860", "V4581", "I509", "N179"]]


VISITS = "9201,262,8870,581385,8883"


def test_the_demo_as_published_in_omop(demos):
    demo = demos / "mimic4_demo_omop"
    ours = build_cohort("omop", demo, visits=VISITS, icu_sites="Neuro Intermediate")
    theirs = build_cohort("mimic4", demos / "mimic4_demo")
    counts = {name: int(ours.labels(name).sum()) for name in ours.outcomes}
    # One patient who died after discharge is not in the table of deaths, so that 30 days have 9, not 10.
    assert (len(ours), counts) == (
        123,
        {"mortality": 9, "mortality_30d": 9, "long_stay": 40, "icu_transfer": 51},
    )
    assert {name: int(theirs.labels(name).sum()) for name in ("mortality", "long_stay", "icu_transfer")} == {
        name: counts[name] for name in ("mortality", "long_stay", "icu_transfer")
    }
    # Of 2,313 codes, 454 (mostly Z and Y) belong to the table of observations, which is not published with these.
    assert sum(map(len, ours.table["codes"].to_pylist())) == 1859
    found = {code for codes in ours.table["codes"].to_pylist() for code in codes}
    assert found <= {code for codes in theirs.table["codes"].to_pylist() for code in codes}
    assert [(step.removed, step.left) for step in ours.attrition] == [(0, 852), (582, 270), (147, 123)]


def test_left_out_visits_are_reported_with_the_option_to_count_them(demos):
    cohort = build_cohort("omop", demos / "mimic4_demo_omop")
    (said,) = [note for note in cohort.notes if "not inpatient by their concept" in note]
    assert said.startswith("801 visits")
    assert "119 of concept 8870, 77 of concept 581385, 18 of concept 8883 last over a night" in said
    assert "--visits 9201,262,8717,8870,581385,8883 counts them too" in said
    (said,) = [note for note in cohort.notes if "care sites" in note]
    assert "Neuro Intermediate" in said
    assert "--icu-sites" in said


def test_descendants_of_an_inpatient_concept_are_inpatient(tmp_path):
    folder = visit(tmp_path)
    text = (folder / "visit_occurrence.csv").read_text()
    (folder / "visit_occurrence.csv").write_text(text.replace(",9201,", ",4711,"))
    with pytest.raises(mlci.InputError, match=r"has no inpatient visit; 1 visits .*4711\); of .*--visits .*,4711"):
        build_cohort("omop", folder)
    assert len(build_cohort("omop", folder, visits=[4711])) == 1
    assert len(build_cohort("omop", folder, visits="all")) == 1
    (folder / "concept_ancestor.csv").write_text("ancestor_concept_id,descendant_concept_id\n9201,4711\n")
    assert len(build_cohort("omop", folder)) == 1
    with pytest.raises(mlci.InputError, match="allowed are concept ids"):
        build_cohort("omop", folder, visits="inpatient")


def test_snomed_alone_is_mapped_back_with_the_vocabulary(tmp_path):
    folder = visit(tmp_path)
    header = [*hospitals.OMOP["condition_occurrence"], "condition_concept_id"]
    conditions = [[1, 1, 7, 3, "84114007", 3], [2, 1, 7, 0, "a fall", 13], [3, 1, 7, 0, "a cold", 23]]
    icd = {"ICD10CM": ["I50", "I50.9", "W19", "R29.6", "E86.0"], "ICD9CM": ["428.0", "428.9"]}
    codes = [(name, code) for name, listed in icd.items() for code in listed]
    concepts = [[100 + place, *code] for place, code in enumerate(codes)]
    tables = {
        "condition_occurrence": conditions,
        "concept": [*concepts, [3, "SNOMED", "84114007"], [13, "SNOMED", "x"], [23, "SNOMED", "y"]],
    }
    headers = {"condition_occurrence": header, "concept": hospitals.OMOP["concept"]}
    hospitals.write(folder, tables, headers)
    with pytest.raises(
        mlci.InputError, match="3 rows hold no code, or only one of another vocabulary, such as SNOMED: the table"
    ):
        build_cohort("omop", folder)
    maps = ["100,3,Maps to", "3,101,Mapped from", "102,13,Maps to", "103,13,Maps to", "105,3,Maps to", "106,3,Maps to"]
    lines = ["concept_id_1,concept_id_2,relationship_id", *maps, "104,3,Is a"]
    (folder / "concept_relationship.csv").write_text("\n".join(lines))
    cohort = build_cohort("omop", folder)
    assert cohort.table["codes"].to_pylist() == [["I509"]]  # rather than the heading I50
    assert any("1 were taken back to ICD-10" in note and "1 were left out" in note for note in cohort.notes)
    assert any(note.startswith("2 diagnoses hold no ICD code") for note in cohort.notes)
    assert build_cohort("omop", folder, icd_version=9).table["codes"].to_pylist() == [["4289"]]
    # Beside recorded ICD codes a standard concept is a chart entry, not a diagnosis.
    hospitals.write(
        folder, {"condition_occurrence": [*conditions, [4, 1, 7, 0, "N17.9", 0]]}, {"condition_occurrence": header}
    )
    assert build_cohort("omop", folder).table["codes"].to_pylist() == [["N179"]]
