from dataclasses import replace

import numpy as np
import pytest

import mlci
from mlci import MLCI
from mlci.codes.admissions import Admissions, as_admissions
from mlci.index.tally import Tally
from toys import random_model


def test_unknown_codes_are_counted():
    model = random_model()
    admissions = as_admissions([["A000", "ZZZ9"], [], ["ZZZ8"], ["A00.0X"]], icd_version=10)
    np.testing.assert_array_equal(model.columns(admissions)["unknown_share"], [0.5, np.nan, 1, 0])

    def warnings_for(admissions):
        return Tally(model).add(admissions).warnings()

    assert warnings_for(as_admissions([["A000", "ZZZ9"], []], icd_version=10)) == []
    assert warnings_for(admissions)[0].startswith("in 1 of 4 admissions, fewer than half of the codes are understood")
    messages = warnings_for(as_admissions([["ZZZ9"], ["A000", "ZZZ8"]], icd_version=9))
    assert len(messages) == 4
    assert "3 of 3 codes are ICD-9; the model was made for ICD-10" in messages[0]
    assert "1 of 3 codes were read as ICD-9, but only the table of ICD-10 has them" in messages[1]
    assert "unknown" in messages[2]


@pytest.mark.parametrize(
    ("codes", "version", "often"),
    [
        (["428.0", "486", "I50.9"], 10, "2 of 3 codes were read as ICD-10, but only the table of ICD-9 has them"),
        (["I50.9", "N17.9"], 9, "2 of 2 codes were read as ICD-9, but only the table of ICD-10 has them"),
        (["E880.9", "V10", "428.0"], 9, ""),  # that ICD-10 has V10 too does not count
        (["I50.9", "ZZZ9", "XXX1"], 10, ""),  # of neither version
        (["I50.9"] * 20 + ["428.0"], 10, ""),  # a slip in one code, not in the file
        (["I50.9"] * 19 + ["428.0"], 10, "1 of 20 codes"),
    ],
)
def test_codes_of_the_other_icd_version_are_reported(codes, version, often):
    tally = Tally(mlci.load("us2010").model_).add(as_admissions([codes], icd_version=version))
    said = [sentence for sentence in tally.problems() if "is the ICD version right?" in sentence]
    assert len(said) == (often > "")
    assert all(often in sentence for sentence in said)


def test_codes_beyond_the_first_that_count_are_reported():
    model = random_model()
    most = model.vocabulary.max_codes
    lists = [["A000"] * most, ["A000"] * (most + 1), []]
    tally = Tally(model).add(as_admissions(lists, icd_version=10))
    assert (tally.overlong, tally.empty) == (1, 1)
    assert tally.problems() == [f"1 of 3 admissions have more than {most} codes: the first {most} count."]
    assert Tally(model).add(as_admissions(lists[:1], icd_version=10)).problems() == []


def test_codes_longer_than_any_code_are_reported():
    """Such as SNOMED's 195967001, asthma, of which ICD-9 reads 195, a cancer."""
    index = mlci.load("us2010")
    with pytest.warns(UserWarning, match=r"1 of 3 codes are longer than any code of their ICD version; each counts as"):
        index.score([["195967001", "E880.9", "428.0"]], icd_version=9)
    tally = Tally(index.model_).add(as_admissions([["I50.9", "S72.001A", "ZZZ99999"]], icd_version=10))
    assert tally.lengthy == 0  # the last one is unknown, and reported as that
    own = MLCI().fit([["WARD0001"], ["WARD0002"]] * 20, {"mortality": [1, 0] * 20}, icd_version=10)
    tally = Tally(own.model_).add(as_admissions([["WARD0001", "WARD00025"]], icd_version=10))
    assert tally.lengthy == 1  # the first one is a code of the hospital that the model knows as a whole


def test_suspected_and_excluded_diagnoses_are_reported():
    admissions = as_admissions([["A000", "I21.4 A"], ["I50.9V"]], icd_version=10)
    tally = Tally(random_model()).add(admissions).add(admissions)
    assert (tally.codes, tally.unsure) == (4, 2)
    assert tally.problems()[0].startswith("2 codes are marked as suspected (V) or ruled out (A)")
    assert tally.problems()[1].startswith("2 codes end in A or V, and count as present")
    swedish = as_admissions([["I48.9B"]], icd_version=10)
    assert "end in A or V" not in " ".join(tally.add(swedish).problems())


def test_batches_that_share_their_codes_may_differ_in_icd_version():
    ten = Admissions.from_lists([["7", "7"]], icd_version=10)
    nine = replace(ten, versions=np.full_like(ten.versions, 9))  # the same array of codes: a zero is lost here alone
    model = random_model()
    assert Tally(model).add(ten).add(nine).stripped == Tally(model).add(nine).stripped == 2
