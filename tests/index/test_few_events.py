import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.cohort import build_cohort
from mlci.index._few_events import outcome_notes, refuse_few, shortfalls
from mlci.index.estimator import MLCI
from mlci.measures.discrimination import calibration, log_losses


def test_too_few_events_are_reported_with_the_number_needed():
    rare, frequent = np.zeros(4000), np.tile([0.0, 1.0], 2000)
    rare[:80] = 1
    found = shortfalls(["rare", "frequent"], np.column_stack([rare, frequent]))
    assert found == {"rare": {"admissions": 10291, "events": 206}}
    [message] = outcome_notes({"needed": found, "positives": {"rare": 80}, "admissions": {"train": 4000}})
    assert "rare has few events (80 in 4,000 training admissions)" in message
    assert "need 10,291 admissions, 206 of them" in message
    assert "(" not in outcome_notes({"needed": found})[0]  # a small count is not shown
    assert outcome_notes({}) == []


def test_an_outcome_left_out_of_the_cutoff_is_named():
    """Patients who died were not discharged, so nobody died among admissions with both outcomes known."""
    codes, died = [["I50.9"], ["E11.9"]] * 60, np.tile([1.0, 0.0], 60)
    home = np.where(died == 1, np.nan, np.arange(120) % 4 < 2)
    index = MLCI().fit(codes, {"died": died, "home": home}, icd_version=10)
    messages = [text for text in outcome_notes(index.model_.card) if "no part in the cutoff" in text]
    assert len(messages) == 1
    assert messages[0].startswith("died has no part in the cutoff of high severity: it has one class only among the")
    assert messages[0].endswith("(home is missing wherever it is present).")


def test_fewer_than_five_events_are_refused_unless_allowed():
    codes, died = [["I50.9"], ["E11.9"]] * 30, [1] * 4 + [0] * 56
    with pytest.raises(InputError, match=r"died: fewer than 5 training admissions have it, or lack it.*--few-events"):
        refuse_few(["died"], np.array(died)[:, None])
    split = ["train"] * 56 + ["valid"] * 4
    with pytest.raises(InputError, match="fewer than 5"):
        MLCI(few_events=False).fit(codes, {"died": died}, icd_version=10, split=split)
    refuse_few(["died"], np.array([*died, 1])[:, None])
    with pytest.raises(InputError, match=r"died is not known for any training admission; leave it out"):
        refuse_few(["died"], np.full((60, 1), np.nan))
    with pytest.raises(InputError, match=r"no admission is in the split train"):
        refuse_few(["died"], np.empty((0, 1)))


@pytest.mark.slow
def test_a_small_hospital_gets_risks_that_hold_elsewhere():
    """1,000 admissions with 20 deaths, evaluated on others; `benchmarks/small_hospitals.py` repeats it eight times."""
    cohort = build_cohort("synthetic", 6000, seed=3)
    rng, died = np.random.default_rng(0), cohort.labels("mortality")[:, 0] == 1
    chosen = np.zeros(len(cohort), dtype=bool)
    chosen[rng.choice(np.flatnonzero(died), 20, replace=False)] = True
    chosen[rng.choice(np.flatnonzero(~died), 980, replace=False)] = True
    small, others = cohort.where(chosen), cohort.where(~chosen)
    labels = dict(zip(small.outcomes, small.labels().T))
    index = MLCI().fit(small.table.select(["codes", "icd_version"]), labels, subjects=small.column("subject_id"))
    assert "mortality" in index.model_.card["needed"]
    table = index.table(others)
    risk, y = table["risk_mortality"].to_numpy(), others.labels("mortality")[:, 0]
    assert risk.min() > 1e-4
    assert log_losses(risk, y).mean() < log_losses(np.full(len(y), 0.02), y).mean()
    assert 0.5 < calibration(risk, y).slope < 1.6
    assert 0.06 < np.mean(table["percentile"] >= 90) < 0.14
