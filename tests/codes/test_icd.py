import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlci
from conftest import SHARED
from mlci.base.errors import InputError
from mlci.codes import icd
from oracles import digest

# sha256 of version, code, title and whether it is billable, as published
PUBLISHED = "9b5570114298e94b44c9419cd317ddad9a613c543d6033f4d1a30c564873e794"


def test_full_width_letters_and_digits_are_those_of_a_code():
    assert icd.normalise("Ｉ５０．９") == "I509"
    assert icd.normalise_array(pa.array(["ｉ50．９", None, "I10"])).to_pylist() == ["I509", None, "I10"]
    assert mlci.charlson(pd.DataFrame({"visit_id": [1], "DX1": ["Ｉ５０．９"]}))["cci_charlson"].tolist() == [1]


def test_normalise():
    assert [icd.normalise(code) for code in (" i50.9", "E11 9  ", "V45.81", "486--", "038.9", ".")] == [
        *("I509", "E119", "V4581", "486", "0389", "")
    ]


@given(st.lists(st.one_of(st.none(), st.text(max_size=8), st.from_regex(r"[ a-zA-Z0-9.\-]{0,8}"))))
def test_array_form_is_the_plain_form_and_repeating_it_changes_nothing(codes):
    found = icd.normalise_array(pa.array(codes, pa.string()))
    assert found.to_pylist() == [None if code is None else icd.normalise(code) for code in codes]
    assert icd.normalise_array(found).equals(found)


def test_bundled_titles_are_the_published_ones():
    bundled = [
        (version, row["code"], row["title"], row["billable"])
        for version in icd.VERSIONS
        for row in icd.icd_table(version).to_pylist()
    ]
    assert digest(bundled) == PUBLISHED
    if (file := SHARED / "icd_titles.parquet").exists():
        rows = pq.read_table(file).to_pylist()
        assert digest((row["version"], row["code"], row["long"], bool(row["billable"])) for row in rows) == PUBLISHED


def test_title():
    assert icd.title("i50.9", 10) == "Heart failure, unspecified"
    assert icd.title("428.0", 9) == "Congestive heart failure, unspecified"
    assert icd.title("428.0", 10) is None
    assert icd.title("V42.0", 9) == "Kidney replaced by transplant"
    assert icd.title("V42.0", 10).startswith("Car driver injured")
    with pytest.raises(InputError, match="ICD version 11 is not known; allowed are 9 and 10"):
        icd.title("I509", 11)


def test_known():
    codes = ["I509", "4280", "", "389", "0389"]
    assert icd.known(codes, 10).tolist() == [True, False, False, False, False]
    assert icd.known(np.array(codes, dtype=object), 9).tolist() == [False, True, False, False, True]
    assert icd.known([], 9).tolist() == []


def test_printed_form():
    assert [icd.dotted(code, 10) for code in ("I509", "I10", "E1165", "")] == ["I50.9", "I10", "E11.65", ""]
    assert [icd.dotted(code, 9) for code in ("4280", "V420", "E8809", "E880")] == ["428.0", "V42.0", "E880.9", "E880"]
