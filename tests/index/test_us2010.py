"""The ready-made indices: the shipped files, and the reproducibility of the script that builds them."""

import runpy
import sys
from pathlib import Path

import pytest

import mlci
from mlci.index.model import load_model

FOLDER = Path(mlci.__file__).parent / "index" / "data"


@pytest.mark.parametrize("name", ["us2010", "us2010-early"])
def test_shipped_files_are_small_and_hide_small_counts(name):
    path = FOLDER / f"{name}.safetensors"
    model = load_model(path)
    assert path.stat().st_size < 3_000_000
    assert min(model.vocabulary.support) >= 10
    assert list(model.outcomes) == ["mortality", "non_home_discharge", "long_stay", "critical_care"]
    assert "not stated (9)" in model.outcomes["non_home_discharge"]
    assert model.icd_versions == (9, 10)


def test_us2010_orders_simple_cases_by_severity():
    index = mlci.load(FOLDER / "us2010.safetensors")
    score = index.score([["4019"], ["4280", "5849"], ["51881", "0389", "99592", "78552"]], icd_version=9)
    assert score[0] < score[1] < score[2]
    short = index.score([["401"], ["428", "584"], ["518", "038"]], icd_version=9)
    assert short[0] < short[1] < short[2]


def test_us2010_early_ignores_codes_that_reveal_the_outcome():
    index = mlci.load(FOLDER / "us2010-early.safetensors")
    score = index.score([["4280"], ["4280", "4275"]], icd_version=9)  # heart failure; with cardiac arrest
    assert score[0] == score[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*codes are understood")  # the sample has too few admissions for most codes
def test_the_build_script_is_reproducible(demos, tmp_path, monkeypatch):
    sample, files = demos / "nhds2010" / "sample.txt.bz2", []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        monkeypatch.setattr(sys, "argv", ["build_us2010.py", str(sample), "--folder", str(folder)])
        runpy.run_path(str(FOLDER / "build_us2010.py"), run_name="__main__")
        files.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert set(files[0]) == {"us2010.safetensors", "us2010-early.safetensors", "us2010.csv", "us2010.zip"}
    assert files[0] == files[1]
