import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, logit
from threadpoolctl import threadpool_limits

from mlci.base.errors import InputError
from mlci.cohort import Cohort
from mlci.index._few_events import outcome_notes
from mlci.index.citation import methods
from mlci.index.model import load_model
from mlci.index.modelcard import LIMITS, model_card
from mlci.index.provenance import provenance
from mlci.index.recalibrate import recalibrate
from mlci.judging.kept import Isotonic, Smooth
from toys import nested_code_lists, random_model, random_table, record_blas_threads

MODEL = random_table()


def hospital(n: int, *, shift: float, slope: float, seed: int = 0) -> Cohort:
    """Return a cohort with the model's risks after a shift and slope, and an outcome new to the model, `thirty`."""
    rng, lists = np.random.default_rng(seed), nested_code_lists(n, seed=seed)
    table = pa.table(
        {
            "admission_id": np.arange(n),
            "subject_id": np.arange(n),
            "icd_version": np.full(n, 10, dtype=np.int8),
            "codes": pa.array(lists, pa.list_(pa.string())),
            "split": np.where(np.arange(n) % 10 < 7, "train", np.where(np.arange(n) % 10 < 8, "valid", "test")),
        }
    )
    cohort = Cohort(table, "a hospital", {})
    reading = MODEL.read(cohort.admissions())
    risks = MODEL.risks(reading)
    odds = {name: shift + slope * np.log(risk / (1 - risk)) for name, risk in risks.items()}
    odds["thirty"] = -1.5 + 1.5 * reading.score
    for name, each in odds.items():
        table = table.append_column(name, pa.array(rng.random(n) < 1 / (1 + np.exp(-each))))
    return Cohort(table, "a hospital", {name: f"rule of {name}" for name in odds})


def test_risks_become_those_of_the_hospital_and_scores_stay_the_same():
    cohort = hospital(4000, shift=1.0, slope=0.6)
    done = recalibrate(MODEL, cohort)
    admissions = cohort.admissions()
    np.testing.assert_array_equal(done.model.score(admissions), MODEL.score(admissions))
    table = done.table.set_index("outcome")
    for name in MODEL.outcomes:
        assert table.loc[name, "log_loss_after"] < table.loc[name, "log_loss_before"]
        assert table.loc[name, "expected_after"] == pytest.approx(table.loc[name, "observed"], abs=0.03)
    assert np.isnan(table.loc["thirty", "expected_before"])
    assert table.loc["thirty", "expected_after"] == pytest.approx(table.loc["thirty", "observed"], abs=0.04)
    assert abs(done.model.percentile(np.median(MODEL.score(admissions))) - 50) < 3
    assert done.kept == ()


def test_few_events_hardly_change_a_risk_and_too_few_raise_an_error():
    cohort = hospital(4000, shift=1.0, slope=1.0)
    read = MODEL.read(cohort.admissions())
    changes = []
    for n in (150, 3000):
        some = recalibrate(MODEL, cohort.where(np.arange(4000) < n)).model
        changes.append(np.abs(some.risks(read)["mortality"] - MODEL.risks(read)["mortality"]).mean())
    assert changes[0] < changes[1]
    with pytest.raises(InputError, match="has 20 admissions with it"):
        recalibrate(MODEL, cohort.where(np.arange(4000) < 25))


def test_a_network_is_recalibrated_by_its_curves():
    cohort, model = hospital(1000, shift=1.0, slope=0.6), random_model()
    done = recalibrate(model, cohort)
    assert set(done.model.outcomes) == {*model.outcomes, "thirty"}
    risk = done.model.risks(done.model.read(cohort.admissions()))
    assert all(((each > 0) & (each < 1)).all() for each in risk.values())


@pytest.mark.parametrize("kind", ["smooth", "isotonic"])
def test_the_log_odds_of_a_curve_get_a_shift_and_a_slope(kind):
    cohort, knots, log_odds = hospital(1000, shift=1.0, slope=0.6), np.array([-1.0, 0.0, 1.0]), np.array([-5, -3, 1])
    curve = Isotonic(knots, expit(log_odds)) if kind == "isotonic" else Smooth(knots, log_odds, np.full(3, 0.2))
    before = replace(random_model(), curves=dict.fromkeys(random_model().outcomes, curve))
    after = recalibrate(before, cohort).model
    score = knots if kind == "isotonic" else np.linspace(-2, 2, 41)
    for name in before.outcomes:
        old, new = (logit(model.curves[name](score)) for model in (before, after))
        slope, shift = np.polyfit(old, new, 1)
        np.testing.assert_allclose(new, shift + slope * old, atol=1e-9)
        assert slope > 0
    bounded = {"thirty", *(before.outcomes if kind == "smooth" else ())}
    assert set(after.intervals(after.read(cohort.admissions()))) == bounded


