"""A look-back carries a patient's codes to later admissions, reports its limits, and can wash out."""

import pandas as pd
import pytest

import mlci

VISITS = pd.DataFrame(
    {
        "visit": [1, 2, 3, 4, 5],
        "mrn": [7, 7, 7, 8, 8],
        "admit_date": ["2020-01-01", "2020-02-01 06:00:00", "2022-01-01", "", "2021-01-01"],
        "icd_version": [10, 10, 10, 10, 9],
        "DX1": ["I50.9", "E11.9", "J44.9", "I10", "4019"],
        "DX2": ["E119", None, None, None, None],
        "POA1": ["Y", "N", "Y", "Y", "Y"],
        "POA2": ["N", None, None, None, None],
        "died": [0, 0, 1, 0, 1],
    }
)


def built(**options) -> mlci.Cohort:
    return mlci.Cohort.from_frame(VISITS, **options)


def test_codes_are_carried_once_and_were_there_on_admission():
    cohort = built(look_back=365)
    rows = {row["admission_id"]: row for row in cohort.table.to_pylist()}
    assert {key: row["codes"] for key, row in rows.items()} == {
        1: ["I509", "E119"],
        2: ["E119", "I509"],  # E11.9 was its own already
        3: ["J449"],  # more than a year later
        4: ["I10"],
        5: ["4019"],
    }
    assert rows[2]["poa"] == ["N", "Y"]
    observed = [rows[key]["days_observed"] for key in (1, 2, 3, 4)]
    assert observed == [0, 31.25, 731, None]  # whatever the look-back; an unknown time gives null
    assert built().table["days_observed"].to_pylist()[:4] == observed
    assert any(note == "look-back of 365 days: 1 admissions carry 1 codes of earlier ones." for note in cohort.notes)
    longer = built(look_back=3650).table.to_pylist()
    assert longer[2]["codes"] == ["J449", "E119", "I509"]  # the latest first


def test_a_cohort_that_knows_times_looks_back_later_on(tmp_path):
    built().write(tmp_path / "c.parquet")
    plain = mlci.read_cohort(tmp_path / "c.parquet")
    assert plain.look_back == 0
    for days in (30, 31.25, 365, 3650):
        asked = built(look_back=days)
        asked.write(tmp_path / "l.parquet")
        assert plain.looking_back(days).table.equals(asked.table)
        assert mlci.read_cohort(tmp_path / "l.parquet").look_back == plain.looking_back(days).look_back == days
    assert plain.looking_back(0) is plain
    with pytest.raises(mlci.InputError, match="the cohort looks back 3650 days already; make it without --look-back"):
        asked.looking_back(30)
    with pytest.raises(mlci.InputError, match=r"does not say when admissions began \(it lacks the column days_obs"):
        mlci.Cohort.from_frame(VISITS.drop(columns="admit_date")).looking_back(30)


def test_codes_of_the_other_version_are_counted():
    frame = VISITS.assign(icd_version=[9, 10, 10, 10, 9], mrn=[7, 7, 7, 8, 8])
    frame.loc[0, ["DX1", "DX2"]] = ["4280", "25000"]
    cohort = mlci.Cohort.from_frame(frame, look_back=3650)
    said = (
        "look-back of 3650 days: 1 admissions carry 1 codes of earlier ones; 4 codes of the other ICD version are not"
    )
    assert any(note == f"{said} carried." for note in cohort.notes)  # two codes, to two later admissions each
    assert cohort.table["codes"].to_pylist()[:3] == [["4280", "25000"], ["E119"], ["J449", "E119"]]


def test_times_that_are_not_asked_for_may_be_unreadable():
    cohort = mlci.Cohort.from_frame(VISITS.assign(admit_date="soon"))
    assert "days_observed" not in cohort.table.column_names
    assert any(
        "not every time of admission is understood" in note and "nothing can look back" in note for note in cohort.notes
    )
    numbers = mlci.Cohort.from_frame(VISITS.assign(admit_date=20200101))  # no seconds since 1970
    assert "days_observed" not in numbers.table.column_names
    with pytest.raises(mlci.InputError, match="the name days_observed is taken"):
        mlci.Cohort.from_frame(VISITS.assign(days_observed=1), keep=["days_observed"])


def test_a_wash_out_is_counted():
    cohort = built(look_back=365, wash_out=True)
    assert cohort.column("admission_id").tolist() == [3]
    assert (
        "look-back of 365 days: 0 admissions carry 0 codes of earlier ones." in cohort.notes
    )  # of those that are left
    assert (cohort.attrition[-1].rule, cohort.attrition[-1].removed) == (
        "365 days or more since the patient's first admission",
        4,
    )


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (VISITS, {"look_back": 0}, "look_back: 0 is not allowed; allowed is a number of days above 0"),
        (VISITS.drop(columns="admit_date"), {"look_back": 30}, "source file: does not say when admissions began"),
        (
            VISITS.assign(admit_date="soon"),
            {"look_back": 30},
            r"not every time of admission is understood \(row 1\); allowed is a date or time",
        ),
        (VISITS, {"wash_out": True}, "wash_out needs a look_back"),
        (VISITS, {"admitted": "when", "look_back": 30}, r"lacks the column when \(--admitted\)"),
    ],
)
def test_a_look_back_without_times_raises_a_clear_error(frame, options, words):
    with pytest.raises(mlci.InputError, match=words):
        mlci.Cohort.from_frame(frame, **options)


@pytest.mark.parametrize("source", ["mimic3", "mimic4"])
def test_the_demos_look_back(demos, source):
    plain = mlci.build_cohort(source, demos / f"{source}_demo")
    cohort = mlci.build_cohort(source, demos / f"{source}_demo", look_back=365)
    assert cohort.table.drop_columns("codes").equals(plain.table.drop_columns("codes"))
    assert plain.looking_back(365).table.equals(cohort.table)
    longer = [len(a) - len(b) for a, b in zip(cohort.table["codes"].to_pylist(), plain.table["codes"].to_pylist())]
    assert min(longer) == 0
    assert sum(longer) > 100
    assert all(a[: len(b)] == b for a, b in zip(cohort.table["codes"].to_pylist(), plain.table["codes"].to_pylist()))
