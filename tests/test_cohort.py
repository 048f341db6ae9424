import hashlib
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci import sources
from mlci.base.errors import InputError
from mlci.cohort import Cohort, Step, build_cohort, cohort_head, read_cohort
from mlci.index.estimator import MLCI
from mlci.sources import Draft, _assembled
from toys import toy_cohort


def paper_split(subject: object) -> str:
    """Return the split of a subject by the rule that the paper states in words."""
    share = int(hashlib.md5(str(subject).encode()).hexdigest(), 16) % 10_000 / 10_000
    return "train" if share < 0.7 else "valid" if share < 0.8 else "test"


@pytest.fixture
def made(monkeypatch):
    """Return a function that builds a cohort from columns, as if a source had read them."""

    def build(columns: dict, outcomes=("mortality",), notes=(), **options) -> Cohort:
        table = pa.table(columns)
        draft = Draft(table, dict.fromkeys(outcomes, "as recorded"), (Step("rows", 0, len(table)),), notes)
        source = type("source", (), {"read": staticmethod(lambda location: draft)})
        monkeypatch.setattr(sources, "find", lambda name: source)
        return build_cohort("here", None, **options)

    return build


def columns(n: int = 4, **more) -> dict:
    return {
        "subject_id": list(range(n)),
        "admission_id": list(range(n, 0, -1)),
        "icd_version": [10] * n,
        "codes": [["i50.9", " E11.9"]] * n,
        "mortality": [True, False] * (n // 2),
        **more,
    }


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        # admissions, patients, then positives of mortality, long_stay, icu_transfer, counted independently
        ("mimic4", (123, 44, 9, 40, 51)),
        ("mimic3", (129, 100, 40, 60, 17)),
    ],
)
def test_demo_cohorts_have_known_counts_and_splits(source, counts, demos):
    cohort = build_cohort(source, demos / f"{source}_demo")
    positives = [int(np.sum(cohort.column(name))) for name in ("mortality", "long_stay", "icu_transfer")]
    assert (len(cohort), len(set(cohort.column("subject_id"))), *positives) == counts
    assert list(cohort.outcomes) == ["mortality", "mortality_30d", "long_stay", "icu_transfer"]
    assert cohort.attrition[-1].left == len(cohort)
    assert [paper_split(subject) for subject in cohort.column("subject_id")] == cohort.column("split").tolist()
    assert np.all(np.diff(cohort.column("admission_id")) > 0)


def test_codes_of_the_demo_equal_the_file_read_line_by_line(demos):
    """Order by seq_num, duplicates, and one ICD version agree with the file."""
    import csv

    expected: dict[int, list] = {}
    with (demos / "mimic4_demo/hosp/diagnoses_icd.csv").open() as lines:
        for row in csv.DictReader(lines):
            if row["icd_version"] == "10":
                expected.setdefault(int(row["hadm_id"]), []).append((int(row["seq_num"]), row["icd_code"].strip()))
    cohort = build_cohort("mimic4", demos / "mimic4_demo")
    found = dict(zip(cohort.column("admission_id").tolist(), cohort.table["codes"].to_pylist()))
    assert found == {key: [code for _, code in sorted(codes)] for key, codes in expected.items()}


def test_each_demo_admission_has_one_icd_version(demos):
    nine, ten = (
        set(build_cohort("mimic4", demos / "mimic4_demo", icd_version=v).column("admission_id")) for v in (9, 10)
    )
    assert len(nine | ten) == 275
    assert not nine & ten


def test_table_names_may_have_any_case_and_format(demos, tmp_path):
    """MIMIC-III with names in capitals, as CSV.gz and as Parquet, gives the same cohort."""
    import gzip

    from pyarrow import csv
    from pyarrow import parquet as pq

    for i, file in enumerate(sorted((demos / "mimic3_demo").glob("*.csv"))):
        if i % 2:
            head, rest = file.read_text().split("\n", 1)
            (tmp_path / f"{file.stem}.csv.gz").write_bytes(gzip.compress(f"{head.upper()}\n{rest}".encode()))
        else:
            table = csv.read_csv(file)
            pq.write_table(
                table.rename_columns([name.upper() for name in table.column_names]), tmp_path / f"{file.stem}.parquet"
            )
    assert build_cohort("mimic3", tmp_path) == build_cohort("mimic3", demos / "mimic3_demo")


def test_an_admission_without_codes_stays_in_mimic3(demos, tmp_path):
    for file in (demos / "mimic3_demo").glob("*.csv"):
        lines = file.read_text().splitlines(keepends=True)
        lines = [line for line in lines if file.stem != "DIAGNOSES_ICD" or ",142345," not in line]
        (tmp_path / file.name).write_text("".join(lines))
    cohort = build_cohort("mimic3", tmp_path)
    assert len(cohort) == 129
    assert cohort.where(cohort.column("admission_id") == 142345).table["codes"].to_pylist() == [[]]
    assert cohort.admissions().offsets[-1] == len(cohort.table["codes"].combine_chunks().flatten())


