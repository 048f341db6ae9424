"""Columns are found by name or by the user's options; wide, list, text and long files give the same."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from mlci.base.errors import InputError
from mlci.codes.admissions import as_admissions
from mlci.codes.layout import find_layout
from toys import streamed

CODES = [["I50.9", "N17.9", "E11.9"], [], ["038.9"], ["J44.9", "I10"]]


@pytest.mark.parametrize(
    ("names", "said", "expected"),
    [
        ("visit_id DX1 DX2 DX10 DXVER los", {}, ("wide", ("DX1", "DX2", "DX10"), "visit_id", "DXVER")),
        ("encounter_id diag_1 diag_2 diag_3 readmitted", {}, ("wide", ("diag_1", "diag_2", "diag_3"), "encounter_id")),
        ("KEY_NIS I10_DX1 I10_DX2 I10_PR1", {}, ("wide", ("I10_DX1", "I10_DX2"), "KEY_NIS")),
        (
            "clm_id PRNCPAL_DGNS_CD ICD_DGNS_CD1 ICD_DGNS_CD2",
            {},
            ("wide", ("PRNCPAL_DGNS_CD", "ICD_DGNS_CD1", "ICD_DGNS_CD2"), "clm_id"),
        ),
        ("hadm_id icd_code icd_version", {}, ("list", ("icd_code",), "hadm_id", "icd_version")),
        ("admission_id code", {}, ("long", ("code",), "admission_id")),
        ("id codes DX1 DX2", {}, ("list", ("codes",), "id")),
        ("nr a b c", {"id": "NR", "codes": "B,a"}, ("wide", ("b", "a"), "nr")),
        ("nr dx1poa dx1 dx2", {"id": "nr", "codes": ["dx?"]}, ("wide", ("dx1", "dx2"), "nr")),
    ],
)
def test_columns_are_found(names, said, expected):
    found = find_layout(names.split(), "a.csv", **said)
    assert (found.form, found.codes, found.id, found.version)[: len(expected)] == expected


@pytest.mark.parametrize(
    ("names", "said", "words"),
    [
        ("visit_id DX1", {"codes": "visit_id"}, "column visit_id cannot be two of identifier, codes and ICD"),
        ("visit_id DX1", {"id": "DX1"}, "column DX1 cannot be two of"),
        ("visit_id DX1", {"version": "visit_id"}, "column visit_id cannot be two of"),
        ("visit DX1", {"id": "stay"}, r"a.csv: lacks the column stay \(--id\); it has visit, DX1"),
        ("visit DX1", {"codes": "ICD*"}, r"a.csv: no column matches ICD\* \(--codes\); it has visit, DX1"),
        ("visit DX1", {"version": "ver"}, r"lacks the column ver \(--icd-version\)"),
        ("visit los", {}, r"lacks the column codes; .*\(--codes names them\)"),
        ("Report,,", {}, "is there a title above the header"),
        ("name DX1 DX2", {}, "lacks the column admission_id; --id names"),
    ],
)
def test_a_missing_column_raises_an_error_that_names_the_option(names, said, words):
    with pytest.raises(InputError, match=words):
        find_layout(names.split("," if "," in names else None), "a.csv", **said)


def test_columns_of_codes_that_are_not_read_are_named():
    names = ["visit_id", "main_diagnosis", "DX", "DX1", "DX2", "dx1poa", "I10_DX1", "los"]
    found = find_layout(names, "a.csv")
    assert found.codes == ("main_diagnosis", "DX1", "DX2")
    assert found.doubt.startswith("not read, although named like codes: DX, I10_DX1; --codes")
    assert find_layout(names, "a.csv", codes="DX*").doubt == ""  # the user named the columns
    frame = pd.DataFrame({"visit_id": [7], "codes": ["I50.9"], "principal_diagnosis": ["A41.9"]})
    with pytest.warns(UserWarning, match="principal_diagnosis"):
        as_admissions(frame, icd_version=10)


def forms() -> dict[str, pd.DataFrame]:
    ids = ["a", "b", "c", "d"]
    wide = pd.DataFrame([codes + [None] * (3 - len(codes)) for codes in CODES], columns=["DX1", "DX2", "DX3"])
    long = [(i, code) for i, codes in zip(ids, CODES) for code in codes or [None]]
    return {
        "wide": wide.assign(visit_id=ids),
        "list": pd.DataFrame({"visit_id": ids, "codes": CODES}),
        "text": pd.DataFrame({"visit_id": ids, "diagnoses": [" ".join(codes) for codes in CODES]}),
        "long": pd.DataFrame(long, columns=["visit_id", "dx"]),
    }


def read(batches) -> list:
    return [
        (part.ids[i], part.values[part.indices[part.offsets[i] : part.offsets[i + 1]]].tolist())
        for part in batches
        for i in range(len(part))
    ]


@pytest.mark.parametrize("form", ["wide", "list", "text", "long"])
def test_every_form_is_the_same_in_memory_and_in_every_file(tmp_path, form):
    frame = forms()[form]
    expected = [(i, [code.replace(".", "") for code in codes]) for i, codes in zip("abcd", CODES)]
    for data in (frame, pl.from_pandas(frame), pl.from_pandas(frame).lazy(), pa.Table.from_pandas(frame)):
        assert read([as_admissions(data)]) == expected
    frame.to_parquet(tmp_path / "a.parquet")
    files = ["a.parquet"]
    if form != "list":
        frame.to_csv(tmp_path / "a.csv", index=False)
        frame.to_excel(tmp_path / "a.xlsx", index=False)
        files += ["a.csv", "a.xlsx"]
    for name in files:
        assert read(streamed(tmp_path / name, batch=2)) == expected, name


def test_a_number_in_a_cell_of_codes_is_refused_unless_zeros_may_be_put_back(tmp_path):
    pd.DataFrame({"visit": [1, 2], "DX1": ["428.0", 38.9], "DX2": [8, None]}).to_excel(tmp_path / "a.xlsx", index=False)
    with pytest.raises(InputError, match=r"a.xlsx: column DX1, row 3: the cell is a number; .*\(--restore-zeros\)"):
        list(streamed(tmp_path / "a.xlsx"))
    found = read(streamed(tmp_path / "a.xlsx", restore_zeros=True))
    assert found == [(1, ["4280", "008"]), (2, ["0389"])]


@pytest.mark.parametrize("restore_zeros", [True, False])
def test_a_date_in_a_cell_of_codes_is_refused(tmp_path, restore_zeros):
    frame = pd.DataFrame({"visit": [1, 2], "DX1": ["I50.9", pd.Timestamp(2020, 1, 3)], "day": pd.Timestamp(2020, 1, 1)})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    with pytest.raises(InputError, match=r"a.xlsx: column DX1, row 3: the cell is a date; a code is needed\."):
        list(streamed(tmp_path / "a.xlsx", restore_zeros=restore_zeros))


def test_rows_of_codes_carry_what_their_admission_repeats(tmp_path):
    from mlci.codes.streams import stream_rows

    file = tmp_path / "a.csv"
    file.write_text("visit,dx,died\n1,I10,Y\n2,I50,N\n1,N17,Y\n")
    found, carried = zip(*stream_rows(file, carry=["died"]))
    assert read(found) == [(1, ["I10", "N17"]), (2, ["I50"])]
    assert [value for part in carried for value in part["died"].to_pylist()] == ["Y", "N"]
    file.write_text("visit,dx,died\n1,I10,Y\n1,N17,N\n")
    with pytest.raises(
        InputError, match=r"a.csv: column died, row 3: differs from an earlier row of the same admission"
    ):
        list(stream_rows(file, carry=["died"]))


def test_rows_of_codes_carry_lists_that_their_admission_repeats(tmp_path):
    from mlci.codes.streams import stream_rows

    rows = {"visit": [1, 1, 2], "dx": ["I10", "N17", "I50"], "wards": [["A", None], ["A", None], None]}
    pd.DataFrame(rows).to_parquet(tmp_path / "a.parquet")
    carried = [part for _, part in stream_rows(tmp_path / "a.parquet", carry=["wards"])]
    assert [value for part in carried for value in part["wards"].to_pylist()] == [["A", None], None]
    pd.DataFrame(rows | {"wards": [["A"], ["B"], None]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="column wards, row 2: differs from an earlier row of the same admission"):
        list(stream_rows(tmp_path / "a.parquet", carry=["wards"]))


def test_missing_is_missing_however_it_is_written():
    frame = pd.DataFrame(
        {"visit": [1], "DX1": ["?"], "DX2": ["NULL"], "DX3": [np.nan], "DX4": ["I10"], "DX5": ["none"]}
    )
    assert read([as_admissions(frame)]) == [(1, ["I10"])]


def test_columns_of_codes_keep_their_order_whatever_their_dictionaries(tmp_path):
    from pyarrow import parquet

    table = pa.table(
        {
            "visit": [1, 2, 3, 4, 5],
            "DX1": ["I10", None, "E119", "I10", "N179"],
            "DX2": pa.nulls(5, pa.string()),
            "DX3": ["N179", "I10", None, None, "A047"],
            "DX4": pa.array(["I10", None, "N179", "J449", None]).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    found = read(streamed(tmp_path / "a.parquet", icd_version=10, batch=2))
    expected = [["I10", "N179", "I10"], ["I10"], ["E119", "N179"], ["I10", "J449"], ["N179", "A047"]]
    assert found == list(zip(range(1, 6), expected))
    assert read([as_admissions(table.slice(1), icd_version=10)]) == found[1:]


@pytest.mark.slow
def test_a_column_per_code_costs_little_more_than_one_of_text(tmp_path):
    import time

    rng = np.random.default_rng(0)
    lists = [
        [f"I{number:02d}.{number % 10}" for number in rng.integers(0, 100, size)]
        for size in rng.integers(1, 26, 60_000)
    ]
    pd.DataFrame({"id": range(len(lists)), "codes": [" ".join(codes) for codes in lists]}).to_csv(
        tmp_path / "text.csv", index=False
    )
    padded = [codes + [None] * (25 - len(codes)) for codes in lists]
    wide = pd.DataFrame(padded, columns=[f"DX{place}" for place in range(1, 26)])
    wide.assign(id=range(len(lists))).to_csv(tmp_path / "wide.csv", index=False)

    def seconds(name: str) -> float:
        best = np.inf
        for _ in range(3):
            start = time.process_time()
            assert sum(map(len, streamed(tmp_path / name))) == len(lists)
            best = min(best, time.process_time() - start)
        return best

    assert seconds("wide.csv") <= 1.5 * seconds("text.csv")


@pytest.mark.parametrize(
    "asked", [{}, {"codes": "DX*"}, {"codes": "Smith", "id": "visit"}, {"codes": "Smith", "version": "dxver"}]
)
def test_a_message_does_not_repeat_a_first_line_that_is_a_row(asked):
    with pytest.raises(InputError, match="5 cells that look like a row, not like a header") as found:
        find_layout(["1001", "I50.9", "N17.9", "Smith", "Ann"], "visits.csv", **asked)
    assert "Ann" not in str(found.value)
