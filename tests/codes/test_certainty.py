"""German letters of certainty: suspected and ruled-out codes are left out and reported; each code is read alone."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlci
from mlci.codes import icd
from mlci.codes.admissions import as_admissions
from mlci.codes.certainty import attached, notes, read_letters
from mlci.codes.comorbidity import Coder, charlson
from mlci.codes.years import added


def read(data, version=10):
    found = as_admissions(data, icd_version=version)
    ends = zip(found.offsets, found.offsets[1:])
    return [found.values[found.indices[start:end]].tolist() for start, end in ends], found.unsure


def frames(cells):
    visits = {"visit_id": range(len(cells))}
    wide = pd.DataFrame({**visits, "DX1": cells, "DX2": None}, dtype=str)
    long = pd.DataFrame({**visits, "code": cells})
    text = pd.DataFrame({**visits, "codes": cells})
    lists = pl.DataFrame({**visits, "codes": [[cell] for cell in cells]})
    plain = [[cell] for cell in cells]
    return [wide, pl.from_pandas(wide), long, text, text.astype({"codes": "category"}), lists, plain]


@pytest.mark.parametrize(
    ("cell", "codes", "unsure"),
    [
        ("I50.9 G", ["I509"], 0),
        ("I50.9\u00a0Z;", ["I509"], 0),
        ("I21.4 A", [], 1),
        ("i21.4  v", [], 1),
        ("E11.90+ V", [], 1),  # of five characters, as ICD-10-CM has none
        ("I50.9 A; N17.9 V", [], 2),
        ("I50.9 G; I21.4 A, N17.9 v", ["I509"], 2),
        ("I50.9 G N17.9 Z E11.9 A", ["I509", "N179"], 1),
        ("I21.4 A Myokardinfarkt", [], 1),
        ("I50.9 Herzinsuffizienz; N17.9 A", ["I509"], 1),
        ("S72.001 A", ["S72001A"], 0),  # ICD-10-CM: the first encounter
        ("S72.001 A I50.9", ["S72001A", "I509"], 0),
        ("T36.0X1 A; I50.9 V", ["T360X1A"], 1),
        ("C84 A", ["C84A"], 0),  # a heading of ICD-10-CM
        ("E11 A", ["E11A"], 0),  # one that came later
        ("I50.9G I21.4A I48.9B N17.9", ["I509G", "I214A", "I489B", "N179"], 0),
    ],
)
def test_every_layout_leaves_out_what_is_suspected_or_ruled_out(cell, codes, unsure):
    for data in frames([cell]):
        assert read(data) == ([codes], unsure)


def test_a_letter_in_a_cell_of_its_own_is_no_certainty():
    assert read([["I50.9", "A"]]) == ([["I509", "A"]], 0)  # a list says what its codes are
    assert read(pd.DataFrame({"visit_id": [1], "DX1": ["I50.9"], "DX2": ["A"]})) == ([["I509", "A"]], 0)
    assert read(pd.DataFrame({"visit_id": [1], "codes": ["I50.9; A"]})) == ([["I509"]], 0)


def test_icd_9_has_no_letters():
    assert read([["V45 A"]], 9) == ([["V45A"]], 0)
    for cell in ("V45 A 428.0", "V45 A Pacemaker 428.0"):
        for data in frames([cell])[:5]:
            assert read(data, 9) == read(frames([cell.replace(" A", "")])[0], 9)


CELLS = ["I50.9 A", "I50.9A", "I48.9B", "N17.9 g", "I10", "S72.001 A", "C84 A", "E11.2D", "I50.9; A", "V45.1 V I10"]
CELLS += [
    "I50.9 G Herzinsuffizienz; N17.9 V",
    "I50.9 A deficiency",
    "I21.4 Infarct A",
    "",
    "A",
    "I50.9\u00a0V",
    "I10 \u00a0v",
    "I21.4\u00a0A|V",
    "I21 A1",
]


@given(st.lists(st.sampled_from(CELLS), min_size=1, max_size=6), st.sampled_from([9, 10]))
def test_an_admission_is_read_the_same_alone_and_with_others(cells, version):
    for together, *alone in zip(frames(cells), *(frames([cell]) for cell in cells)):
        codes, unsure = zip(*(read(data, version) for data in alone))
        assert read(together, version) == ([admission for part in codes for admission in part], sum(unsure))


@given(
    st.lists(st.sampled_from(["I50.9 A", "I50.9A", "I48.9B", "N17.9 g", "S72.001 A", "C78.0V", "E11.2"]), min_size=1)
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_admission_is_scored_the_same_alone_and_with_others(codes):
    scores = charlson([[code] for code in codes])["cci_charlson"].tolist()
    assert scores == [charlson([[code]])["cci_charlson"].tolist()[0] for code in codes]


@given(st.sampled_from([*icd.all_codes(10).to_pylist()[::97], *list(added())[::7], "C84A", "I824Z"]))
def test_a_blank_before_the_last_letter_does_not_change_a_code_of_icd_10_cm(code):
    found, unsure = read_letters(pa.array([f"{code[:-1]} {code[-1]}"]))
    assert (icd.normalise(found[0].as_py()), unsure.any()) == (code, False)
    assert not len(attached(np.array([code], dtype=object)))


def test_each_recorded_code_is_counted_and_flags_stay_with_their_codes():
    lists = pd.DataFrame({"visit_id": [1, 2], "codes": ["I21.4 A I50.9 G", "I21.4 A"], "poa": [["Y", "N"], ["Y"]]})
    found = as_admissions(lists, icd_version=10, poa="any")
    assert found.unsure == 2
    assert found.poa is not None
    assert found.poa.tolist() == [2]


@pytest.mark.parametrize(
    ("codes", "doubts"),
    [
        (["I50.9A", "I50.9G", "M17.1R"], 1),
        (["I50.9G"], 0),
        (["I48.9A", "I48.9B"], 0),  # Swedish
        (["I50.9A", "E11.2D"], 0),  # English
        (["C84.A", "S72.001A", "E11.A"], 0),  # ICD-10-CM
    ],
)
def test_attached_letters_that_may_be_german_are_reported(codes, doubts):
    coder = Coder()
    coder(as_admissions([codes, ["N17.9"]], icd_version=10))
    assert [note.partition(",")[0] for note in coder.letter_notes()] == ["1 code ends in A or V"] * doubts


def test_python_and_every_command_report_it(mlci_cli, tmp_path):
    visits = tmp_path / "visits.csv"
    visits.write_text("visit_id,codes,died\n1,I50.9 G I21.4 A,1\n2,E11.90 G N17.9V,0\n")
    with pytest.warns(UserWarning, match="1 code is marked as suspected"):
        assert charlson([["I50.9 G", "I21.4 A"]])["cci_charlson"].tolist() == [1]
    index = mlci.load("us2010")
    with pytest.warns(UserWarning, match="1 code is marked as suspected"):
        score = index.score([["I50.9", "I21.4 A"]], icd_version=10)
    np.testing.assert_array_equal(score, index.score([["I50.9"]], icd_version=10))
    with pytest.warns(UserWarning, match="1 code is marked as suspected"):
        assert [effect.code for effect in index.explain(["I50.9", "I21.4 A"], icd_version=10)] == ["I509"]
    for command in (["score", "us2010"], ["explain", "us2010"], ["indices"], ["cohort", "file"]):
        out = tmp_path / f"{command[0]}.parquet"
        done = mlci_cli(*command, str(visits), "-o", str(out), "--icd-version", "10")
        for note in notes(1, {"N179V": 1}):
            assert note in " ".join((done.stdout + done.stderr).split()), done
    assert [len(codes) for codes in mlci.read_cohort(tmp_path / "cohort.parquet").table["codes"].to_pylist()] == [1, 2]
