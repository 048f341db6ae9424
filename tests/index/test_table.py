import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions, as_admissions
from mlci.index import _table
from mlci.index._table import curve
from mlci.index.model import Model, load_model
from mlci.tokens import PRINCIPAL
from toys import NESTED_CODES, nested_code_lists, random_table

MODELS = {
    "plain": random_table(),
    "principal": random_table(primary=True),
    "few codes": random_table(max_codes=3),
    "ignored": random_table(ignored=("10:A00", "10:B012")),
}
codes = st.lists(st.sampled_from([*NESTED_CODES[:40], "A019", "ZZZ", "ZZZ1"]), max_size=10)


def slow_log_odds(model: Model, codes: list[str]) -> np.ndarray:
    """Return log-odds by the definition: each distinct prefix adds its weight once."""
    vocabulary = model.vocabulary
    ignored = tuple(text.split(":")[1] for text in vocabulary.ignored)
    codes = [code for code in codes if not (ignored and code.startswith(ignored))][: vocabulary.max_codes]
    tokens = {code[:depth] for code in codes for depth in vocabulary.depths}
    if vocabulary.primary and codes:
        tokens |= {PRINCIPAL + codes[0][:depth] for depth in vocabulary.depths}
    rows = [place + 2 for place, token in enumerate(vocabulary.tokens) if token in tokens]
    return model.state["intercepts"] + model.state["weights"][rows].sum(axis=0)


@pytest.mark.parametrize("name", MODELS)
@given(admissions=st.lists(codes, max_size=8))
@settings(max_examples=25, deadline=None)
def test_each_prefix_counts_once(name, admissions):
    model = MODELS[name]
    expected = [slow_log_odds(model, each) for each in admissions]
    data = Admissions.from_lists(admissions, icd_version=10)
    found = model.read(data).log_odds
    np.testing.assert_allclose(found, np.reshape(expected, (-1, 2)), atol=1e-12)
    # the same from every token, not only the deepest ones
    np.testing.assert_array_equal(model.scorer.read(model.vocabulary.encode(data)).log_odds, found)