def test_intervals_contain_the_uncertainty_of_the_recalibration():
    """The true risks of a hospital lie in their intervals, also if training left hardly any uncertainty."""
    band = Smooth(np.array([-6.0, -2.0, 0.0, 3.0]), np.arange(4.0), np.full(4, 0.01))
    model = replace(MODEL, bands=dict.fromkeys(MODEL.outcomes, band))
    held, as_in_training = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shift, slope = rng.normal(0, 0.3), np.exp(rng.normal(0, 0.15))
        cohort = hospital(600, shift=shift, slope=slope, seed=seed)
        after = recalibrate(model, cohort).model
        reading = model.read(cohort.admissions())
        intervals = after.intervals(reading)
        for name, risk in model.risks(reading).items():
            truth, (low, high) = shift + slope * logit(risk), intervals[name]
            held.append(np.mean((logit(low) <= truth) & (truth <= logit(high))))
            as_in_training.append(np.mean(np.abs(logit(after.risks(reading)[name]) - truth) <= 1.96 * 0.01 * slope))
    assert np.mean(held) > 0.9
    assert np.mean(as_in_training) < 0.3


@pytest.mark.parametrize("kind", ["curve", "band"])
def test_fewer_admissions_give_wider_intervals(kind):
    cohort, knots = hospital(4000, shift=0.5, slope=1.0), np.array([-3.0, 0.0, 2.0])
    curves = dict.fromkeys(MODEL.outcomes, Smooth(knots, np.array([-3.0, -1.0, 1.0]), np.full(3, 0.1)))
    model = replace(random_model(), curves=curves) if kind == "curve" else replace(MODEL, bands=curves)
    widths = []
    for n in (300, 4000):
        after = recalibrate(model, cohort.where(np.arange(4000) < n)).model
        low, high = after.intervals(after.read(cohort.admissions()))["mortality"]
        widths.append(np.median(logit(high) - logit(low)))
    assert widths[0] > 1.05 * widths[1]


def test_where_an_outcome_falls_as_its_risk_rises_every_risk_is_the_rate():
    cohort = hospital(4000, shift=-6.0, slope=-1.0)
    table = recalibrate(MODEL, cohort).table.set_index("outcome")
    for name in MODEL.outcomes:
        assert table.loc[name, "auroc_after"] == 0.5
        assert table.loc[name, "expected_after"] == pytest.approx(table.loc[name, "observed"], abs=0.03)


def test_the_card_of_a_recalibrated_model_describes_the_hospital():
    cohort = hospital(4000, shift=1.0, slope=0.6)
    before = replace(MODEL, card={**MODEL.card, "source": "nhds", "weights": dict.fromkeys(MODEL.outcomes, 1.0)})
    done = recalibrate(before, cohort)
    reached, table = done.model.card["validation"], done.table.set_index("outcome")
    for name in ("mortality", "thirty"):
        assert reached[name]["n"] == table.loc[name, "held_out"] == 800
        assert reached[name]["expected"] == pytest.approx(table.loc[name, "expected_after"])
        assert reached[name]["observed"] == pytest.approx(table.loc[name, "observed"])
    others = "3,200 admissions of the data called “a hospital”"
    assert str(provenance(done.model)).endswith(f"then recalibrated on {others}")
    then = f"Its risks, percentiles and cutoff were then fitted to {others}. AUROC of the score on their test split: "
    assert then in methods(done.model)
    card = model_card(done.model)
    assert f"- **Recalibrated**: on {others}; how good it is was judged there.\n" in card
    assert "in addition to the score; of thirty from a risk curve over the score.\n" in card
    known = {name: rule for name, rule in cohort.outcomes.items() if name != "long stay"}
    assert LIMITS[2] not in card
    kept = recalibrate(before, replace(cohort, outcomes=known)).model
    assert str(provenance(kept)).endswith(f"then recalibrated on {others}, except long stay")
    assert f"were then fitted to {others}. The risks of long stay were not." in methods(kept)
    card = model_card(kept)
    assert f"- **Recalibrated**: on {others}, except the risks of long stay; how good it is was judged there.\n" in card
    assert "| Long stay | more than 7 days | not said | not said | not said |" in card
    several = replace(kept, outcomes=dict.fromkeys(("mortality", "long stay", "a fall", "delirium"), ""))
    assert provenance(several).unchanged == "long stay, a fall and delirium"


