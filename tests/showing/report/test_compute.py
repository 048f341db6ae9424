"""Every part of the report works with few data: demos of a hundred admissions, one outcome, three deaths."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mlci
from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.index.recalibrate import recalibrate
from mlci.judging import rivals
from mlci.measures.discrimination import auroc, calibration
from mlci.showing.report import _say as say
from mlci.showing.report import build
from mlci.showing.report._compute import compute, levels
from mlci.showing.report._draw import of_part
from mlci.showing.report._findings import Codes
from toys import random_index, random_model, toy_cohort

pytestmark = pytest.mark.usefixtures("empty_figures")  # what is read here is the text
WORDS = re.compile(r"<style>.*?</style>|<svg.*?</svg>|<[^>]+>", re.DOTALL)


def text_of(page: str) -> str:
    return " ".join(WORDS.sub(" ", page).split())


def read(index, cohort: Cohort, **options) -> str:
    """Return the text of the page, and check that it does not contain nan."""
    text = text_of(build(index, cohort, command="mlci report", resamples=20, **options))
    assert "nan" not in re.findall(r"\w+", text.lower())
    return text


@pytest.mark.parametrize("source", ["mimic3", "mimic4"])
def test_a_demo_of_a_hundred_admissions(source, demos):
    cohort = mlci.build_cohort(source, demos / f"{source}_demo")
    text = read(random_index(cohort), cohort)
    assert "Weak points" in text
    assert "events, so every figure is rough" in text
    assert ("No code occurs in at least 10 of these" in text) == (source == "mimic4")


def changed(cohort: Cohort, **columns) -> Cohort:
    """Return the cohort with columns added or replaced."""
    table = cohort.table
    for name, values in columns.items():
        place = table.column_names.index(name) if name in table.column_names else None
        table = table.append_column(name, values) if place is None else table.set_column(place, name, values)
    return replace(cohort, table=table)


def with_people(cohort: Cohort) -> Cohort:
    rng, n = np.random.default_rng(1), len(cohort)
    return changed(
        cohort,
        age=pa.array(rng.integers(18, 95, n), mask=rng.random(n) < 0.1),
        sex=pa.array(rng.choice(["F", "M"], n)),
    )


def deaths(cohort: Cohort, many: int) -> Cohort:
    """Return the cohort with this number of deaths among the test admissions."""
    died, test = cohort.labels("mortality")[:, 0] == 1, np.flatnonzero(cohort.column("split") == "test")
    died[test] = False
    died[test[:many]] = True
    return changed(cohort, mortality=pa.array(died))


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return toy_cohort(150)


def weighted_for_death_alone(cohort: Cohort) -> Cohort:
    """Return the cohort with weights, which are 0 wherever the length of stay is known."""
    known = np.arange(len(cohort)) % 2 == 0
    return changed(
        cohort,
        long_stay=pa.array(
            [value if told else None for value, told in zip(cohort.labels("long_stay")[:, 0] == 1, known)]
        ),
        weight=pa.array(np.where(known, 0.0, 2.0)),
    )


SMALL = {
    "thirty test admissions": lambda cohort: cohort,
    "three deaths": lambda cohort: deaths(cohort, 3),
    "no death": lambda cohort: deaths(cohort, 0),
    "age and sex": with_people,
    "no test split": lambda cohort: cohort.split("train"),
    "test split alone": lambda cohort: cohort.split("test"),
    "an outcome nobody knows": lambda cohort: changed(cohort, long_stay=pa.nulls(len(cohort), pa.bool_())),
}


@pytest.mark.parametrize("case", SMALL)
def test_small_cohorts(case, cohort):
    text = read(random_index(cohort, table="death" in case), SMALL[case](cohort))
    assert "Limits of use" in text
    assert ("Age and sex" in text) == (case == "age and sex")


def test_an_outcome_that_only_admissions_of_weight_0_know():
    cohort = weighted_for_death_alone(toy_cohort(600))
    figures = compute(random_index(cohort).model_, cohort, resamples=20, drawn={"weights": "weight"})
    assert [outcome.name for outcome in figures.judgement.outcomes] == ["mortality"]
    assert "Limits of use" in read(random_index(cohort), cohort, drawn={"weights": "weight"})


def test_one_outcome():
    one = toy_cohort(150, names=("mortality",))
    index = random_index(one)
    index.model_ = replace(index.model_, card={**index.model_.card, "weights": {"mortality": 2.0}})
    text = read(index, one)
    assert "With one outcome there is no shared direction" in text
    assert "Rank-one alignment" not in text
    assert text.split("Limits of use")[1].count("shared direction") == 1
    stated = re.findall(r"The nHSIC of the score with in-hospital mortality is ([\d.]+)\.", text)
    assert stated == re.findall(r"Best monotone In-hospital mortality ([\d.]+)", text)


def test_outcomes_that_the_index_does_not_have_are_named_as_everywhere():
    cohort = toy_cohort(150, names=("mortality", "long_stay", "mortality_30d"))
    text = read(random_index(toy_cohort(150)), cohort)
    assert "Not evaluated: mortality_30d, because the index has no risk by that name. It has mortality and long" in text
    assert "30-day mortality" in text.split("The cohort by split")[1].split("How good is it")[0]
    assert "Mortality_30d" not in text
    fewer = replace(cohort, outcomes={name: cohort.outcomes[name] for name in ("mortality", "mortality_30d")})
    assert "It has mortality and long_stay. Build" in read(random_index(toy_cohort(150)), fewer)


def test_a_cutoff_is_that_of_the_outcomes_by_which_it_was_chosen(cohort):
    """A cohort may know fewer outcomes than the index; those here do not tell how its cutoff was chosen."""
    fewer = replace(cohort, outcomes={"mortality": cohort.outcomes["mortality"]})
    text = read(random_index(cohort), fewer)
    assert (
        "the direction that the outcomes share (outcomes weighted as in the fit: in-hospital mortality 0.50 and long "
        "stay 1.50)"
    ) in text
    assert "On the admissions of this report (for in-hospital mortality), the same cut reaches" in text
    assert "Chosen on these admissions (for in-hospital mortality), by the same rule and weights" in text
    index = random_index(cohort)
    assert "these admissions (" not in read(index, cohort)
    index.model_ = recalibrate(index.model_, fewer).model  # its new cutoff is of mortality alone
    text = read(index, fewer)
    assert "it is the one most aligned with in-hospital mortality. Its certificate" in text
    assert "these admissions (" not in text


def test_groups_that_are_too_small_are_named(cohort):
    small, none = (read(random_index(cohort), each) for each in (with_people(cohort), cohort))
    assert "Groups by sex and age band are not shown: no group has 10 admissions" in small
    assert "The groups by sex and age band are too small to be compared." in small
    assert "The cohort has neither sex nor age" not in small
    assert "The cohort has neither sex nor age, so no groups are compared." in none
    many = deaths(with_people(toy_cohort(1500)), 9)
    shown = read(random_index(many), many)
    assert "AUROC by sex, with 95% interval Group In-hospital mortality Long stay F few" in shown


def test_a_row_of_merged_groups_is_of_the_outcomes_that_need_it():
    """Deaths are few in two bands of age, long stays in none: a dash says so, where “few” would be wrong."""
    cohort = toy_cohort(3000)
    rng, n = np.random.default_rng(3), len(cohort)
    band = rng.integers(0, 4, n)
    died = np.where(band < 2, False, rng.random(n) < 0.2)
    for young in (0, 1):
        died[np.flatnonzero((band == young) & (cohort.column("split") == "test"))[:6]] = True
    table = cohort.table.append_column("age", pa.array(np.array([30, 50, 70, 80])[band].astype(np.int16)))
    place = table.column_names.index("mortality")
    cohort = replace(cohort, table=table.set_column(place, "mortality", pa.array(died)))
    shown = read(random_index(cohort), cohort).split("AUROC by age band, with 95% interval")[1].split("Observed")[0]
    figure = r"[\d.]+ [\d.]+ to [\d.]+"
    rows = [
        f"18 to 44 few {figure}",
        f"45 to 64 few {figure}",
        *(f"{age} {figure} {figure}" for age in ("65 to 74", "75 to 84")),
    ]
    assert re.fullmatch(
        rf" Group In-hospital mortality Long stay {' '.join(rows)} 18 to 44 or 45 to 64 {figure} – ", shown
    )


def test_a_recalibrated_index_says_so():
    cohort = toy_cohort(400)
    index = random_index(cohort)
    index.model_ = recalibrate(index.model_, cohort).model
    text = read(index, cohort)
    then = "risks, percentiles and cutoff were then fitted to 320 admissions of the data called “a made-up hospital”."
    assert f"Its {then} It knows" in text
    assert text.count(f"The index was updated: its {then}") == 4  # data, imbalance, differences, updating
    assert "without updating" not in text
    assert "training and validation admissions and then fitted to others" in text
    chosen = "chosen on training and validation admissions of the cohort “a made-up hospital”"
    assert text.count(f"cutoff was {chosen};") == text.count(f"from a cutoff {chosen}.") == 1  # page and TRIPOD+AI


def test_rivals_are_those_of_evaluate_whatever_the_seed(cohort, monkeypatch):
    """Of many training admissions the rivals are fitted to a sample, the same in report, card and evaluate."""
    monkeypatch.setattr(rivals, "LEARNED", 60)
    people = with_people(cohort)
    train, judged = people.split("train"), people.split("test")
    odds = rivals.refitted(train, judged, ["mortality"])["Age and sex"]["mortality"]
    expected = auroc(odds, judged.labels("mortality")[:, 0])
    found = compute(random_index(people).model_, people, resamples=20, seed=7).judgement.aurocs
    of = found[(found["model"] == "Age and sex") & (found["outcome"] == "mortality")]
    assert of["value"].tolist() == [pytest.approx(expected, abs=1e-12)]


def test_the_largest_influence_may_lower_the_score():
    frame = pd.DataFrame({"code": ["I10", "E11.9"], "title": ["a", "b"], "tells": "", "mean_effect": [-0.01, -0.3]})
    (sketch,) = of_part(Codes(frame, frame, 50), 0.0)
    assert sketch.alternative.endswith("the largest is E11.9 b (−0.300).")


def test_an_index_of_another_icd_version_gives_no_verdict(cohort):
    index = random_index(cohort)
    index.model_ = random_model(version=9)
    index.model_ = replace(index.model_, outcomes=dict(cohort.outcomes))
    text = read(index, cohort)
    assert "ICD mismatch" in text
    assert "The index could not be evaluated: fewer than half of the recorded codes are known" in text
    assert "AUROC" not in text.replace("TRIPOD", "").split("Limits of use")[0]
    assert "not known died" not in text


def test_admissions_that_are_not_understood_are_not_scored(cohort):
    codes = cohort.table["codes"].to_pylist()
    test = np.flatnonzero(cohort.column("split") == "test")[:5]
    for row in test:
        codes[row] = ["QQQ1", "QQQ2", codes[row][0] if codes[row] else "QQQ3"]
    odd = changed(cohort, codes=pa.array(codes, pa.list_(pa.string())))
    findings = compute(random_index(cohort).model_, odd, resamples=20)
    assert findings.people.unscored == 5
    known = np.isin(np.arange(len(cohort)), test, invert=True) & (cohort.column("split") == "test")
    died = cohort.where(known).labels("mortality")[:, 0]
    assert findings.judgement.outcomes[0].n == np.sum(~np.isnan(died))
    assert "In 5 of 30 admissions, fewer than half" in " ".join(say.flags(findings))


def test_one_weighting_for_every_cutoff(cohort):
    """The weights of the fit, by which the model's cutoff was chosen, are those of the cuts found here."""
    from mlci.judging import theory

    index = random_index(cohort)
    weights = [index.model_.card["weights"][name] for name in cohort.outcomes]
    assert len(set(weights)) > 1
    found = compute(index.model_, cohort, resamples=20).judgement
    test = cohort.split("test")
    chosen = theory.cutoff(index.model_.score(test.admissions()), test.labels(), list(cohort.outcomes), weights=weights)
    assert found.cut.chosen_here.value == found.diagnosis.shared.threshold.score == chosen.score
    assert found.cut.chosen_here.low <= found.cut.chosen_here.value <= found.cut.chosen_here.high
    assert found.diagnosis.weights == tuple(weights)


