"""Stripped codes are recognised and restored on demand; headings are not mistaken for them."""

import pyarrow as pa
import pytest

import mlci
from mlci.codes import icd, zeros
from mlci.codes.admissions import as_admissions
from mlci.codes.comorbidity import Coder


def test_headings_are_not_read_as_stripped_codes():
    headings = ["401", "599", "428", "250", "414", "486", "276", "427", "V58", "E880"]
    assert not zeros.stripped(pa.array(headings)).any()
    coder = Coder()
    coder(as_admissions([headings], icd_version=9))
    (audit,) = coder.audit()
    assert (audit.unknown, audit.other, audit.zeros, audit.warnings) == (0, 0, 0, [])


def test_short_codes_are_seen_among_headings():
    assert zeros.stripped(pa.array(["38", "41", "8", "401", "599"])).tolist() == [True, True, True, False, False]
    with pytest.warns(UserWarning, match=r"2 of 3 ICD-9 codes lack a leading zero .*--restore-zeros"):
        mlci.charlson([["38.9", "41.0", "401.9"]], icd_version=9)


def test_a_stripped_table_of_whole_codes_comes_back_whole():
    whole = ["0389", "0088", "07054", "0529", "042", "4019", "42731", "25000", "5849", "486", "V5861", "E8809"]
    assert zeros.restored(pa.array([code.lstrip("0") for code in whole])).to_pylist() == whole
    dotted = [icd.dotted(code, 9) for code in icd.all_codes(9).to_pylist() if code[0] == "0" and len(code) > 3]
    found = zeros.restored(pa.array([code.lstrip("0") for code in dotted])).to_pylist()
    assert found == [code.replace(".", "") for code in dotted]  # the dot leaves no doubt


def test_headings_stay_where_zeros_are_put_back():
    said = ["401", "599", "428", "250.83", "38", "8", "V58", "414"]
    assert zeros.restored(pa.array(said)).to_pylist() == ["401", "599", "428", "25083", "038", "008", "V58", "414"]
