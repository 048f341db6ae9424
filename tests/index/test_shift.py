import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlci
from mlci.base.errors import InputError
from mlci.codes.admissions import as_admissions
from mlci.cohort import Cohort
from mlci.index.model import load_model
from mlci.index.recalibrate import recalibrate
from mlci.index.shift import Agreement, Makeup, count_makeup, distance, makeup_of, outcome_columns, shifts
from mlci.index.tally import Tally
from toys import nested_code_lists

LISTS = nested_code_lists(3000, seed=4)
THERE = makeup_of(as_admissions(LISTS[:2500], icd_version=10))


def found(lists: list[list[str]]) -> dict[int, Makeup]:
    admissions = as_admissions(lists, icd_version=10)
    return count_makeup(admissions, np.full(len(admissions.values), 2))


def test_the_makeup_of_training_has_no_small_cell():
    rare = [*LISTS[:100], *[["Q999"]] * 9]
    assert "Q99" not in makeup_of(as_admissions(rare, icd_version=10))["10"]["categories"]
    assert "Q99" in makeup_of(as_admissions([*rare, ["Q999"]], icd_version=10))["10"]["categories"]


def test_a_sample_of_the_same_admissions_is_never_reported_as_shifted():
    rng = np.random.default_rng(0)
    for size in (100, 150, 300, 500):
        for _ in range(10):
            some = [LISTS[row] for row in rng.choice(len(LISTS), size)]
            assert shifts(THERE, found(some)) == []


def test_more_codes_and_another_mix_are_reported_if_there_are_enough_admissions():
    longer = [[*codes, *more] for codes, more in zip(LISTS[2500:2700], LISTS[2700:2900])]
    assert any("codes each, those of training had" in message for message in shifts(THERE, found(longer)))
    births = [["O80", "Z370"]] * 150
    messages = shifts(THERE, found(births))
    assert any("the mix of codes differs" in message for message in messages)
    assert shifts(THERE, found(births[:99])) == []
    assert shifts({}, found(births)) == []  # an older model file has no make-up


def test_a_file_of_two_icd_versions_says_which_admissions_differ():
    longer = [[*codes, *more] for codes, more in zip(LISTS[2500:2700], LISTS[2700:2900])]
    [sentence] = shifts(THERE, found(longer))
    assert sentence.startswith("these admissions have ")
    [sentence] = shifts(THERE, {9: Makeup(), **found(longer)})
    assert sentence.startswith("these ICD-10 admissions have ")
    messages = shifts(THERE, {9: Makeup(), **found([["O80", "Z370"]] * 150)})
    assert any(message.startswith("the mix of ICD-10 codes differs") for message in messages)


def test_makeups_of_parts_add_up():
    whole, parts = found(LISTS[:400])[10], found(LISTS[:100])[10] + found(LISTS[100:400])[10]
    assert (whole.admissions, whole.codes, whole.squares) == (parts.admissions, parts.codes, parts.squares)
    assert distance(whole, parts)[0] == 0


def test_miscalibrated_risks_are_reported():
    rng, risk = np.random.default_rng(1), np.full(1000, 0.05)
    assert Agreement.of(risk, (rng.random(1000) < 0.05).astype(float)).warning("mortality") == ""
    message = Agreement.of(risk, (rng.random(1000) < 0.2).astype(float)).warning("mortality")
    assert message.startswith("the mean risk of in-hospital mortality is 5.0%, and ")
    assert Agreement.of(risk[:50], np.ones(50)).warning("mortality") == ""


def test_mimic_is_reported_as_unlike_the_survey(demos, mlci_cli, tmp_path, empty_figures):
    cohort = mlci.build_cohort("mimic3", demos / "mimic3_demo")
    cohort.write(tmp_path / "mimic.parquet")
    stderr = mlci_cli("score", "us2010", "mimic.parquet", "-o", "scores.csv").stderr
    assert "codes each, those of training had" in stderr
    assert "the mix of codes differs" in stderr
    assert "the mean risk of" in stderr
    page = mlci_cli("report", "us2010", "mimic.parquet", "-o", "report.html")
    assert "codes each, those of training had" in (tmp_path / "report.html").read_text(), page.stderr


def test_a_recalibrated_index_is_compared_with_the_hospital():
    table = pa.table(
        {
            "admission_id": np.arange(600),
            "subject_id": np.arange(600),
            "icd_version": np.full(600, 10, dtype=np.int8),
            "codes": pa.array(LISTS[:600], pa.list_(pa.string())),
            "split": ["train"] * 500 + ["test"] * 100,
            "mortality": pa.array(np.arange(600) % 5 == 0),
        }
    )
    cohort = Cohort(table, "a hospital", {"mortality": ""})
    before = load_model(mlci.index.ready.model_path("us2010"))
    after = recalibrate(before, cohort).model
    before_and_after = [
        Tally(model).add(cohort.admissions(), model.columns(cohort.admissions())).warnings()
        for model in (before, after)
    ]
    assert any("the mix of codes" in sentence for sentence in before_and_after[0])
    assert not any("the mix of codes" in sentence for sentence in before_and_after[1])


def shift_warnings(call, data) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(data)
    return [str(warning.message) for warning in caught if issubclass(warning.category, mlci.ShiftWarning)]


def test_python_warns_as_the_command_does(demos):
    index, cohort = mlci.load("us2010"), mlci.build_cohort("mimic3", demos / "mimic3_demo")
    for call in (index.score, index.risk, index.table):
        text = " ".join(shift_warnings(call, cohort))
        assert "codes each, those of training had" in text
        assert "the mix of codes differs" in text
        assert "the mean risk of in-hospital mortality is" in text  # the cohort knows who died
    lists = cohort.table["codes"].to_pylist()
    assert not any(
        "the mean risk" in sentence for sentence in shift_warnings(lambda x: index.score(x, icd_version=9), lists)
    )


def test_python_does_not_warn_about_similar_or_few_admissions(demos):
    index = mlci.load("us2010")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.score(mlci.build_cohort("nhds", demos / "nhds2010" / "sample.txt.bz2", not_stated="null"))
        index.score([["O80", "Z370"]] * 99, icd_version=10)


def test_outcomes_of_a_file_with_a_flipped_bit_are_refused(tmp_path):
    path = tmp_path / "visits.parquet"
    table = pa.table({"died": [True, False, False, True] * 40, "codes": [["I509"]] * 160})
    options = {"compression": "none", "write_statistics": False, "write_page_checksum": True}
    pq.write_table(table, path, column_encoding={"died": "PLAIN"}, use_dictionary=False, **options)
    assert outcome_columns(path, ["died"])["died"].sum() == 80
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\x99" * 20, b"\x99" * 19 + b"\x98"))  # 1001 1001 ... 1000
    with pytest.raises(InputError, match="damaged"):
        outcome_columns(path, ["died"])