@given(admission=codes, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_scores_depend_neither_on_order_nor_on_the_batch(admission, seed):
    shuffled = np.random.default_rng(seed).permutation(np.array(admission, dtype=object)).tolist()
    model = MODELS["plain"]
    alone, *many = (
        model.score(Admissions.from_lists(lists, icd_version=10))
        for lists in ([admission], [shuffled], [*nested_code_lists(3), admission])
    )
    assert {alone[0]} == {scores[-1] for scores in many}


def test_scores_do_not_depend_on_the_block_size(monkeypatch):
    model, lists = MODELS["plain"], nested_code_lists(200)
    whole = model.read(as_admissions(lists, icd_version=10))
    monkeypatch.setattr(_table, "ROWS", 16)
    parts = model.read(as_admissions(lists, icd_version=10))
    np.testing.assert_array_equal(parts.score, whole.score)
    np.testing.assert_array_equal(parts.log_odds, whole.log_odds)


def test_log_odds_of_an_outcome_do_not_depend_on_other_outcomes():
    """Outcomes are summed in pairs; of an odd number, the last one has no partner."""
    scorer = MODELS["plain"].scorer
    tokens = scorer.encode(Admissions.from_lists(nested_code_lists(9), icd_version=10))
    first = {name: values[:, :1] if name == "weights" else values[:1] for name, values in scorer.state.items()}
    found = replace(scorer, state=first).read(tokens).log_odds
    np.testing.assert_allclose(found[:, 0], scorer.read(tokens).log_odds[:, 0], atol=1e-12)


def test_scoring_imports_nothing_of_fitting_and_judging(tmp_path):
    """For a small file most of the time is start-up, so curves and cutoffs are applied with NumPy only."""
    MODELS["plain"].save(tmp_path / "m.safetensors")
    lists = nested_code_lists(_table.ROWS + 1)  # a whole block of admissions, and one more
    pq.write_table(pa.table({"admission_id": range(len(lists)), "codes": lists}), tmp_path / "a.parquet")
    program = (
        "import sys; from mlci.cli import main; "
        f"sys.argv = ['mlci', 'score', *{[str(tmp_path / name) for name in ('m.safetensors', 'a.parquet')]!r}, '-qo', "
        f"{str(tmp_path / 's.parquet')!r}]\ntry:\n main()\nfinally:\n print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, check=True).stdout.split()
    heavy = {"scipy", "sklearn", "pandas", "pydantic", "duckdb", "ibis", "rich", "narwhals", "threadpoolctl"}
    assert not ({*heavy, "mlci.config", "mlci.fitting._data", "mlci.judging.curves", "mlci.measures"} & set(loaded))
    assert pq.read_metadata(tmp_path / "s.parquet").num_rows == len(lists)


def test_score_and_risks_follow_from_the_log_odds():
    model, data = MODELS["plain"], as_admissions(nested_code_lists(50), icd_version=10)
    reading = model.read(data)
    risks = model.risks(reading)
    for column, name in enumerate(model.outcomes):
        shift, slope = model.state["calibration"][column]
        expected = 1 / (1 + np.exp(-shift - slope * reading.log_odds[:, column]))
        np.testing.assert_allclose(risks[name], expected, rtol=1e-12)
    curves = zip(reading.log_odds.T, model.state["knots"], model.state["heights"])
    np.testing.assert_allclose(reading.score, sum(curve(*each) for each in curves), atol=1e-12)


def test_an_outcome_without_log_odds_has_its_risk_from_the_score():
    model = MODELS["plain"]
    more = replace(
        model, outcomes={**model.outcomes, "cost": ""}, curves={**model.curves, "cost": model.curves["mortality"]}
    )
    reading = more.read(as_admissions(nested_code_lists(9), icd_version=10))
    np.testing.assert_array_equal(more.risks(reading)["cost"], more.curves["cost"](reading.score))


def test_curves_continue_with_the_last_slope_beyond_the_knots():
    knots, heights = np.array([0.0, 1.0, 3.0]), np.array([1.0, 3.0, 4.0])
    np.testing.assert_allclose(curve(np.array([-2.0, 0, 0.5, 1, 2, 3, 5]), knots, heights), [-3, 1, 2, 3, 3.5, 4, 5])


@pytest.mark.parametrize("points", [2, 12, 300])
def test_a_curve_equals_linear_interpolation(points):
    rng = np.random.default_rng(points)
    knots, heights = np.sort(rng.normal(size=points)), np.cumsum(rng.gamma(1, 1, points))
    x = np.concatenate([rng.uniform(knots[0], knots[-1], 2000), knots])
    np.testing.assert_array_equal(curve(x, knots, heights), np.interp(x, knots, heights))


def test_a_saved_table_loads_unchanged(tmp_path):
    model, data = MODELS["principal"], as_admissions(nested_code_lists(30), icd_version=10)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.vocabulary == model.vocabulary
    for name, column in model.columns(data).items():
        np.testing.assert_array_equal(again.columns(data)[name], column)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.zeros((3, 2))},
        {"knots": np.zeros((2, 12))},
        {"heights": np.full((2, 12), np.inf)},
        {"intercepts": np.zeros(2, dtype=np.float32)},
        {"more": np.zeros(2)},
    ],
)
def test_inconsistent_arrays_are_refused(change, tmp_path):
    model = MODELS["plain"]
    replace(model, state={**model.state, **change}).save(tmp_path / "m")
    with pytest.raises(InputError, match="does not have the parts"):
        load_model(tmp_path / "m")


def test_short_and_long_arrays_give_the_same_curve():
    rng = np.random.default_rng(0)
    knots, heights = np.sort(rng.normal(size=12)), np.cumsum(rng.random(12))
    x = np.concatenate([rng.normal(size=200) * 2, knots])  # at the knots too
    assert np.array_equal(curve(x, knots, heights), [curve(x[i : i + 1], knots, heights)[0] for i in range(len(x))])