def test_what_the_card_says_of_the_cutoff_is_of_the_new_cutoff():
    stale = {"masked": {"known": 60, "of": 80, "missing": {"mortality": 20}, "events": {}}}
    before = replace(MODEL, card={**MODEL.card, **stale, "no_part_in_cutoff": {"long stay": "it is never present"}})
    cohort = hospital(1000, shift=1.0, slope=0.6)
    assert outcome_notes(recalibrate(before, cohort).model.card) == []
    table, died = cohort.table, cohort.table["mortality"].to_pylist()
    known = [each if row % 4 else None for row, each in enumerate(died)]
    table = table.set_column(table.column_names.index("mortality"), "mortality", pa.array(known))
    (note,) = outcome_notes(recalibrate(before, replace(cohort, table=table)).model.card)
    assert note.startswith("The cutoff of high severity rests on 600 of 800 admissions")


def elsewhere(n: int) -> Cohort:
    """Return a cohort in which some codes have other weights than in the model, and one code is new."""
    cohort, rng = hospital(n, shift=0.0, slope=1.0), np.random.default_rng(3)
    lists = [[*codes, *(["Z999"] if rng.random() < 0.3 else [])] for codes in cohort.table["codes"].to_pylist()]
    odds = [sum(2.0 if code[:3] in ("I50", "Z99") else -0.5 for code in codes) for codes in lists]
    table = cohort.table.set_column(3, "codes", pa.array(lists, pa.list_(pa.string())))
    for name in ("mortality", "thirty"):
        position = table.column_names.index(name)
        table = table.set_column(position, name, pa.array(rng.random(n) < 1 / (1 + np.exp(1.0 - np.array(odds)))))
    return Cohort(table, "elsewhere", {name: cohort.outcomes[name] for name in ("mortality", "thirty")})


@pytest.fixture(scope="module")
def other_hospital():
    """Return another hospital, in which one code occurs once, and the model with weights updated to it."""
    cohort = elsewhere(1500)
    lists = cohort.table["codes"].to_pylist()
    lists[0].append("Q999")
    cohort = Cohort(cohort.table.set_column(3, "codes", pa.array(lists, pa.list_(pa.string()))), "", cohort.outcomes)
    return cohort, recalibrate(MODEL, cohort, update="weights")


def test_weights_change_if_the_admissions_support_it(other_hospital):
    cohort, updated = other_hospital
    recalibrated = recalibrate(MODEL, cohort)
    for name in ("mortality", "thirty"):
        areas = [each.table.set_index("outcome").loc[name, "auroc_after"] for each in (recalibrated, updated)]
        assert areas[1] > areas[0] + 0.05
    model = updated.model
    assert (10, "Z999") in set(zip(model.vocabulary.versions, model.vocabulary.tokens))  # a new row
    assert "Q999" not in model.vocabulary.tokens  # too rare for a row
    assert list(model.outcomes) == [*MODEL.outcomes, "thirty"]  # with weights of its own
    assert model.state["weights"].shape[1] == len(MODEL.outcomes) + 1
    admissions = cohort.admissions()
    kept = [list(MODEL.outcomes).index(name) for name in MODEL.outcomes if name != "mortality"]
    before, after = (each.scorer.risks(each.read(admissions)) for each in (MODEL, model))
    np.testing.assert_allclose(after[:, kept], before[:, kept])  # the hospital does not have these outcomes
    assert abs(model.percentile(np.median(model.score(admissions))) - 50) < 10


