"""Coding intensity: observed and expected codes per admission."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mlci
from mlci.judging._coding import coding


def cohort(codes: list[list[str]], **columns) -> mlci.Cohort:
    frame = pd.DataFrame({"visit_id": range(len(codes)), "codes": codes, "died": [0, 1] * (len(codes) // 2)})
    return mlci.Cohort.from_frame(frame.assign(**columns), icd_version=10)


def test_expected_codes_are_those_of_the_other_groups_for_the_same_kind_of_patient():
    """Group a has two codes per heart patient and one per lung patient; b has four and three; c has hearts only."""
    heart, lung = "I50", "J18"
    lists = [[heart] * 2, [lung], [heart] * 4, [lung] * 3, [heart] * 3, [heart] * 3]
    table = coding(cohort(lists * 10), np.array([0, 0, 1, 1, 2, 2] * 10), ["a", "b", "c"]).set_index("group")
    assert table["n"].tolist() == [20, 20, 20]
    assert table["codes"].tolist() == [1.5, 3.5, 3.0]
    # Group a: heart patients as in b and c together ((4 + 3 + 3) / 3), lung patients as in b (3).
    assert table["expected"].to_numpy() == pytest.approx([(10 / 3 + 3) / 2, ((2 + 3 + 3) / 3 + 1) / 2, (2 + 4) / 2])
    assert (table["ratio"] == table["codes"] / table["expected"]).all()


def test_age_and_sex_define_strata_and_missing_is_a_stratum():
    lists, old = [["I50"] * 2, ["I50"] * 6] * 20, [30.0, 80.0] * 20
    mixed = np.repeat([0, 1], 20)
    by_age = coding(cohort(lists, age=old), mixed, ["a", "b"])
    assert by_age["ratio"].tolist() == [1, 1]
    order = np.array([*range(0, 40, 2), *range(1, 40, 2)])  # the young in one group, the old in the other
    apart = coding(cohort(lists, age=old), np.isin(np.arange(40), order[20:]).astype(int), ["a", "b"])
    assert apart["expected"].tolist() == [
        6,
        2,
    ]  # no other group has such patients, so all its patients are the reference
    unknown = cohort(lists, age=[None, 80.0] * 20, sex=[None, "F"] * 20)
    assert coding(unknown, mixed, ["a", "b"])["ratio"].tolist() == [1, 1]


def test_admissions_without_codes_count_but_those_without_a_group_do_not():
    lists = [[], ["I50"], ["I50"] * 9, ["I50"]] * 10
    full = cohort([["I50"]] * 40)
    codes = pa.array(lists, pa.list_(pa.string()))
    some = mlci.Cohort(full.table.set_column(full.table.column_names.index("codes"), "codes", codes), "", full.outcomes)
    table = coding(some, np.array([0, 0, -1, 1] * 10), ["a", "b"]).set_index("group")
    assert table["codes"].tolist() == [0.5, 1.0]
    assert table["n"].tolist() == [20, 10]


def test_an_unknown_age_is_no_old_age():
    """Patients of unknown age record 2 codes, those of 90 record 6; each is compared with its own kind."""
    lists = [["I50"] * 2, ["I50"] * 6] * 20
    table = coding(cohort(lists, age=[None, 90.0] * 20), np.repeat([0, 1], [10, 30]), ["a", "b"])
    assert table["ratio"].tolist() == [1, 1]
    mostly = np.where(np.arange(40) < 20, 0, 1) * (np.arange(40) % 2)  # all unknown ages are in group a
    expected = coding(cohort(lists, age=[None, 90.0] * 20), mostly, ["a", "b"]).set_index("group")["expected"]
    assert expected["b"] == 6
