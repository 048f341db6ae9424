"""Model files written by mlci 0.1 still load, give the same scores and show the record of their fit."""

import json
from pathlib import Path

import numpy as np
import pytest

import mlci
from mlci.base.outdated import OutdatedWarning

DATA = Path(__file__).parents[1] / "data"
ADMISSIONS = [["A000", "I010"], [], ["N021"], ["Z999"], ["A001", "A001", "N000", "I021"]]
EXPECTED = {  # computed by version 0.1: scores, and risks of death
    "paper": (
        [0.33680325746536255, 0.2782261371612549, 0.336433470249176, 0.30929791927337646, 0.33404454588890076],
        [0.38181818181818183, 0.1111111111111111, 0.38181818181818183, 0.13157894736842105, 0.38181818181818183],
    ),
    "deep": (
        [0.4337743818759918, 0.8141884207725525, -1.1428117752075195, -1.3305795192718506, -0.9272225499153137],
        [0.4, 0.4, 0.2153846153846154, 0.2153846153846154, 0.2153846153846154],
    ),
}


@pytest.mark.filterwarnings("ignore:.*fewer than half")
@pytest.mark.parametrize("recipe", EXPECTED)
def test_files_of_format_1_score_as_they_did(recipe):
    with pytest.warns(OutdatedWarning, match=r"safetensors: model format 1 is outdated .* writes the current format"):
        index = mlci.load(DATA / f"format1_{recipe}.safetensors")
    score, risk = EXPECTED[recipe]
    np.testing.assert_allclose(index.score(ADMISSIONS, icd_version=10), score, rtol=1e-6)
    np.testing.assert_allclose(index.risk(ADMISSIONS, icd_version=10)["mortality"], risk, rtol=1e-12)
    assert index.recipe == recipe


@pytest.mark.parametrize(
    ("recipe", "summary", "titles"),
    [
        ("paper", "epoch 2 of 2 kept", ["Stage 1", "Stage 2"]),
        ("deep", "of the variance of the ensemble's score learned by one encoder", ["Risks learned", "Distillation"]),
    ],
)
def test_files_of_format_1_show_their_record(recipe, summary, titles, tmp_path):
    with pytest.warns(OutdatedWarning):
        model = mlci.load(DATA / f"format1_{recipe}.safetensors").model_
    record = model.card["record"]
    assert summary in record["summary"]
    assert [table["title"].split(":")[0].split(" by")[0] for table in record["tables"]] == titles
    assert [row[0] for row in record["tables"][0]["rows"]] == ["mortality", "long_stay"]
    assert len(record["curves"][0]["lines"]["Validation split"]) == {"paper": 2, "deep": 6}[recipe]
    assert not {"stage1", "stage2", "orientation"} & set(model.card)
    model.save(tmp_path / "m")
    again = mlci.load(tmp_path / "m").model_.card["record"]  # JSON has lists where Python has tuples
    assert again == json.loads(json.dumps(record))


@pytest.mark.filterwarnings("default::mlci.base.outdated.OutdatedWarning")
def test_a_former_name_of_a_recipe_gives_a_warning(mlci_cli):
    message = "the recipe name mlci is outdated and understood up to version 0.3: it is now called deep."
    with pytest.warns(OutdatedWarning, match=message), pytest.raises(mlci.InputError, match="fit needs outcomes"):
        mlci.MLCI(recipe="mlci").fit([["I50.9"]])
    done = mlci_cli("fit", "--recipe", "mlci", "--print-config")
    assert "[posterior]" in done.stdout
    assert done.stderr == f"mlci: warning: {message}\n"
