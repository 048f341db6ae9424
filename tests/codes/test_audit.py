"""Invalid codes are reported by kind and counted, but never changed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from mlci.cli import cli
from mlci.codes.audit import KINDS, audit, findings


@pytest.mark.parametrize(
    ("version", "code", "kind"),
    [
        (10, "I509", None),
        (10, "I50", "heading"),
        (10, "E1165", None),
        (10, "E116", "heading"),  # a digit was lost, or never written
        (10, "4280", "other"),
        (10, "I5091", "long"),
        (10, "QQQ", "unknown"),
        (10, "I5A", "newer"),  # of 2022
        (9, "4280", None),
        (9, "428", "heading"),
        (9, "38", "zero"),
        (9, "I509", "other"),
        (9, "42800", "long"),
        (9, "0000", "unknown"),
    ],
)
def test_each_kind_of_finding_is_reported(version, code, kind):
    company = ["4280", "4019", "25000"] if version == 9 else ["I10", "E119"]
    codes = pa.array(list(dict.fromkeys([code, *company])))
    found = {item.code: item.kind for item in findings(codes, np.ones(len(codes), dtype=int), version)}
    assert found == ({} if kind is None else {code: kind})
    assert kind is None or kind in KINDS


@pytest.mark.parametrize(("version", "longest"), [(9, "E9170"), (10, "S72001A")])
def test_codes_longer_than_any_are_a_doubt_however_few(version, longest):
    codes = pa.array([longest, longest + "1"])
    (sentence,) = audit(codes, np.array([99, 1]), version).warnings
    assert sentence.startswith(f"1 of 100 codes are longer than any ICD-{version} code;")


def test_command_writes_what_it_found_and_hides_small_numbers(tmp_path):
    codes = ["I50.9"] * 30 + ["I50"] * 12 + ["QQQ"] * 3
    frame = pd.DataFrame({"visit_id": range(len(codes)), "codes": codes})
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["indices", str(tmp_path / "a.csv"), "-o", str(tmp_path / "s.csv"), "--icd-version", "10", "-q"]
    done = CliRunner().invoke(cli, [*words, "--audit", str(tmp_path / "audit.csv")], catch_exceptions=False)
    table = pd.read_csv(tmp_path / "audit.csv")
    assert table[["code", "recorded", "kind"]].to_numpy().tolist() == [
        ["I50", "12", "heading"],
        ["QQQ", "under 10", "unknown"],
    ]
    assert "12 codes (1 different): a heading" in done.output
    plain = CliRunner().invoke(cli, [*words, "--audit", "-"], catch_exceptions=False)
    assert plain.stdout.splitlines()[0] == '"icd_version","code","recorded","kind","words","valid"'
    frame[:30].to_csv(tmp_path / "a.csv", index=False)
    clean = CliRunner().invoke(cli, [*words, "--audit", str(tmp_path / "audit.csv")], catch_exceptions=False)
    assert clean.output.startswith("audit: 30 of 30 codes belong to admissions without a date")
    assert pd.read_csv(tmp_path / "audit.csv").empty


def test_codes_of_other_years_are_reported(tmp_path):
    rows = [
        ("2018-03-01", 10, "U07.1", 12),  # of 2020
        ("2020-12-31", 10, "U07.1", 20),
        ("2014-06-01", 10, "I50.9", 11),  # ICD-10-CM began in 2015
        ("2015-01-01", 10, "I50.9", 5),  # within the year that it began
        ("2016-01-01", 9, "428.0", 13),  # ICD-9-CM ended in 2015
        ("2150-01-01", 9, "428.0", 40),  # a shifted date says nothing
        ("", 10, "E11.9", 10),
        ("2023-01-01", 10, "U09.9", 15),  # newer than the lists, and valid
    ]
    rows = [row[:3] for row in rows for _ in range(row[3])]
    frame = pd.DataFrame(rows, columns=["came", "icd_version", "codes"]).reset_index(names="visit_id")
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["indices", str(tmp_path / "a.csv"), "-o", str(tmp_path / "s.csv"), "-q", "--admitted", "came"]
    done = CliRunner().invoke(cli, [*words, "--audit", str(tmp_path / "audit.csv")], catch_exceptions=False)
    table = pd.read_csv(tmp_path / "audit.csv")
    assert {tuple(row) for row in table[["code", "recorded", "kind", "valid"]].to_numpy()} == {
        ("U071", 12, "year", "from 2020"),
        ("I509", 11, "year", "from 2015"),
        ("4280", 13, "year", "to 2015"),
        ("U099", 15, "newer", "from 2021"),
    }
    assert "audit: 36 codes (3 different): not valid in the year of the admission" in done.output
    assert "audit: 50 of 126 codes belong to admissions without a date up to 2026" in done.output