def test_weights_hardly_change_if_the_model_is_right():
    cohort = hospital(1000, shift=0.0, slope=1.0)
    done = recalibrate(MODEL, cohort, update="weights")
    shares = done.model.card["updated"]["shares"]
    assert shares["as it was"] + shares["recalibrated"] > 0.7
    scores = [model.score(cohort.admissions()) for model in (MODEL, done.model)]
    assert np.corrcoef(*scores)[0, 1] > 0.95


def test_the_weights_of_a_network_cannot_be_updated():
    with pytest.raises(InputError, match="needs a model of the recipe table"):
        recalibrate(random_model(), hospital(500, shift=1.0, slope=1.0), update="weights")
    with pytest.raises(InputError, match="allowed are risks and weights"):
        recalibrate(MODEL, hospital(200, shift=1.0, slope=1.0), update="codes")


def test_a_model_with_updated_weights_is_saved_and_scores(mlci_cli, tmp_path, empty_figures):
    MODEL.save(tmp_path / "m.safetensors")
    elsewhere(800).write(tmp_path / "cohort.parquet")
    words = ["recalibrate", "m.safetensors", "cohort.parquet", "-o", "mine.safetensors", "--update", "weights"]
    stderr = mlci_cli(*words, "--page", "page.html").stderr
    assert "The weights are a mixture, chosen on left-out patients: the table" in stderr
    assert "AUROC" in (tmp_path / "page.html").read_text()
    mlci_cli("score", "mine.safetensors", "cohort.parquet", "-o", "scores.csv")
    again = recalibrate(load_model(tmp_path / "mine.safetensors"), elsewhere(800), update="weights").model
    unexplained = again.card["updated"]["unexplained"]
    assert unexplained["as it was"] < unexplained["own"] + 0.01  # after one update, the model fits


def test_the_command_writes_model_and_page(mlci_cli, tmp_path, empty_figures):
    MODEL.save(tmp_path / "m.safetensors")
    hospital(1500, shift=1.0, slope=0.6).write(tmp_path / "cohort.parquet")
    words = ["recalibrate", "m.safetensors", "cohort.parquet", "-o", "mine.safetensors", "--page", "page.html"]
    stderr = mlci_cli(*words).stderr
    assert "mortality: mean risk before" in stderr
    assert "nan" not in stderr
    assert load_model(tmp_path / "mine.safetensors").card["recalibrated"]["admissions"] == 1200
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 5  # two outcomes before and after, and the new one
    assert "did not know this outcome before" in page


def test_an_outcome_without_a_risk_is_not_said_to_keep_one(mlci_cli, tmp_path):
    MODEL.save(tmp_path / "m.safetensors")
    cohort = hospital(1500, shift=1.0, slope=0.6)
    recalibrate(MODEL, cohort).model.save(tmp_path / "thirty.safetensors")  # with a curve of `thirty` over its score
    place, known = cohort.table.column_names.index("thirty"), {"mortality": "died", "thirty": "died within 30 days"}
    none = cohort.table.set_column(place, "thirty", pa.array([False] * 1500))
    Cohort(none, "a hospital", known).write(tmp_path / "none.parquet")
    Cohort(cohort.table.drop_columns("thirty"), "a hospital", {"mortality": "died"}).write(tmp_path / "less.parquet")
    few = "thirty: the model has no risk of it; fewer than 20 admissions have it, or do not have it."
    for words in (["m.safetensors", "none.parquet"], ["thirty.safetensors", "none.parquet", "--update", "weights"]):
        assert few in mlci_cli("recalibrate", *words, "-o", "mine.safetensors").stderr
    words = ["recalibrate", "thirty.safetensors", "none.parquet", "-o", "mine.safetensors"]
    assert "thirty: its risk was kept" in mlci_cli(*words).stderr
    words = ["recalibrate", "thirty.safetensors", "less.parquet", "--update", "weights", "-o", "mine.safetensors"]
    assert "thirty: its risk was read from the former score and is left out." in mlci_cli(*words).stderr


def test_risks_are_fitted_by_one_thread_of_blas(monkeypatch):
    """The last digits must not depend on the number of the machine's cores."""
    seen = record_blas_threads(monkeypatch, sys.modules[recalibrate.__module__], "_fitted")
    with threadpool_limits(2, user_api="blas"):
        recalibrate(MODEL, hospital(800, shift=1.0, slope=0.6))
    assert set(seen) == {1}
