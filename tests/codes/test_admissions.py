import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlci.base.errors import InputError
from mlci.codes.admissions import as_admissions
from toys import as_tuples, streamed

RAW = [["i50.9", " E11.9 "], [], ["I50.9", None, "", "N179"], None, ["038.9"]]
CLEAN = [("I509", "E119"), (), ("I509", "N179"), (), ("0389",)]


def codes_of(batches) -> list[tuple]:
    return [tuple(code for code, _ in codes) for _, *codes in as_tuples(batches)]


def test_lists_are_encoded():
    assert codes_of(as_admissions(RAW)) == CLEAN
    assert codes_of(as_admissions([])) == []
    missing = pd.Series([["I50.9", np.nan, pd.NA], np.nan, pd.NA, None])
    assert codes_of(as_admissions(missing)) == [("I509",), (), (), ()]
    found = as_admissions(RAW, icd_version=10)
    assert set(found.versions) == {10}
    assert as_admissions(found) is found


def test_frames_of_every_kind_give_the_same():
    wide = {"admission_id": list("abcde"), "codes": RAW, "icd_version": [10, 10, 9, None, 9]}
    expected = [
        ("a", ("I509", 10), ("E119", 10)),
        ("b",),
        ("c", ("I509", 9), ("N179", 9)),
        ("d",),
        ("e", ("0389", 9)),
    ]
    long = [(i, code, version) for i, codes, version in zip(*wide.values()) for code in codes or [None]]
    rows = dict(zip(("admission_id", "code", "icd_version"), map(list, zip(*long))))
    text = wide | {
        "codes": [" ".join(filter(None, codes or [])) for codes in (["i50.9,E119"], [], ["I50.9;N179"], [], ["038.9"])]
    }
    for columns in (wide, rows, text):
        for frame in (pd.DataFrame, pl.DataFrame, pa.table):
            assert as_tuples(as_admissions(frame(columns))) == expected, frame
    categories = pd.DataFrame(rows).astype({"code": "category", "admission_id": "category"})
    assert as_tuples(as_admissions(categories)) == expected


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_lists_of_every_arrow_type_give_the_same(kind):
    codes = pa.array([["I50.9", "N17.9"], None, [], ["E11.9", None]], kind(pa.string()))
    flags = pa.array([["Y", "N"], None, [], ["N", "Y"]], kind(pa.string()))
    table = pa.table({"visit_id": range(5), "codes": pa.concat_arrays([codes[1:], codes[:2]])})
    table = table.append_column("poa", pa.concat_arrays([flags[1:], flags[:2]]))
    assert codes_of(as_admissions(table)) == [(), (), ("E119",), ("I509", "N179"), ()]
    assert codes_of(as_admissions(table, poa="only")) == [(), (), (), ("I509",), ()]


def test_scattered_rows_keep_the_order_of_first_appearance():
    frame = pd.DataFrame({"admission_id": [7, 3, 7, 9, 3], "code": ["A", "B", "C", "D", "E"]})
    assert codes_of(as_admissions(frame)) == [("A", "C"), ("B", "E"), ("D",)]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"admission_id": [1], "code": [389]}, "leading zeros"),
        ({"admission_id": [1], "codes": [[38.9]]}, "leading zeros"),
        ({"admission_id": [1], "codes": [389]}, "leading zeros"),
        ({"admission_id": [1], "reason": ["I509"]}, "lacks the column codes; .* found are admission_id, reason"),
        ({"number": [1], "code": ["I509"]}, "lacks the column admission_id; --id names"),
        ({"admission_id": [1, None], "code": ["I509", "I509"]}, "admission_id, row 2: is empty"),
        (
            {"admission_id": [1, 1], "code": ["A", "B"], "icd_version": [10, 11]},
            "icd_version, row 2: a whole number is not an ICD version",
        ),
        (
            {"admission_id": [1], "codes": [["A"]], "icd_version": ["ten"]},
            "row 1: text of 3 characters is not an ICD version",
        ),
    ],
)
def test_unusable_tables_raise_a_clear_error(table, words, tmp_path):
    with pytest.raises(InputError, match=words):
        as_admissions(pa.table(table))
    pq.write_table(pa.table(table), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"bad\.parquet: .*" + words):
        list(streamed(tmp_path / "bad.parquet", batch=1))


