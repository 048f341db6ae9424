"""Options that several commands share: survey weights, clusters and strata."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

from mlci.base.errors import InputError
from mlci.cli import cli
from mlci.cli._campaign import numbers
from mlci.cohort import Cohort


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """Write a sample without patient ids, with weights, hospitals and regions, and a file of scores."""
    rng, n, folder = np.random.default_rng(5), 600, tmp_path_factory.mktemp("survey")
    severity = rng.normal(size=n)
    died = rng.random(n) < 1 / (1 + np.exp(1.5 - severity))
    frame = pd.DataFrame({"visit_id": np.arange(n), "codes": [["I50.9"]] * n, "mortality": died})
    frame["weight"], frame["hospital"], frame["region"] = np.where(severity > 0, 3.0, 1.0), np.arange(n) // 20, "A"
    frame.loc[300:, "region"] = "B"
    frame["split"] = "test"
    cohort = Cohort.from_frame(
        frame, icd_version=10, outcomes={"mortality": "mortality"}, keep=["weight", "hospital", "region"]
    )
    cohort.write(folder / "cohort.parquet")
    risk = 1 / (1 + np.exp(1.5 - severity))
    scores = pd.DataFrame({"admission_id": np.arange(n), "score": severity.round(1), "risk_mortality": risk})
    scores.to_csv(folder / "scores.csv", index=False)
    return folder, scores["score"].to_numpy(), died, frame["weight"].to_numpy()


def run(*words):
    found = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def evaluate(folder, *words):
    output = folder / "metrics.csv"
    said = run(
        "evaluate",
        folder / "scores.csv",
        folder / "cohort.parquet",
        "--split",
        "all",
        "--resamples",
        50,
        *words,
        "-o",
        output,
    )
    return said, pd.read_csv(output).set_index("metric")


def test_evaluate_weights_figures_and_reports_the_design(survey):
    folder, score, died, weight = survey
    plain, before = evaluate(folder)
    said, after = evaluate(folder, "--weights", "weight", "--cluster", "hospital", "--strata", "region")
    assert "Weighted by weight: 600 admissions represent" in said
    assert "30 clusters by hospital" in said
    assert "patient" not in plain + said
    assert after.loc["auroc", "value"] == pytest.approx(roc_auc_score(died, score, sample_weight=weight))
    assert before.loc["auroc", "value"] == pytest.approx(roc_auc_score(died, score))
    assert set(before.index) - set(after.index) == {"mi", "dcorr_corrected", "independence"}
    width = (after["high"] - after["low"]) / (before["high"] - before["low"])
    assert width["auroc"] > 1
    assert (after["low"] < after["high"]).all()


def test_curves_are_weighted(survey, empty_figures):
    folder, _, died, weight = survey
    words = ("curves", folder / "scores.csv", folder / "cohort.parquet", "--split", "all", "--bins", 1)
    run(*words, "-o", folder / "plain")
    said = run(*words, "-o", folder / "weighted", "--weights", "weight", "--numeric", "hospital")
    assert "Weighted by weight" in said
    drawn = pd.read_csv(folder / "weighted" / "binned.csv").set_index("outcome")["risk"]
    assert drawn["hospital"] == pytest.approx(np.average(np.arange(600) // 20, weights=weight))
    assert (
        "Hospital" not in (folder / "weighted" / "table8_risk_curves.md").read_text()
    )  # the paper's table is of risks
    rates = [pd.read_csv(folder / name / "binned.csv")["risk"].iloc[0] for name in ("plain", "weighted")]
    assert rates == pytest.approx([died.mean(), np.average(died, weights=weight)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--weights", "absent"), "no column absent"),
        (("--weights", "region"), "column region: is not numeric"),
        (("--weights", "weight", "--missed"), "cannot be combined with --weights"),
        (("--cluster", "region", "--strata", "region"), "a single cluster"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(survey, words, message):
    with pytest.raises((InputError, AssertionError), match=message):
        evaluate(survey[0], *words)


@pytest.mark.parametrize("command", ["fit", "evaluate", "diagnose", "report", "poa"])
def test_a_negative_seed_is_a_usage_error(command):
    found = CliRunner().invoke(cli, [command, "--seed", "-1"])
    assert found.exit_code == 2
    assert "-1 is not in the range x>=0" in found.output


@pytest.mark.parametrize("seeds", ["-1", "11,11", "11,", "a"])
def test_seeds_of_a_benchmark_are_different_and_not_negative(seeds):
    with pytest.raises(InputError, match="different whole numbers from 0"):
        numbers(seeds)


def test_an_option_whose_value_was_forgotten_is_named(tmp_path):
    """`--audit -o scores.csv` would otherwise write the audit to a file called -o and miss the output."""
    path = tmp_path / "admissions.csv"
    path.write_text("admission_id,DX1\n1,I10\n")
    found = CliRunner().invoke(cli, ["indices", str(path), "--audit", "-o", str(tmp_path / "scores.csv")])
    assert found.exit_code == 2
    assert "--audit needs a value; -o follows it." in found.output
