"""An index of a survey sample: weights and clusters in the fit, the model file and the card."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.index._survey import survey_words
from mlci.index.estimator import MLCI, load
from mlci.index.vary import resample_training

CONFIG = {"penalty": {"common": 0.05, "own": 0.05, "folds": 2}}


def population(n: int = 1600, seed: int = 0) -> pd.DataFrame:
    """Return one admission per patient; severe ones are sampled four times as often, with a quarter of the weight."""
    rng = np.random.default_rng(seed)
    codes, severe = np.array(["I509", "E119", "J189", "N179", "I10"]), rng.random(n) < 0.5
    chosen = rng.random((n, 5)) < np.where(severe, 0.6, 0.2)[:, None]
    risk = 1 / (1 + np.exp(2 - chosen @ [1.5, 0.2, 0.8, 1.2, -0.5]))
    frame = pd.DataFrame({"admission_id": np.arange(n), "subject_id": np.arange(n)})
    frame["codes"] = [codes[row].tolist() or ["Z00"] for row in chosen]
    frame["died"] = rng.random(n) < risk
    frame["split"] = np.where(np.arange(n) % 4 == 0, "valid", "train")
    frame["weight"], frame["hospital"] = np.where(severe, 1.0, 4.0), np.arange(n) % 30
    return frame


@pytest.fixture(scope="module")
def sample():
    frame = population()
    options = {"outcomes": {"mortality": "died"}, "keep": ["weight", "hospital"], "split": "split"}
    return frame, Cohort.from_frame(frame, icd_version=10, **options)


@pytest.fixture(scope="module")
def fits(sample):
    _, cohort = sample
    plain = MLCI(config=CONFIG).fit(cohort)
    return plain, MLCI(config=CONFIG).fit(cohort, weights="weight", cluster="hospital")


def test_risks_percentiles_and_cutoff_are_the_populations(sample, fits):
    frame, cohort = sample
    plain, weighted = fits
    weight, died = frame["weight"].to_numpy(), frame["died"].to_numpy()
    means = [np.average(index.risk(cohort)["mortality"], weights=weight) for index in (plain, weighted)]
    assert means[1] == pytest.approx(np.average(died, weights=weight), rel=0.05)
    table = weighted.table(cohort)
    above = np.average(table["percentile"] >= 50, weights=weight)
    assert abs(above - 0.5) < abs(np.average(plain.table(cohort)["percentile"] >= 50, weights=weight) - 0.5)
    cut = weighted.model_.cutoff
    assert cut.share == pytest.approx(np.average(table["high_severity"], weights=weight), abs=0.05)
    valid = (frame["split"] == "valid").to_numpy()
    area = weighted.model_.card["validation"]["mortality"]["auroc"]
    assert area == pytest.approx(roc_auc_score(died[valid], table["score"][valid], sample_weight=weight[valid]))


def test_the_file_records_the_weights(fits, tmp_path):
    plain, weighted = fits
    weighted.save(tmp_path / "model.safetensors")
    model = load(tmp_path / "model.safetensors").model_
    assert model.card["survey"]["weights"] == "weight"
    assert survey_words(model.card).startswith("weighted by weight, effective sample size ")
    assert survey_words(model.card).endswith("; clusters by hospital")
    assert model.cutoff == weighted.model_.cutoff
    assert "survey" not in plain.model_.card
    plain.save(tmp_path / "plain.safetensors")
    assert b'"weighted"' not in (tmp_path / "plain.safetensors").read_bytes()


def test_the_record_says_whether_admissions_or_clusters_were_left_out(fits):
    plain, weighted = fits
    assert "admissions left out" in plain.model_.card["record"]["summary"]  # no patient has two
    assert "clusters left out" in weighted.model_.card["record"]["summary"]


def test_whole_weights_are_repeated_admissions(sample):
    """The penalty is divided by the growth in rows, and folds keep copies together."""
    frame, cohort = sample
    rows = np.repeat(np.arange(len(frame)), frame["weight"].astype(int))
    repeated = frame.iloc[rows].assign(admission_id=np.arange(len(rows)))
    options = {"outcomes": {"mortality": "died"}, "split": "split", "subject": "subject_id"}
    many = Cohort.from_frame(repeated.drop(columns=["weight", "hospital"]), icd_version=10, **options)
    growth = (frame["weight"] * (frame["split"] == "train")).sum() / (frame["split"] == "train").sum()
    tighter = {"penalty": {"common": 0.05 / growth, "own": 0.05 / growth, "folds": 2}}
    found = MLCI(config=CONFIG).fit(cohort, weights="weight").model_.state["weights"]
    expected = MLCI(config=tighter).fit(many).model_.state["weights"]
    assert np.abs(found - expected).max() < 1e-3
    assert np.abs(found).max() > 0.2


def test_equal_weights_give_the_unweighted_fit():
    lists = [["I50.9"], ["E11.9"], ["J18.9", "I10"]] * 40
    died = {"mortality": [1, 0, 0] * 30 + [0, 1, 0] * 10}
    plain = MLCI(config=CONFIG).fit(lists, died, icd_version=10)
    equal = MLCI(config=CONFIG).fit(lists, died, icd_version=10, weights=[3.0] * 120)
    np.testing.assert_array_equal(plain.model_.state["weights"], equal.model_.state["weights"])


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("deep", {"weights": "weight"}, "the recipe deep does not accept weights; the recipe table does"),
        ("paper", {"weights": "weight"}, "the recipe paper does not accept weights"),
        ("table", {"weights": "codes"}, "column codes: is not numeric"),
        ("table", {"weights": [1.0, 2.0]}, "weight: has 2 values for 1600 admissions"),
        ("table", {"weights": [-1.0] * 1600}, "some are missing or negative"),
        ("table", {"weights": ["many"] * 1600}, "weights: some are not numbers"),
        ("table", {"weights": [[1.0]] * 1600}, "weight: has 2 dimensions; pass one value per admission"),
        ("table", {"cluster": [["a"]] * 1600}, "clusters: has 2 dimensions; pass one value per admission"),
        ("table", {"cluster": "absent"}, "no column absent"),
    ],
)
def test_invalid_options_are_refused(sample, recipe, options, message):
    with pytest.raises(InputError, match=message):
        MLCI(recipe=recipe).fit(sample[1], **options)


def test_admissions_of_weight_0_have_no_part_in_a_fit(sample, tmp_path):
    """As if they were not in the cohort: also where only they know an outcome, or are all of the validation split."""
    frame, _ = sample
    frame = frame.assign(
        weight=np.where(np.arange(len(frame)) % 3 == 0, 0.0, frame["weight"]), only=frame["died"] * 1.0
    )
    frame.loc[frame["weight"] > 0, "only"] = np.nan
    options = {"keep": ["weight", "hospital"], "split": "split", "icd_version": 10}
    whole, part = (
        MLCI(config=CONFIG).fit(
            Cohort.from_frame(some.reset_index(drop=True), outcomes={"mortality": "died"}, **options), weights="weight"
        )
        for some in (frame, frame[frame["weight"] > 0])
    )
    for name, values in whole.model_.state.items():
        np.testing.assert_array_equal(values, part.model_.state[name])
    assert whole.model_.card["admissions"] == part.model_.card["admissions"]
    assert survey_words(whole.model_.card).endswith("; 534 admissions of weight 0 left out")
    assert "weight 0" not in survey_words(part.model_.card)
    whole.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").model_.card["survey"] == whole.model_.card["survey"]
    with pytest.raises(InputError, match="only is never known in the training split"):
        MLCI(config=CONFIG).fit(Cohort.from_frame(frame, outcomes={"only": "only"}, **options), weights="weight")
    empty = {split: frame.assign(weight=frame["weight"] * (frame["split"] != split)) for split in ("train", "valid")}
    learned = Cohort.from_frame(empty["valid"], outcomes={"mortality": "died"}, **options)
    assert MLCI(config=CONFIG).fit(learned, weights="weight").model_.card["admissions"]["valid"] == 0
    with pytest.raises(InputError, match="training split has no admissions"):
        MLCI(config=CONFIG).fit(
            Cohort.from_frame(empty["train"], outcomes={"mortality": "died"}, **options), weights="weight"
        )


def test_refits_leave_out_admissions_of_weight_0_too(sample):
    frame, _ = sample
    frame = frame.assign(weight=np.where(np.arange(len(frame)) % 3 == 0, 0.0, frame["weight"]))
    cohort = Cohort.from_frame(frame, icd_version=10, outcomes={"mortality": "died"}, keep=["weight"], split="split")
    model = MLCI(config=CONFIG).fit(cohort, weights="weight").model_
    assert len(resample_training(model, cohort, cohort.split("valid"), times=2)) == 6