def test_bad_lists_and_files(tmp_path):
    with pytest.raises(InputError, match="needs a list of codes"):
        as_admissions(["I509", "N179"])
    with pytest.raises(InputError, match=r"each admission needs a list of strings.*leading zeros"):
        as_admissions([["I509", 389]])
    with pytest.raises(InputError, match="ICD version 11 is not known"):
        as_admissions([["I509"]], icd_version=11)
    (tmp_path / "a.parquet").write_text("not parquet")
    with pytest.raises(InputError, match="neither Parquet"):
        list(streamed(tmp_path / "a.parquet"))
    (tmp_path / "a.csv").write_text("admission_id,code\n1,I509\n1,2,3\n")
    with pytest.raises(InputError, match="is not a CSV table"):
        list(streamed(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(InputError, match="is not a CSV table"):
        list(streamed(tmp_path / "a.csv"))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"admission_id,code\n1,I509\n"))
    assert codes_of(streamed(tmp_path / "a.csv.gz")) == [("I509",)]


def test_repeated_column_names_and_nan_identifiers_raise_a_clear_error(tmp_path):
    with pytest.raises(InputError, match="the frame: has two columns of the same name"):
        as_admissions(pd.DataFrame([[7, "I10", "I50.9"]], columns=["visit_id", "DX1", "DX1"]), icd_version=10)
    table = pa.table({"visit_id": [7.0, float("nan")], "codes": [["I509"], ["I10"]]})
    with pytest.raises(InputError, match="the frame: column visit_id, row 2: is empty"):
        as_admissions(table, icd_version=10)
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="column visit_id, row 2: is empty"):
        list(streamed(tmp_path / "a.parquet"))


def test_icd_version_words_of_other_systems():
    table = pa.table(
        {"admission_id": [1] * 5, "code": list("ABCDE"), "icd_version": ["ICD9CM", "icd-10", "10", "09", None]}
    )
    assert as_tuples(as_admissions(table, icd_version=9)) == [(1, ("A", 9), ("B", 10), ("C", 10), ("D", 9), ("E", 9))]


CELLS = {"I50.9; N17.9": ["I509", "N179"], "E11.9": ["E119"], "I21.4|J18.9,\nA41.9;": ["I214", "J189", "A419"]}
CELLS |= {None: [], "250 00": ["25000"], "I10 hypertension": ["I10"], "A18.0+ M01.1*": ["A180", "M011"]}

PARTED = {
    "I50.9/N17.9/E11.9": ["I509", "N179", "E119"],
    "G30.0+F00.0*": ["G300", "F000"],
    "I10 & 428.0": ["I10", "4280"],
}
PARTED |= {"I50.9\xa0N17.9\u3000E11.9": ["I509", "N179", "E119"], "I50.9，J18.9、I10": ["I509", "J189", "I10"]}
PARTED |= {"Ｉ５０．９，Ｎ１７．９": ["I509", "N179"], "Ｉ５０，９　Ｎ１７．９／I10": ["I509", "N179", "I10"]}
PARTED |= {"I50,9 N17,9;E11,65,K35,80": ["I509", "N179", "E1165", "K3580"], "I10,I50,9": ["I10", "I509"]}
PARTED |= {"V58,38,I50": ["V58", "38", "I50"], "I10,428,0": ["I10", "428", "0"], "I50,38.9": ["I50", "389"]}
PARTED |= {
    "428.0/250.00": ["4280", "25000"],
    "2020/01/02": ["20200102"],
    "01/02/2020": ["01022020"],
    "\ufeffI10": ["I10"],
}
CELLS |= PARTED


@pytest.mark.parametrize(("cell", "codes"), PARTED.items())
def test_other_signs_between_codes_part_them_in_a_text(cell, codes):
    texts = pa.table({"codes": ["I21.4", cell, f"A41.9; {cell}"]})
    found = codes_of(as_admissions(texts, icd_version=10))
    assert found == [("I214",), tuple(codes), ("A419", *codes)]


