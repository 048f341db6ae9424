"""A model states its look-back period, and admissions with another one give a warning."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import mlci
from mlci.cli import cli
from mlci.index.citation import methods
from mlci.index.modelcard import facts


@pytest.fixture(scope="module")
def cohort() -> mlci.Cohort:
    rng = np.random.default_rng(0)
    ill = rng.random(300) < 0.4
    frame = pd.DataFrame(
        {"visit_id": range(600), "mrn": np.repeat(range(300), 2), "admitted": ["2020-01-01", "2020-03-01"] * 300}
    )
    frame["codes"] = [code for sick in ill for code in ((["I50.9"] if sick else ["I10"]), ["J18.9"])]
    frame["died"] = (rng.random(600) < 0.05 + 0.4 * np.repeat(ill, 2)).astype(int)
    return mlci.Cohort.from_frame(frame, icd_version=10, subject="mrn", outcomes={"mortality": "died"})


def test_a_model_states_its_look_back_period(cohort, tmp_path):
    looking = cohort.looking_back(90)
    index = mlci.MLCI().fit(looking)
    assert index.model_.card["look_back"] == 90
    assert "look_back" not in mlci.MLCI().fit(cohort).model_.card
    assert facts(index.model_)["Codes that count"] == "also those of the last 90 days"
    assert "earlier admissions in the last 90 days count too" in methods(index.model_)
    index.score(looking)
    message = "the model was fitted with codes of the last 90 days; these data look back 0 days"
    with pytest.raises(UserWarning, match=message):  # warnings are errors here
        index.score(cohort)
    index.save(tmp_path / "m.safetensors")
    cohort.write(tmp_path / "plain.parquet")
    looking.write(tmp_path / "l.parquet")
    cohort.to_pandas()[["admission_id", "codes", "icd_version"]].to_parquet(tmp_path / "codes.parquet")

    def stderr_of_score(model: object, file: str) -> str:
        done = CliRunner().invoke(
            cli,
            ["score", str(model), str(tmp_path / file), "-o", str(tmp_path / "s.csv"), "-q"],
            catch_exceptions=False,
        )
        return done.stderr

    assert message in stderr_of_score(tmp_path / "m.safetensors", "plain.parquet")
    assert "look" not in stderr_of_score(tmp_path / "m.safetensors", "l.parquet")
    assert "make sure that these data include them" in stderr_of_score(tmp_path / "m.safetensors", "codes.parquet")
    assert "with each admission's own codes only; these data look back 90 days" in stderr_of_score(
        "us2010", "l.parquet"
    )
    assert "look" not in stderr_of_score("us2010", "plain.parquet")
    words = [
        "recalibrate",
        str(tmp_path / "m.safetensors"),
        str(tmp_path / "plain.parquet"),
        "-o",
        str(tmp_path / "r.safetensors"),
    ]
    stderr = CliRunner().invoke(cli, words).stderr
    assert "warning: the model was fitted with codes of the last 90 days; these data look back 0 days" in stderr