def test_own_risks_are_a_rival_if_they_rank_differently(cohort):
    """And so does what the score alone explains, by the model's curve over it."""
    test = cohort.split("test")
    for table in (False, True):
        index = random_index(cohort, table=table)
        found = compute(index.model_, cohort, resamples=20).judgement
        assert ("MLCI, own risks" in set(found.aurocs["model"])) == table
        for outcome in found.outcomes:
            assert ("score_deviance" in outcome.figures) == table
            if table:
                y, score = test.labels(outcome.name)[:, 0], index.model_.score(test.admissions())
                expected = calibration(index.model_.curves[outcome.name](score), y).deviance
                assert outcome.figures["score_deviance"].value == pytest.approx(expected)


def test_the_record_of_any_recipe_is_shown(cohort):
    """Its tables may begin with a name or a number, and have gaps."""
    index = random_index(cohort, table=True)
    table = {
        "title": "What was tried",
        "columns": ["Penalty", "AUROC", "Kept"],
        "rows": [[0.125, 0.8, None], ["mortality", 7, "yes"]],
    }
    curve = {"title": "How it went", "lines": {"Validation split": [0.1, 0.2]}, "kept": 2, "unit": "R²"}
    index.model_ = replace(index.model_, card={**index.model_.card, "record": {"tables": [table], "curves": [curve]}})
    text = read(index, cohort)
    assert "What was tried Penalty AUROC Kept 0.125 0.8 – In-hospital mortality 7 yes" in text
    assert "How it went" in text


def test_groups_along_the_score_lie_apart():
    """Groups are spaced evenly on the normal scale; a few admissions make two groups."""
    from scipy.special import ndtri

    place = ndtri(levels(50_000))
    np.testing.assert_allclose(np.diff(place), np.diff(place)[0])
    assert np.all(np.diff(np.concatenate([[0], levels(500), [1]])) * 500 >= 5)
    assert len(levels(30)) == 1


def test_a_cohort_without_the_outcomes_is_refused(cohort):
    with pytest.raises(InputError, match="none of the model's outcomes"):
        compute(random_index(cohort).model_, replace(cohort, outcomes={}))
