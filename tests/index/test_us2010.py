"""The ready-made indices: the shipped files, and the reproducibility of the script that builds them."""

import runpy
import sys
from pathlib import Path

import pytest

import mlci
from mlci.index.model import load_model

FOLDER = Path(mlci.__file__).parent / "index" / "data"
SAMPLE = next((Path(__file__).parents[1] / "data" / "nhds2010").glob("*.bz2"), None)


@pytest.mark.parametrize("name", ["us2010", "us2010-early"])
def test_what_is_shipped_is_small_and_hides_small_cells(name):
    path = FOLDER / f"{name}.safetensors"
    model = load_model(path)
    assert path.stat().st_size < 3_000_000
    assert min(model.vocabulary.support) >= 10
    assert list(model.outcomes) == ["mortality", "non_home_discharge", "long_stay", "critical_care"]
    assert "not stated (9)" in model.outcomes["non_home_discharge"]
    assert model.icd_versions == (9, 10)


def test_it_orders_plain_cases():
    index = mlci.load(FOLDER / "us2010.safetensors")
    score = index.score([["4019"], ["4280", "5849"], ["51881", "0389", "99592", "78552"]], icd_version=9)
    assert score[0] < score[1] < score[2]
    short = index.score([["401"], ["428", "584"], ["518", "038"]], icd_version=9)
    assert short[0] < short[1] < short[2]


def test_the_early_one_ignores_codes_that_reveal_the_outcome():
    index = mlci.load(FOLDER / "us2010-early.safetensors")
    score = index.score([["4280"], ["4280", "4275"]], icd_version=9)  # heart failure; with cardiac arrest
    assert score[0] == score[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*codes are understood")  # of a fiftieth of the survey, few codes are learned
@pytest.mark.skipif(SAMPLE is None, reason="needs the sample of NHDS")
def test_the_build_script_is_reproducible(tmp_path, monkeypatch, capsys):
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        monkeypatch.setattr(sys, "argv", ["build_us2010.py", str(SAMPLE), "--folder", str(folder)])
        runpy.run_path(str(FOLDER / "build_us2010.py"), run_name="__main__")
        made.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert set(made[0]) == {"us2010.safetensors", "us2010-early.safetensors", "us2010.csv", "us2010.zip"}
    assert made[0] == made[1]
