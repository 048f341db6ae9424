"""Which codes are carried and for how long: comorbidities, or the codes of a table."""

import numpy as np
import pandas as pd
import pytest

import mlci
from mlci.codes.carrying import read_carry

VISITS = pd.DataFrame(
    {
        "visit_id": [1, 2, 3],
        "mrn": [7, 7, 7],
        "admitted": ["2020-01-01", "2020-02-01", "2021-06-01"],
        "codes": [["I25.2", "J18.9", "N17.9"], ["Z00.00"], ["Z00.01"]],
        "died": [0, 0, 1],
    }
)


def carried(**options) -> list[list[str]]:
    cohort = mlci.Cohort.from_frame(VISITS, icd_version=10, subject="mrn", look_back=3650, **options)
    return [codes[1:] for codes in cohort.table["codes"].to_pylist()[1:]]


def test_comorbidities_stay_and_other_codes_do_not(tmp_path):
    assert carried() == [["I252", "J189", "N179"], ["Z0000", "I252", "J189", "N179"]]
    assert carried(carry="comorbidities") == [["I252"], ["I252"]]
    listed = read_carry("comorbidities")
    assert (listed.reach(np.array(["412", "486", "25000", "5849"]), 9) > 0).tolist() == [True, False, True, False]
    cohort = mlci.Cohort.from_frame(VISITS, icd_version=10, subject="mrn")
    again = cohort.looking_back(3650, carry="comorbidities")
    assert [codes[1:] for codes in again.table["codes"].to_pylist()[1:]] == [["I252"], ["I252"]]
    assert (
        again.notes[-1] == "look-back of 3650 days (comorbidities alone): 2 admissions carry 2 codes of earlier ones."
    )


def test_a_table_states_how_long_each_code_is_carried(tmp_path):
    table = tmp_path / "carry.csv"
    table.write_text("code,days\nJ,90\nj18.9,365\nN17,0\nZ00,400\n")
    assert carried(carry=table) == [["I252", "J189"], ["I252"]]  # Z00.00 began 486 days before
    table.write_text("days,code\n0,*\n500,Z\n")
    assert carried(carry=table) == [[], ["Z0000"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("code\nJ\n", "carry.csv: lacks the column days; it has code"),
        ("code,days\nJ,soon\n", "carry.csv: column days, row 2: is not a number of days"),
        ("code,days\nJ4,1\nI5,2\nj4.,3\n", "carry.csv: column code, row 4: repeats that of an earlier row"),
        ("code,days\nJ,1\n,1\n", "carry.csv: column code, row 3: is empty"),
        ("code,days\n", "carry.csv: has no rows"),
    ],
)
def test_a_table_that_cannot_do(tmp_path, text, words):
    (tmp_path / "carry.csv").write_text(text)
    with pytest.raises(mlci.InputError, match=words):
        carried(carry=tmp_path / "carry.csv")
    with pytest.raises(mlci.InputError, match="carry needs a look_back: it says which codes are carried"):
        mlci.Cohort.from_frame(VISITS, icd_version=10, carry="comorbidities")
