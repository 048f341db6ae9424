"""Flags of what was present on admission are read in every layout, and count as for Medicare and AHRQ."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import mlci
from mlci.cli import cli
from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.layout import find_layout
from mlci.codes.poa import flag_columns
from toys import streamed

CODES = [["I50.9", "T81.4XXA", "E11.9"], ["I50.9"], [], ["I21.9", "E11.9"]]
FLAGS = [["Y", "N", "1"], ["u"], [], ["W", ""]]
PRESENT = [["I509", "E119"], [], [], ["I219", "E119"]]


def wide() -> pd.DataFrame:
    def cells(rows: list[list[str]]) -> list[list[str | None]]:
        return [[*row, *[None] * (3 - len(row))] for row in rows]

    codes = pd.DataFrame(cells(CODES), columns=["DX1", "DX2", "DX3"])
    flags = pd.DataFrame(cells(FLAGS), columns=["DXPOA1", "DXPOA2", "DXPOA3"])
    return pd.concat([pd.DataFrame({"visit": [1, 2, 3, 4], "died": [1, 0, 0, 1]}), codes, flags], axis=1)


def long() -> pd.DataFrame:
    rows = [(visit, *pair) for visit, codes in enumerate(CODES, 1) for pair in zip(codes, FLAGS[visit - 1])]
    rows.insert(2, (3, None, None))
    return pd.DataFrame(rows, columns=["visit", "code", "poa"])


def lists() -> pd.DataFrame:
    return pd.DataFrame({"visit": [1, 2, 3, 4], "codes": CODES, "poa": FLAGS})


def read(batches) -> dict[int, list[str]]:
    found = {}
    for part in batches:
        texts = part.values[part.indices]
        found |= {int(key): texts[a:b].tolist() for key, a, b in zip(part.ids, part.offsets, part.offsets[1:])}
    return found


@pytest.mark.parametrize("form", [wide, long, lists])
@pytest.mark.parametrize("ending", ["csv", "parquet", ""])
def test_what_arose_later_is_left_out_whatever_the_layout(tmp_path, form, ending):
    frame = form()
    if ending == "":
        batches = [as_admissions(frame, icd_version=10, poa="only")]
    else:
        if form is lists and ending == "csv":
            frame = frame[:2].assign(
                codes=[" ".join(row) for row in CODES[:2]], poa=[" ".join(row) for row in FLAGS[:2]]
            )
        file = tmp_path / f"a.{ending}"
        frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)
        batches = list(streamed(file, icd_version=10, poa="only"))
    expected = dict(enumerate(PRESENT, 1))
    found = read(batches)
    assert found == {key: expected[key] for key in found}
    assert len(found) in (2, 4)
    assert sum(part.late for part in batches) == 2


def test_the_flags_travel_with_the_cohort_file(tmp_path):
    cohort = mlci.Cohort.from_frame(wide(), icd_version=10, outcomes={"mortality": "died"})
    assert cohort.table["poa"].to_pylist() == [["Y", "N", "1"], ["U"], ["W", None]]
    assert any(note.startswith("2 of 6 codes arose after admission") for note in cohort.notes)
    cohort.write(tmp_path / "c.parquet")
    again = mlci.read_cohort(tmp_path / "c.parquet")
    assert again.present().table["codes"].to_pylist() == [["I509", "E119"], [], ["I219", "E119"]]
    assert read([again.admissions(poa="only")]) == read([as_admissions(again, poa="only")])
    kept = again.admissions(poa="keep")
    assert kept.poa.tolist() == [1, 2, 5, 3, 4, 0]
    odd = again.table.set_column(again.table.column_names.index("poa"), "poa", pa.array([["Y"], ["U"], ["W", None]]))
    pa.parquet.write_table(
        odd.replace_schema_metadata(pa.parquet.read_schema(tmp_path / "c.parquet").metadata), tmp_path / "d.parquet"
    )
    with pytest.raises(mlci.InputError, match="column poa, row 1: has other than one flag for each code"):
        mlci.read_cohort(tmp_path / "d.parquet")


def test_columns_of_flags_are_no_columns_of_codes():
    names = ["visit", "DX1", "DX2", "DX1_POA", "DX2_POA"]
    assert find_layout(names, "a", id="visit", codes="DX*").codes == ("DX1", "DX2")
    assert find_layout(names, "a", id="visit", poa="keep").poa == ("DX1_POA", "DX2_POA")
    assert flag_columns(["ICD_DGNS_CD1", "ICD_DGNS_CD2", "CLM_POA_IND_SW1"], ["ICD_DGNS_CD1", "ICD_DGNS_CD2"]) == (
        "CLM_POA_IND_SW1",
        "",
    )
    assert flag_columns(["DX1", "DX2"], ["DX1", "DX2"]) == ()


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            wide().assign(DXPOA2=["N", "Q", None, None]),
            "column DXPOA2, row 2: text of 1 character is not Y, N, U, W or 1",
        ),
        (wide().drop(columns=["DXPOA1", "DXPOA2", "DXPOA3"]), "has no flags of what was present on admission"),
        (lists().assign(poa=[["Y"], ["U"], [], ["W", ""]]), "column poa, row 1: has 1 flags for 3 codes"),
    ],
)
def test_what_is_no_flag_is_refused(frame, words):
    with pytest.raises(mlci.InputError, match=words):
        as_admissions(frame, icd_version=10, poa="only")


def test_ahrq_counts_chronic_diseases_in_any_case():
    frame = pd.DataFrame(
        {"visit": [1, 2], "codes": [["I50.9", "E11.9"], ["I50.9", "E11.9"]], "poa": [["N", "N"], ["W", "U"]]}
    )
    assert mlci.charlson(frame, poa="all")["cci_charlson"].tolist() == [2, 2]
    assert mlci.charlson(frame, poa="only")["cci_charlson"].tolist() == [0, 1]
    assert mlci.charlson(frame, poa="ahrq")["cci_charlson"].tolist() == [1, 2]  # diabetes is chronic, failure may arise
    assert mlci.elixhauser(frame, poa="ahrq")["eci_vw"].tolist() == [0, 7]
    with pytest.raises(mlci.InputError, match="poa 'some' is not known; allowed are all, only and ahrq"):
        mlci.charlson(frame, poa="some")


def test_indices_of_what_was_present(tmp_path):
    wide().to_csv(tmp_path / "a.csv", index=False)
    scores = {}
    for poa in ("all", "only", "ahrq"):
        words = ["indices", str(tmp_path / "a.csv"), "-o", str(tmp_path / "s.csv"), "--icd-version", "10", "--poa", poa]
        done = CliRunner().invoke(cli, words, catch_exceptions=False)
        scores[poa] = pd.read_csv(tmp_path / "s.csv")["cci_charlson"].tolist()
        assert ("2 codes arose after admission" in done.output) == (poa != "all")
    assert scores == {"all": [2, 1, 0, 2], "only": [2, 0, 0, 2], "ahrq": [2, 0, 0, 2]}


def test_a_message_names_the_row_of_a_flag_in_a_list():
    frame = pd.DataFrame({"visit": [1, 2], "codes": [["I50.9", "E11.9"], ["I50.9"]], "poa": [["Y", "N"], ["Q"]]})
    with pytest.raises(mlci.InputError, match="column poa, row 2: text of 1 character"):
        as_admissions(frame, icd_version=10, poa="only")


def test_flags_go_with_their_admissions():
    whole = replace(Admissions.from_lists([["A", "B"], ["C"], ["A"]]), poa=np.array([1, 2, 3, 4], dtype=np.uint8))
    assert whole.take(np.array([2, 0])).poa.tolist() == [4, 1, 2]
    assert whole.keep(np.array([True, False, True])).poa.tolist() == [1, 3, 4]
