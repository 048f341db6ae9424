"""The effect of present-on-admission flags, on a hospital with a known share of later severity."""

import numpy as np
import pandas as pd
import pytest

import mlci
from mlci.codes.outcome import GRADES, telling_codes
from mlci.judging._changes import published
from mlci.judging.present import ALL, PRESENT, UNTOLD, compare_codes
from mlci.tokens import telling, without


@pytest.fixture(scope="module")
def hospital() -> mlci.Cohort:
    return mlci.build_cohort("synthetic", 6_000, seed=5, later_share=0.4)


def test_an_index_of_all_codes_loses_without_later_codes(hospital):
    def truth(train, judged):
        """Return the true severity for all codes, and that at admission for codes present on admission."""
        only_present = "poa" not in judged.table.column_names or judged.present().table.equals(judged.table)
        name = "true_severity_at_admission" if only_present else "true_severity"
        return train.column(name), judged.column(name)

    table = compare_codes(hospital, {"truth": truth}, resamples=40).set_index(["metric", "outcome", "codes"])
    for outcome in ("long_stay", "icu_transfer"):
        row = table.loc["auroc", outcome, PRESENT]
        assert row["change"] < -0.03
        assert row["change_high"] < 0
        assert row["change_low"] < row["change"] < row["change_high"]
        # With later codes, more events occur than expected from codes present on admission, not more than from all.
        assert abs(table.loc["o_e_later", outcome, ALL]["value"] - 1) < 0.15
        assert table.loc["o_e_later", outcome, PRESENT]["change_low"] > 0
        assert abs(table.loc["o_e", outcome, PRESENT]["value"] - 1) < 0.15


def test_each_choice_of_codes_follows_its_definition(hospital):
    seen = {}

    def scores(train, judged):
        seen[len(seen)] = judged
        return np.arange(len(train), dtype=float), np.arange(len(judged), dtype=float)

    table = compare_codes(hospital, {"any": scores}, resamples=0, grade="possible")
    assert list(table["codes"].unique()) == [ALL, PRESENT, UNTOLD]
    everything, present, untold = (seen[number] for number in range(3))
    assert present.table["codes"].equals(everything.present().table["codes"])
    listed = tuple(f"{entry.version}:{entry.code}" for entry in telling_codes("possible"))
    assert len(without(untold.admissions(), listed).indices) == len(untold.admissions().indices)
    assert len(untold.admissions().indices) < len(everything.admissions().indices)


def test_missing_flags_splits_and_lists_are_refused(hospital):
    bare = mlci.Cohort(hospital.table.drop_columns("poa"), hospital.source, hospital.outcomes)
    with pytest.raises(mlci.InputError, match="has no flags of what was present on admission"):
        compare_codes(bare, published("charlson"), resamples=0)
    with pytest.raises(mlci.InputError, match="has no admission in the split test"):
        compare_codes(hospital.split("train"), published("charlson"), resamples=0)
    with pytest.raises(mlci.InputError, match="deyo has no list for ICD-10"):
        published("deyo")["deyo_charlson"](hospital, hospital)


def test_the_command_prints_and_writes_the_comparison(hospital, tmp_path):
    from click.testing import CliRunner

    from mlci.cli import cli

    hospital.split("train", "test").write(tmp_path / "c.parquet")
    words = ["poa", str(tmp_path / "c.parquet"), "-o", str(tmp_path / "t.csv"), "--no-fit", "--resamples", "20"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert "O/E of admissions with codes that arose later" in done.output
    assert "…" not in done.output
    assert set(pd.read_csv(tmp_path / "t.csv")["metric"]) == {"auroc", "dcorr", "o_e", "o_e_later"}


def test_lists_of_the_grades_are_nested():
    lists = [set(telling(grade)) for grade in GRADES]
    assert set(telling()) < lists[0] < lists[1] < lists[2]
    assert {"10:J960", "9:51881", "10:Z991"} <= lists[0] - set(telling())  # critical care: failure and ventilator
    assert {entry.tells for entry in telling_codes("tells")} == {"death", "critical care", "discharge, length of stay"}
