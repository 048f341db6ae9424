"""Figures and tables of risk curves: by the library, and by `mlci curves` on files of two seeds."""

import numpy as np
import pandas as pd
import pytest

from mlci.base.grids import as_text
from mlci.cohort import Cohort
from mlci.judging import curves as judging
from mlci.judging.paper_tables import changes, curve_table
from mlci.judging.scores import read_seeds
from mlci.showing import curves


@pytest.fixture(scope="module")
def hospital():
    """400 admissions whose risk rises with a score, one outcome that does not, one not always known."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=400)
    visits = pd.DataFrame({"visit_id": np.arange(400), "codes": [["I50.9"]] * 400, "part": "test"})
    visits["died"] = (rng.random(400) < 1 / (1 + np.exp(2 - 2 * score))).astype(float)
    visits["long_stay"] = np.where(rng.random(400) < 0.2, np.nan, rng.random(400) < 0.5)
    visits["died"] = visits["died"].astype(int)
    cohort = Cohort.from_frame(
        visits, icd_version=10, split="part", outcomes={"died": "died", "long_stay": "long_stay"}
    )
    return cohort, [score, score + rng.normal(0, 0.3, 400)]


def test_the_tables_hold_what_is_drawn(hospital, tmp_path):
    cohort, seeds = hospital
    found = curves.compute({"MLCI (own)": seeds}, cohort)
    written = curves.draw(found, tmp_path / "curves", dataset="own")
    assert sorted(path.name for path in written) == sorted(curves.file_names(list(found)))
    assert all(path.stat().st_size for path in written)
    tables = {path.name: pd.read_csv(path) for path in written if path.suffix == ".csv"}
    bins = tables["binned.csv"].query("model == 'MLCI (own)' and outcome == 'died'")
    assert bins["n"].min() >= judging.FEWEST
    assert bins["n"].sum() == 400
    np.testing.assert_allclose(bins["risk"] @ bins["n"], cohort.labels("died").sum())
    fitted = tables["isotonic.csv"].query("model == 'MLCI (own)' and outcome == 'died'")["risk"].to_numpy()
    assert (np.diff(fitted) >= 0).all()
    [expected, _] = judging.trends(seeds, cohort.labels(), list(cohort.outcomes))
    row = tables["summary.csv"].iloc[0]
    assert (row["change"], row["sd"]) == pytest.approx((expected.mean, expected.sd))
    # With one seed the change is read from the very points of the table.
    alone = curves.compute({"alone": seeds[:1]}, cohort)["alone"][0]
    assert alone.trend.mean == pytest.approx(fitted[189] - fitted[9])


def test_the_change_is_reported_with_its_deviation(hospital):
    cohort, seeds = hospital
    [died, _] = curves.compute({"x": seeds}, cohort)["x"]
    mean, sd = np.mean(died.trend.deltas), np.std(died.trend.deltas, ddof=1)
    assert died.trend.points == f"{100 * mean:.1f} ± {100 * sd:.1f} points"
    assert f"increasing (Δ = {mean:.3f} ± {sd:.3f})" in as_text(curve_table({"x": changes([died.trend])}))


def test_command_line(mlci_cli, hospital, tmp_path, empty_figures):
    cohort, seeds = hospital
    path = tmp_path / "cohort.parquet"
    cohort.write(path)
    files = [tmp_path / f"{seed}.csv" for seed in (11, 101)]
    for file, score in zip(files, seeds):
        pd.DataFrame({"admission_id": np.arange(400), "mine": score}).to_csv(file, index=False)
    shown = mlci_cli("curves", *files, path, "-o", tmp_path / "out").stdout
    assert "between the 5% and the 95% quantile of the score" in " ".join(shown.split())  # not shares of its range
    assert "increasing" in shown
    assert "±" in shown
    assert {file.name for file in (tmp_path / "out").iterdir()} == set(curves.file_names(["mine"]))


def test_one_file_goes_by_its_name(hospital, tmp_path):
    cohort, seeds = hospital
    pd.DataFrame({"admission_id": np.arange(300), "score": seeds[0][:300]}).to_csv(tmp_path / "own.csv", index=False)
    found, judged = read_seeds([tmp_path / "own.csv"], cohort)
    assert [(name, len(arrays), len(judged)) for name, arrays in found.items()] == [("own", 1, 300)]


def test_nothing_that_is_read_is_overwritten(mlci_cli, hospital, tmp_path):
    cohort, seeds = hospital
    path = tmp_path / "binned.csv"
    pd.DataFrame({"admission_id": np.arange(400), "score": seeds[0]}).to_csv(path, index=False)
    cohort.write(tmp_path / "cohort.parquet")
    before = path.read_bytes()
    said = mlci_cli("curves", path, tmp_path / "cohort.parquet", "-o", tmp_path, code=2).stderr
    assert "is read by this command and would be overwritten" in said
    assert path.read_bytes() == before
    said = mlci_cli("curves", path, tmp_path / "cohort.parquet", "-o", tmp_path / "a" / "b", code=2).stderr
    assert "does not exist" in said
    said = mlci_cli(
        "curves", path, tmp_path / "cohort.parquet", "-o", tmp_path / "c", "--split", "valid", code=2
    ).stderr
    assert "has no admission in the split valid" in said