@given(st.lists(st.tuples(*[st.sampled_from([*CELLS])] * 2), min_size=1))
def test_a_cell_may_hold_several_codes_in_every_layout(rows):
    expected = [(*CELLS[first], *CELLS[second]) for first, second in rows]
    wide = pa.table([pa.array(cells, pa.string()) for cells in zip(*rows)], ["DX1", "DX2"])
    assert codes_of(as_admissions(wide, icd_version=10)) == expected
    lists = pa.table({"codes": pa.array([list(row) for row in rows], pa.list_(pa.string()))})
    assert codes_of(as_admissions(lists, icd_version=10)) == expected
    long = [(number, cell) for number, row in enumerate(rows) for cell in row]
    ids, cells = zip(*long)
    long = pa.table({"visit": ids, "code": pa.array(cells, pa.string())})
    assert codes_of(as_admissions(long, id="visit", icd_version=10)) == expected


def test_flags_and_versions_of_a_cell_go_for_all_its_codes():
    table = {"DX1": ["I50.9", "410.71"], "DX2": ["N17.9; J18.9", "038.9"], "POA1": ["Y", "Y"], "POA2": ["N", "Y"]}
    admissions = as_admissions(pa.table(table | {"icd_version": [10, 9]}), poa="any")
    assert admissions.poa.tolist() == [1, 2, 2, 1, 1]
    assert admissions.versions[admissions.indices].tolist() == [10, 10, 10, 9, 9]
    only = as_admissions(pa.table(table | {"icd_version": [10, 9]}), poa="only")
    assert (codes_of(only), only.late) == ([("I509",), ("41071", "0389")], 2)


@pytest.mark.parametrize(("said", "number"), [("ICD-10", 10), ("icd9", 9), ("ICD-9-CM", 9), (" 10 ", 10), ("10", 10)])
def test_a_version_may_be_written_in_words(said, number):
    frame = pd.DataFrame({"visit_id": [1], "DX1": ["I50.9"]})
    plain = as_admissions([["I50.9"]])
    for data in ([["I50.9"]], frame, plain):
        assert as_admissions(data, icd_version=said).versions.tolist() == [number]


@pytest.mark.parametrize("data", [[["I50.9"]], as_admissions([["I50.9"]])])
@pytest.mark.parametrize("said", ["dxver", "11", 11])
def test_an_invalid_version_is_not_ignored(data, said):
    with pytest.raises(InputError, match="allowed are 9 and 10"):
        as_admissions(data, icd_version=said)


@pytest.mark.parametrize(
    ("cell", "codes"),
    [
        ("I50.9 Heart failure, unspecified", ("I509",)),
        ("i50.9 - heart failure", ("I509",)),
        ("E11.9: Type 2 diabetes mellitus without complications", ("E119",)),
        ("D51.0 Vitamin B12 deficiency anemia", ("D510",)),
        ("428.0 CHF NOS", ("4280",)),
        ("E849.7 Accident in institution", ("E8497",)),
        ("J44.9 (COPD)", ("J449",)),
        ("I50.9 N17.9", ("I509", "N179")),
        ("I21 A1", ("I21A1",)),  # a blank in place of the dot
        ("038.9", ("0389",)),
        ("I50.9 Heart failure, N17.9 AKI", ("I509", "N179")),
        ("I50.9 and N17.9X", ("I509", "N179X")),
        ("428.0 CHF; V45.82 PTCA; E849.0 at home, B12 low", ("4280", "V4582", "E8490")),
        ("V58.61 Long-term anticoagulants; 427.31 AF", ("V5861", "42731")),
        ("E11.9 Diabetes; N17 AKI, glucose 250 mg", ("E119", "N17")),
        ("278.01 Obesity, BMI 45.0", ("27801",)),
    ],
)
def test_a_title_behind_a_code_is_left_out(cell, codes):
    wide = pd.DataFrame({"visit_id": [1], "DX1": [cell], "DX2": [None]}, dtype=str)
    long = pd.DataFrame({"visit_id": [1], "code": [cell]})
    text = pd.DataFrame({"visit_id": [1], "codes": [cell]})
    assert codes_of(as_admissions(wide)) == codes_of(as_admissions(long)) == [codes]
    if len(cell.split()) > 2:
        assert codes_of(as_admissions(text)) == [codes]


@pytest.mark.parametrize("data", [None, 5, {"codes": [["I50.9"]]}])
def test_what_is_neither_lists_nor_a_frame_is_named(data):
    with pytest.raises(InputError, match=f"expected a frame, or a list .*; got {type(data).__name__}"):
        as_admissions(data, icd_version=10)
