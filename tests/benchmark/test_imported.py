"""Imported runs: text in a file never becomes a path, and invalid files are refused before anything is written."""

import json
import os
from dataclasses import asdict

import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.benchmark import models as baselines
from mlci.benchmark.runs import fingerprint, import_runs
from mlci.cohort import read_cohort
from toys import toy_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    path = tmp_path_factory.mktemp("cohort") / "c.parquet"
    toy_cohort(80).write(path)
    return path


@pytest.fixture(scope="module")
def valid(cohort):
    """Return the facts and arrays of a valid file."""
    table = read_cohort(cohort)
    model = asdict(baselines.discover()["charlson"])
    run = {"model": model, "seed": 11, "cost": {"seconds": 1.0}}
    arrays = {f"a/{part}": np.arange(len(table.split(part)), dtype=np.float32) for part in ("valid", "test")}
    return {"digest": fingerprint(baselines.parts(table)), "runs": {"a": run}}, arrays


def write_and_import(folder, cohort, facts, arrays):
    np.savez_compressed(folder / "x.npz", facts=np.array(json.dumps(facts)), **arrays)
    return import_runs(folder / "x.npz", cohort, folder / "deep" / "er" / "runs")


def test_a_valid_file_is_imported(tmp_path, cohort, valid):
    (run,) = write_and_import(tmp_path, cohort, *valid)
    assert (run.folder / "DONE").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "../../escaped"},
        {"seed": -1},
        {"seed": True},
        {"model": {"name": "../../escaped"}},
        {"model": {"name": "charlson", "no such": 1}},
        {"model": {}},
        {"model": []},
        {"cost": {}},
        {"cost": {"seconds": float("nan")}},
        {"cost": {"seconds": 1.0, "peak": float("nan")}},
    ],
)
def test_a_forged_run_writes_nothing(change, tmp_path, cohort, valid):
    facts, arrays = valid
    forged = {**facts, "runs": {"a": {**facts["runs"]["a"], **change}}}
    with pytest.raises(InputError, match=r"x\.npz: "):
        write_and_import(tmp_path, cohort, forged, arrays)
    assert os.listdir(tmp_path) == ["x.npz"]


def test_damaged_files_and_bombs_are_refused(tmp_path, cohort, valid):
    facts, arrays = valid
    for forged, values in (
        ([], arrays),
        ({**facts, "digest": "0" * 64}, arrays),
        (facts, {}),
        (facts, arrays | {"a/test": np.array(["x"] * 5)}),
        (facts, arrays | {"bomb": np.zeros(4_000_000)}),
        (facts, arrays | {"a/test": np.full_like(arrays["a/test"], np.nan)}),
    ):
        with pytest.raises(InputError):
            write_and_import(tmp_path, cohort, forged, values)
    for content in (b"", b"PK\x03\x04", (tmp_path / "x.npz").read_bytes()[:300]):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(InputError):
            import_runs(tmp_path / "x.npz", cohort, tmp_path / "runs")
