"""Look-back windows: a window has the figures of a cohort with that look-back, and earlier codes improve an index."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import mlci
from mlci.cli import cli
from mlci.judging._changes import published
from mlci.judging.evaluate import judge
from mlci.judging.windows import compare_windows


@pytest.fixture(scope="module")
def cohort() -> mlci.Cohort:
    """Return a cohort in which heart failure raises mortality, but is coded only in the first of two admissions.

    The second admission follows 60 days later for half of the patients and 300 days later for the others.
    """
    rng = np.random.default_rng(0)
    n = 400
    ill, gap = rng.random(n) < 0.4, np.where(rng.random(n) < 0.5, 60, 300)
    rows = []
    for patient in range(n):
        died = rng.random() < (0.5 if ill[patient] else 0.1)
        start = pd.Timestamp("2020-01-01") + pd.Timedelta(days=int(rng.integers(0, 500)))
        rows.append((2 * patient, patient, start, "I50.9" if ill[patient] else "I10", 0))
        rows.append((2 * patient + 1, patient, start + pd.Timedelta(days=int(gap[patient])), "Z00.00", int(died)))
    frame = pd.DataFrame(rows, columns=["visit_id", "mrn", "admitted", "DX1", "died"])
    options = {"outcomes": {"mortality": "died"}, "proportions": (0.3, 0.1, 0.6)}
    cohort = mlci.Cohort.from_frame(frame, icd_version=10, subject="mrn", codes="DX1", **options)
    return cohort.where(cohort.column("days_observed") >= 0)


def test_a_window_gives_the_figures_of_a_cohort_with_that_look_back(cohort):
    table = compare_windows(cohort, published("charlson"), [0, 90, 365], resamples=50)
    assert list(table["days"].unique()) == [0, 90, 365]
    second = cohort.split("test").column("days_observed")
    for days, part in table.groupby("days"):
        judged = cohort.looking_back(days).split("test") if days else cohort.split("test")
        points = published("charlson")["cci_charlson"](judged, judged)[1]
        alone = judge({"x": points}, judged, resamples=0).table.set_index("metric")["value"]
        assert part.set_index("metric")["value"].to_dict() == pytest.approx(alone[["dcorr", "auroc"]].to_dict())
        assert part["observed"].iloc[0] == pytest.approx(np.mean(second >= days))
        assert part["carrying"].iloc[0] == pytest.approx(np.mean((second > 0) & (second <= days)))
    assert table.attrs["notes"] == [note for days in (0, 90, 365) for note in cohort.looking_back(days).notes]
    auroc = table[table["metric"] == "auroc"].set_index("days")
    assert auroc["value"].is_monotonic_increasing
    assert auroc.loc[365, "change"] == pytest.approx(auroc.loc[365, "value"] - auroc.loc[0, "value"])
    assert auroc.loc[365, "change_low"] > 0.02


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ([365], "two or more different numbers of days"),
        ([0, 0], "two or more different"),
        ([-1, 3], "look_back: -1,3 is"),
        ([0, np.inf], "look_back: inf is not allowed"),
    ],
)
def test_invalid_windows_are_refused(cohort, windows, message):
    with pytest.raises(mlci.InputError, match=message):
        compare_windows(cohort, {}, windows)


def test_the_command_prints_and_writes_the_windows(cohort, tmp_path):
    cohort.write(tmp_path / "c.parquet")

    def run(*words):
        return CliRunner().invoke(cli, ["evaluate", *map(str, words)], catch_exceptions=False)

    words = (tmp_path / "c.parquet", "--look-back", "0,365", "--resamples", "20", "--model", "us2010", "--fit")
    done = run(*words, "-o", tmp_path / "m.csv")
    assert done.exit_code == 0, done.output
    table = pd.read_csv(tmp_path / "m_look_back.csv")
    assert set(table["index"]) == {"cci_charlson", "eci_vw", "us2010", "MLCI, learned"}
    assert not (tmp_path / "m.csv").exists()  # no scores were evaluated
    assert "the change from 0 days" in done.output
    assert "Look-back of 365 days: 400 admissions carry 400 codes of earlier ones." in done.output
    mlci.Cohort(cohort.table.slice(0, 15), cohort.source, cohort.outcomes).write(tmp_path / "few.parquet")
    done = run(tmp_path / "few.parquet", *words[1:5], "--split", "all", "--index", "charlson")
    for name in cohort.outcomes:
        assert f"{name} is left out: fewer than 10 admissions have it, or do not have it." in done.output
    for invalid in ((tmp_path / "c.parquet",), (tmp_path / "c.parquet", "--look-back", "0,x"), (*words[:1], "--fit")):
        done = run(*invalid)
        assert done.exit_code == 2
        assert "Error: " in done.output
    cohort.looking_back(30).write(tmp_path / "l.parquet")
    with pytest.raises(mlci.InputError, match="looks back 30 days already"):
        run(tmp_path / "l.parquet", "--look-back", "0,365")
