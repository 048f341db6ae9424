"""The report claims no more than its intervals support."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlci.measures.intervals import Interval
from mlci.showing._words import rounded
from mlci.showing.report import _say as say
from mlci.showing.report._compute import compute
from mlci.showing.report._findings import Findings
from mlci.showing.report._render import _varied
from toys import random_index, toy_cohort


@pytest.fixture(scope="module")
def findings() -> Findings:
    cohort = toy_cohort(400)
    return compute(random_index(cohort, table=True).model_, cohort, resamples=20)


def aurocs(*gaps: tuple[str, str, float, float]) -> pd.DataFrame:
    return pd.DataFrame(gaps, columns=["model", "outcome", "gap_low", "gap_high"])


def test_a_side_is_taken_only_where_the_interval_leaves_out_nothing():
    frame = aurocs(
        ("Charlson", "mortality", 0.01, 0.09),
        ("Elixhauser", "mortality", 0.02, 0.08),
        ("Charlson", "long_stay", 0.01, 0.09),
        ("Elixhauser", "long_stay", -0.01, 0.05),  # above on paper, yet not by its interval
        ("Charlson", "icu_transfer", 0.01, 0.09),
        ("Elixhauser", "icu_transfer", -0.05, -0.01),
        ("Charlson", "died", np.nan, np.nan),
        ("Elixhauser", "died", 0.01, 0.05),
    )
    found = say.verdicts(frame, ["Charlson", "Elixhauser"])
    assert found == {
        "better": ["mortality"],
        "too close to call": ["long_stay", "died"],
        "worse": ["icu_transfer"],
    }


def test_the_headline_has_all_three_verdicts(findings):
    frame = aurocs(
        *((name, "mortality", 0.01, 0.09) for name in ("Charlson", "Elixhauser")),
        *((name, "long_stay", -0.02, 0.09) for name in ("Charlson", "Elixhauser")),
        ("Age and sex", "mortality", -0.09, -0.01),
    )
    first, second, last = say.headline(replace(findings.judgement, aurocs=frame))
    assert first == (
        "Compared with Charlson and Elixhauser, the index ranks admissions better for in-hospital mortality; "
        "is neither clearly better nor clearly worse for long stay."
    )
    assert last.startswith("At or above its cutoff, ")
    assert "died in hospital" in last
    one, *rest = findings.judgement.cut.contrasts
    never = replace(one, above=replace(one.above, positives=0), below=replace(one.below, positives=0))
    cut = replace(findings.judgement.cut, contrasts=(never, *rest))
    assert "died" not in say.headline(replace(findings.judgement, aurocs=frame, cut=cut))[-1]  # nobody did
    assert second == "Compared with age and sex alone, the index ranks admissions worse for in-hospital mortality."


def test_weak_points_are_named(findings):
    one = findings.judgement.outcomes[0]
    groups = one.groups
    true = replace(groups, score=groups.risk, low=groups.risk - 0.01, high=groups.risk + 0.01)
    strong = replace(one, n=5000, positives=900, groups=true, figures={"slope": Interval(1.05, 0.99, 1.11)})
    assert say.weak([strong]) == []
    few = replace(strong, positives=42)
    assert say.weak([few]) == ["In-hospital mortality: only 42 events, so every figure is rough."]
    none, single = (say.weak([replace(strong, positives=many)])[0] for many in (0, 1))
    assert none == "In-hospital mortality: no events, so every figure is rough."
    assert single == "In-hospital mortality: only 1 event, so every figure is rough."
    assert "only 1 admission without it" in say.weak([replace(strong, positives=4999)])[0]
    assert "only 42 admissions without it" in say.weak([replace(strong, positives=4958)])[0]
    steep = replace(strong, figures={"slope": Interval(0.7, 0.6, 0.8)})
    assert "predicted risks are too extreme (calibration slope 0.70, 0.60 to 0.80)" in say.weak([steep])[0]
    rough = replace(strong, figures={"slope": Interval(0.7, 0.3, 1.1)})
    assert say.weak([rough]) == []
    off = replace(strong, groups=replace(true, score=np.append(true.score[:-1], 2 * true.risk[-1])))
    assert "in the top tenth of predicted risk" in say.weak([off])[0]


def test_red_flags(findings):
    def said(**changes) -> str:
        return " ".join(say.flags(replace(findings, people=replace(findings.people, **changes))))

    assert said() == ""
    assert "The admissions are synthetic" in said(source="synthetic")
    assert "learned from synthetic admissions" in " ".join(say.flags(replace(findings, made={"source": "synthetic"})))
    assert "ICD mismatch: 90 of 100 recorded codes are ICD-9, but the index was made for ICD-10" in said(
        foreign={9: 90}, codes=100
    )
    assert "354 of 354 recorded codes (100%) are unknown" in said(codes=354, unknown=354)
    assert "unknown" not in said(codes=1000, unknown=99)
    assert "no test split" in said(held_out=False)
    assert "Not evaluated: died and cost, because the index has no risk by those names. It has mortality" in said(
        others=("died", "cost")
    )
    nothing = replace(findings, judgement=None, why_not="all scores are alike")
    assert say.flags(nothing) == ["The index could not be evaluated: all scores are alike."]


def test_the_cutoff_has_its_range(findings):
    cut = findings.judgement.cut
    text = say.cutoff_range(cut)
    assert f"the cutoff would be {rounded(cut.chosen_here.value, 3)}" in text
    assert f"{rounded(cut.chosen_here.low, 3)} to {rounded(cut.chosen_here.high, 3)}" in text
    for one, caught in zip(cut.contrasts, cut.sensitivities):
        assert caught.rate == one.above.positives / (one.above.positives + one.below.positives)


def test_refits_are_reported_per_outcome_with_the_change_in_risks(findings):
    rows = [("died", figure, 0.8, 0.79, 0.01, 0.78, 0.8) for figure in ("auroc", "risk_auroc", "deviance")]
    rows += [("died", "risk moved", np.nan, 0.02, 0.01, 0.01, 0.03)]
    rows += [("score", "rank correlation", np.nan, 0.9, 0, 0, 1)]
    rows += [("score", "moved by a tenth", np.nan, 0.3, 0, 0, 1)]
    frame = pd.DataFrame(rows, columns=["outcome", "figure", "value", "mean", "sd", "least", "largest"])
    told = _varied(replace(findings, refits=2, varied=frame))
    assert told is not None
    assert (told["times"], told["correlation"], told["moved"]) == (2, 0.9, 0.3)
    [row] = told["rows"]
    assert len(row["cells"]) == len(told["names"]) == 3
    assert row["moved"] == 0.02


def test_outcomes_are_called_by_their_labels_in_what_a_reader_must_know_first(findings):
    needed = {"mortality_30d": {"admissions": 9000, "events": 200}}
    masked = {"known": 60, "of": 80, "missing": {"long_stay": 20}, "events": {"mortality": [0, 20]}}
    made = {**findings.made, "needed": needed, "masked": masked, "no_part_in_cutoff": {"icu_transfer": "it is rare"}}
    told = " ".join(say.flags(replace(findings, made=made)))
    for name in ("mortality_30d", "long_stay", "icu_transfer"):
        assert name not in told
    for words in ("30-day mortality has few events", "long stay is missing for 20", "ICU transfer has no part"):
        assert words in told
