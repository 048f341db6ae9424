import csv
import time

import pytest

from mlci.codes import icd
from mlci.codes.search import search


@pytest.mark.parametrize(
    ("query", "ten", "nine"),
    [
        ("copd", "J449", "496"),
        ("CHF", "I509", "4280"),
        ("mi", "I219", "41090"),
        ("aki", "N179", "5849"),
        ("afib", "I4891", "42731"),
        ("stroke", "I639", "43491"),
        ("heart attack", "I219", "41090"),
        ("sepsys", "A419", "0389"),
        ("pnuemonia", "J189", "486"),
        ("heart failure", "I509", "4280"),
        ("failure HEART", "I509", "4280"),
        ("acute mi", "I219", "41181"),
        ("chf exacerbation", "I509", "4280"),
        ("I50.9", "I509", None),
        ("428", None, "4280"),
        ("zzzz", None, None),
    ],
)
def test_what_people_type_finds_what_they_mean(query, ten, nine):
    for version, wanted in ((10, ten), (9, nine)):
        first = next(iter(search(query, version, limit=1)), None)
        assert (first and first.code) == wanted


def test_every_everyday_name_has_a_billable_code_and_is_found():
    with open(icd.DATA / "synonyms.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["term"] for row in rows}) == len(rows) > 100
    for version in icd.VERSIONS:
        billable = dict(zip(icd.icd_table(version)["code"].to_pylist(), icd.icd_table(version)["billable"].to_pylist()))
        assert all(billable[row[f"icd{version}"]] for row in rows if row[f"icd{version}"])
        for row in rows[::15]:
            assert search(row["term"], version, limit=1)[0].code == row[f"icd{version}"]


def test_codes_that_can_be_recorded_come_before_headings():
    found = search("I50", 10, limit=100)
    assert [code.billable for code in found] == sorted((code.billable for code in found), reverse=True)
    assert {code.code for code in found} >= {"I50", "I509"}
    assert [code.code for code in search("I5", 10, limit=3)] == ["I501", "I5020", "I5021"]


def test_limits_and_nonsense():
    assert search("", 10) == search(" .,", 10) == search("no such words", 10) == []
    assert search("heart", 10, limit=0) == []
    assert len(search("fracture", 10, limit=7)) == 7
    assert search("(heart", 10)[0].title == search("heart", 10)[0].title
    start = time.process_time()
    search(" ".join(f"qwx{i}zzyy" for i in range(20)), 10)
    assert time.process_time() - start < 5
