import numpy as np
import pytest

from mlci.index._few_events import outcome_notes
from mlci.index._missing_outcomes import masking, missing_notes
from mlci.index.estimator import MLCI


def test_few_missing_outcomes_are_not_reported():
    y = np.tile([0.0, 1.0], 100)
    assert masking(["died", "home"], np.column_stack([y, np.where(np.arange(200) < 10, np.nan, y)])) == {}
    assert missing_notes({}) == []


def test_counts_below_ten_are_suppressed():
    died = np.r_[np.ones(12), np.zeros(188)]
    home = np.where(np.arange(200) < 197, np.nan, 1.0)
    facts = masking(["died", "home"], np.column_stack([died, home]))
    assert facts == {"known": 0, "of": 200, "missing": {"home": 197}, "events": {"died": [0, 12]}}
    first, second = missing_notes({"masked": facts})
    assert "rests on fewer than 10 of 200 admissions" in first
    assert second.endswith("died fewer than 10 of 12.")


def recipe_of(name: str) -> dict:
    small = {"encoder": {"width": 8}}
    settings = {
        "table": {},
        "deep": {
            **small,
            "posterior": {"members": 2, "epochs": 1},
            "distil": {"epochs": 2},
            "collapse": {"method": "sum"},
        },
        "paper": {**small, "optimiser": {"stage1_epochs": 1, "stage2_epochs": 1, "batch": 64}},
    }
    return {
        "recipe": name,
        "config": {**settings[name], **({} if name == "table" else {"selection": {"anchor": "died"}})},
    }


@pytest.mark.parametrize("name", ["table", pytest.param("deep", marks=pytest.mark.slow), "paper"])
def test_each_recipe_reports_the_admissions_behind_its_cutoff(name):
    """Long stay is known for only a third of the admissions."""
    rng = np.random.default_rng(0)
    codes = [[code] for code in rng.choice(["I50.9", "E11.9", "J44.9"], 360)]
    died = np.array([code == ["I50.9"] for code in codes]) * (rng.random(360) < 0.7).astype(float)
    stayed = np.where(np.arange(360) % 3 == 0, rng.random(360) < 0.4, np.nan)
    index = MLCI(**recipe_of(name)).fit(codes, {"died": died, "stayed": stayed}, icd_version=10)
    messages = [text for text in outcome_notes(index.model_.card) if "rests on" in text]
    assert len(messages) == 1
    assert "those where all its outcomes are known: stayed is missing for" in messages[0]
    assert ("learned from such admissions only" in messages[0]) == (name == "paper")