@given(st.lists(st.integers(0, 10**9) | st.integers(-5, 5), min_size=1, max_size=50))
def test_split_follows_the_rule_of_the_paper(subjects):
    split = _assembled._split(pa.chunked_array([pa.array(subjects)]), (0.7, 0.1, 0.2))
    assert split.to_pylist() == [paper_split(subject) for subject in subjects]


def test_split_has_the_given_proportions():
    split = _assembled._split(pa.chunked_array([pa.array(range(20_000))]), (0.5, 0.2, 0.3)).to_pylist()
    shares = [split.count(name) / len(split) for name in ("train", "valid", "test")]
    assert np.allclose(shares, (0.5, 0.2, 0.3), atol=0.015)  # four standard errors


def test_split_by_another_column_and_given_splits(made):
    ward = ["a", "a", "b", "b"]
    cohort = made(columns(ward=ward), split_by="ward")
    assert cohort.column("split").tolist() == [paper_split(name) for name in reversed(ward)]
    kept = made(columns(split=["test", "valid", "train", "train"]))
    assert kept.column("split").tolist() == ["train", "train", "valid", "test"]
    with pytest.raises(InputError, match="no column ward"):
        made(columns(), split_by="ward")
    with pytest.raises(InputError, match="text of 5 characters is not a split"):
        made(columns(split=["test", "valid", "train", "spare"]))


def test_rows_are_sorted_and_codes_normalised(made):
    cohort = made(columns(codes=[["b"], None, ["i50.9", " i50.9 ", "-"], ["E11-9"]]))
    assert cohort.column("admission_id").tolist() == [1, 2, 3, 4]
    assert cohort.table["codes"].to_pylist() == [["E119"], ["I509", "I509"], [], ["B"]]
    assert "1 diagnoses hold neither letter nor digit and were dropped." in cohort.notes


def test_duplicate_and_missing_ids_raise_an_error(made):
    with pytest.raises(InputError, match="1 rows repeat"):
        made(columns(admission_id=[1, 1, 2, 3]))
    with pytest.raises(InputError, match="1 rows have none"):
        made(columns(admission_id=[1, None, 2, 3]))


def test_notes_report_outcomes_with_one_class_or_a_lost_class(made):
    cohort = made(
        columns(facility=[None, True, None, False], never=[False] * 4), outcomes=("mortality", "facility", "never")
    )
    assert (
        "mortality has only one class if all outcomes must be known: 2 of 4 admissions have it, but 0 of the 2 whose "
        "outcomes are all known." in cohort.notes
    )
    assert "never cannot be used: 0 of 4 admissions have it." in cohort.notes
    assert not any(note.startswith("facility") for note in cohort.notes)


def test_cohort_survives_writing_and_reading(made, tmp_path):
    cohort = made(columns(age=[30.0, None, 50.0, 60.0], mortality=[True, None, False, True]), notes=("a note",))
    cohort.write(tmp_path / "c.parquet")
    assert read_cohort(tmp_path / "c.parquet") == cohort
    assert np.array_equal(cohort.labels()[:, 0], [1, 0, np.nan, 1], equal_nan=True)


def test_command_builds_and_describes(demos, mlci_cli, tmp_path):
    done = mlci_cli("cohort", "mimic4", demos / "mimic4_demo", "-o", "c.parquet")
    assert "at least one ICD-10 diagnosis" in done.stdout
    assert "152" in done.stdout
    table = mlci_cli("cohort", "--describe", "c.parquet").stdout
    lines = {
        line.split("│")[1].strip(): line.split("│")[2].strip() for line in table.splitlines() if line.count("│") == 6
    }
    assert lines["admissions"] == "123"
    assert lines["patients"] == "44"
    assert lines["mortality"] == "9 (7.3%)"
    assert lines["long_stay"] == "40 (32.5%)"
    assert lines["icu_transfer"] == "51 (41.5%)"
    assert lines["mortality: not known"] == "0"
    assert {"age, median [IQR]", "women", "vocabulary: distinct codes"} <= set(lines)


FORGED = {
    "source": (1, None),
    "outcomes": ({"mortality": 1}, ["mortality"], {"absent": "rule"}, {"": "rule"}),
    "attrition": ([{"rule": "x"}], [{"rule": "x", "removed": -1, "left": 2}], "none"),
    "notes": (["x", 1], "note", None),
    "version": (1, ""),
}


@pytest.mark.parametrize("key", FORGED)
def test_forged_metadata_raises_an_error(key, tmp_path):
    toy_cohort(20).write(tmp_path / "c.parquet")
    table = pq.read_table(tmp_path / "c.parquet")
    for value in FORGED[key]:
        facts = json.loads(table.schema.metadata[b"mlci"]) | {key: value}
        pq.write_table(table.replace_schema_metadata({b"mlci": json.dumps(facts)}), tmp_path / "f.parquet")
        with pytest.raises(InputError, match=r"metadata|lacks the column absent"):
            read_cohort(tmp_path / "f.parquet")
    for text in (b"", b"[]", b"\xff", b"[" * 10_000, b"null"):
        pq.write_table(table.replace_schema_metadata({b"mlci": text}), tmp_path / "f.parquet")
        with pytest.raises(InputError, match="metadata"):
            read_cohort(tmp_path / "f.parquet")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("admission_id", pa.array([1.5] * 20), "column admission_id: is double; whole numbers or text"),
        (
            "admission_id",
            pa.array([7] * 20),
            "row 2: names the admission of row 1 again; each has one row; 19 rows repeat an earlier one",
        ),
        ("admission_id", pa.array([None, *range(19)]), "1 rows are empty"),
        ("subject_id", pa.array([[1]] * 20), "column subject_id: is list"),
        ("icd_version", pa.array(["10"] * 20), "column icd_version: is string; whole numbers"),
        ("icd_version", pa.array([10] * 19 + [11], pa.int8()), "column icd_version, row 20: allowed is 9, 10"),
        ("codes", pa.array(["A000"] * 20), "column codes: is string; lists of text"),
        ("codes", pa.array([[1]] * 20), "column codes: is list"),
        ("codes", pa.array([[None, "A000"]] * 20), "20 codes are empty"),
        ("codes", pa.array([None] * 20, pa.list_(pa.string())), "20 rows are empty"),
        ("split", pa.array(["train"] * 19 + ["spare"]), "column split, row 20: allowed is train, valid, test"),
        ("split", pa.array([1] * 20), "column split: is int64; text"),
        ("mortality", pa.array([2] * 20), "column mortality: is int64; true, false or null"),
    ],
)
def test_wrong_column_types_and_values_raise_an_error(name, values, message, tmp_path):
    cohort = toy_cohort(20)
    position = cohort.table.column_names.index(name)
    replace(cohort, table=cohort.table.set_column(position, name, values)).write(tmp_path / "c.parquet")
    with pytest.raises(InputError, match=message) as error:
        read_cohort(tmp_path / "c.parquet")
    assert "spare" not in str(error.value)


def test_ages_that_are_not_numbers_are_not_known():
    cohort = toy_cohort(20)
    aged = replace(cohort, table=cohort.table.append_column("age", pa.array([60.0, np.nan] * 10)))
    assert aged.describe()["age, median [IQR]"][0] == "60 [60, 60]"


def test_duplicate_column_raises_an_error(tmp_path):
    cohort = toy_cohort(20)
    replace(cohort, table=cohort.table.append_column("split", cohort.table["split"])).write(tmp_path / "c.parquet")
    with pytest.raises(InputError, match="has the column split twice"):
        read_cohort(tmp_path / "c.parquet")


def test_flipped_bit_raises_an_error_or_changes_nothing(tmp_path):
    cohort, path = toy_cohort(300), tmp_path / "c.parquet"
    cohort.write(path)
    whole, errors, rng = path.read_bytes(), 0, np.random.default_rng(0)
    for bit in rng.integers(0, 8 * len(whole), 150).tolist():
        path.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        try:
            found = read_cohort(path)
        except InputError:
            errors += 1
        else:
            assert found.table.to_pydict() == cohort.table.to_pydict()  # the name of a list's element field may differ
    assert errors > 120


def test_fit_does_not_depend_on_the_order_of_rows():
    cohort = toy_cohort(300)
    assert cohort.in_order() is cohort
    shuffled = replace(cohort, table=cohort.table.take(np.random.default_rng(0).permutation(300)))
    assert shuffled.in_order().table.equals(cohort.table)
    expected, found = (MLCI().fit(each).model_.state for each in (cohort, shuffled))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("name", ["visits.csv", "visits.CSV.GZ", "visits.xlsx"])
def test_spreadsheet_given_as_cohort_raises_an_error_with_the_right_command(tmp_path, name):
    (tmp_path / name).write_bytes(b"visit_id,DX1\n1,I50.9\n")
    for read in (read_cohort, cohort_head):
        with pytest.raises(InputError, match=f"is not a cohort file; `mlci cohort file .*{name} -o cohort.parquet`"):
            read(tmp_path / name)
