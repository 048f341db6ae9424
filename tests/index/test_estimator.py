import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import mlci
from mlci.base.errors import InputError
from mlci.codes.admissions import as_admissions
from mlci.config import EncoderConfig, OptimiserConfig, PaperConfig, PenaltyConfig, TableConfig, TokenConfig
from mlci.index._aggregates import LEAST
from mlci.index.estimator import MLCI, load
from mlci.judging.smooth import smooth
from toys import CODES, code_lists, random_model, toy_cohort, toy_outcomes

pytestmark = pytest.mark.usefixtures("without_cross_fit")

QUICK = PaperConfig(encoder=EncoderConfig(width=16), optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=2))
PATIENTS = code_lists(1500)
OUTCOMES = toy_outcomes(PATIENTS)


def untrained(**options) -> MLCI:
    index = MLCI()
    index.model_ = random_model(**options)
    return index


@pytest.fixture(scope="module")
def fitted() -> MLCI:
    return MLCI(config=QUICK, seed=3).fit(toy_cohort(1500))


def test_conventions_of_scikit_learn(fitted):
    index = MLCI(config=QUICK, seed=5, anchor="long_stay")
    assert index.get_params() == clone(index).get_params()
    assert index.set_params(seed=7) is index
    assert index.seed == 7
    with pytest.raises(NotFittedError):
        index.score([["A000"]])
    assert not hasattr(clone(fitted), "model_")


def test_score_is_one_float_per_admission_in_order(fitted):
    cohort = toy_cohort(1500)
    scores = fitted.score(cohort)
    assert scores.dtype == np.float64
    assert scores.shape == (1500,)
    lists = cohort.table["codes"].to_pylist()
    frame = pd.DataFrame({"admission_id": range(1500), "codes": lists})
    for data in (lists, frame, pl.from_pandas(frame), frame.explode("codes").rename(columns={"codes": "code"})):
        np.testing.assert_array_equal(fitted.score(data, icd_version=10), scores)
    dotted = [[f"{code[:3]}.{code[3:]}".lower() for code in each] for each in lists]
    np.testing.assert_array_equal(fitted.score(dotted), scores)


def test_score_increases_with_severity_on_held_out_admissions():
    """Patients who died score higher than the others."""
    cohort = toy_cohort(3000, seed=2)
    index = MLCI(
        config=PaperConfig(encoder=EncoderConfig(width=32), optimiser=OptimiserConfig(stage1_epochs=2, stage2_epochs=4))
    )
    test = cohort.split("test")
    score, died = index.fit(cohort).score(test), test.labels("mortality")[:, 0]
    pairs = score[died == 1][:, None] > score[died == 0]
    assert pairs.mean() > 0.65


def test_lists_frames_and_cohorts_give_the_same_fit(fitted):
    cohort = toy_cohort(1500)
    outcomes = pd.DataFrame({name: cohort.table[name].to_pylist() for name in cohort.outcomes})
    lists, split = cohort.table["codes"].to_pylist(), cohort.column("split")
    for labels in (outcomes, pl.from_pandas(outcomes), outcomes.to_dict("list")):
        again = MLCI(config=QUICK, seed=3).fit(lists, labels, split=split, icd_version=10)
        np.testing.assert_array_equal(again.score(cohort), fitted.score(cohort))


def test_without_a_split_about_one_subject_in_eight_is_for_validation():
    subjects = np.arange(len(PATIENTS)) // 3
    index = MLCI(config=QUICK).fit(PATIENTS, OUTCOMES, subjects=subjects)
    counts = index.model_.card["admissions"]
    assert sum(counts.values()) == len(PATIENTS)
    assert 0.08 < counts["valid"] / len(PATIENTS) < 0.18
    assert counts["valid"] % 3 == 0  # no subject is divided


def test_outcomes_may_be_many_and_have_any_name():
    names = [f"outcome {number}: ü/?" for number in range(20)]
    config = PaperConfig(encoder=EncoderConfig(width=8), optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=1))
    cohort = toy_cohort(200, names=names)
    index = MLCI(config=config, anchor=names[4]).fit(cohort)
    assert list(index.risk(cohort).columns) == names
    some = MLCI(config=config, anchor=names[4], outcomes=names[3:5]).fit(cohort)
    assert list(some.model_.outcomes) == names[3:5]
    assert some.model_.outcomes[names[3]] == f"rule of {names[3]}"


def test_risks_increase_with_the_score_and_the_table_has_every_column(fitted):
    cohort = toy_cohort(300, seed=9)
    risk, table = fitted.risk(cohort), fitted.table(cohort)
    assert list(risk.columns) == ["mortality", "long_stay"]
    order = np.argsort(fitted.score(cohort))
    for name in risk:
        assert risk[name].between(0, 1).all()
        assert risk[name].iloc[order].is_monotonic_increasing
        np.testing.assert_array_equal(table[f"risk_{name}"], risk[name])
    assert list(table["admission_id"]) == list(range(300))
    assert {"score", "percentile", "high_severity", "unknown_share"} < set(table)


def test_a_saved_index_scores_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "m.safetensors")
    again = mlci.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.score(PATIENTS), fitted.score(PATIENTS))
    assert again.get_params()["config"] == QUICK
    assert again.seed == 3
    assert isinstance(again, mlci.MLCI)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_equal_seeds_give_equal_files_and_other_seeds_other_files(fitted, tmp_path):
    fitted.save(tmp_path / "a")
    MLCI(config=QUICK, seed=3).fit(toy_cohort(1500)).save(tmp_path / "b")
    MLCI(config=QUICK, seed=4).fit(toy_cohort(1500)).save(tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


@pytest.mark.filterwarnings("ignore:.*have more than 5 codes")
@pytest.mark.parametrize("max_codes", [256, 5])
def test_effect_of_a_code_is_the_change_when_it_is_left_out(max_codes):
    index = untrained(max_codes=max_codes)
    codes = ["A00.0", "I012", "ZZ99", "A000", "J021", "N011", "B002"]
    effects = index.explain(codes)
    score = index.score([codes])[0]
    assert [effect.code for effect in effects] == ["A000", "I012", "ZZ99", "A000", "J021", "N011", "B002"]
    for position, effect in enumerate(effects):
        without = index.score([codes[:position] + codes[position + 1 :]])[0]
        assert effect.score_without == without
        assert effect.effect == score - without
    assert [effect.known for effect in effects] == [True, True, False, True, True, True, True]
    assert effects[0].title == "Cholera due to Vibrio cholerae 01, biovar cholerae"
    assert effects[2].title is None
    assert tuple(index.explain([])) == ()
    assert not effects.additive


def test_columns_of_a_frame_may_have_the_names_of_what_a_cohort_has():
    plain = pd.DataFrame({"codes": [["I50.9"], ["E11.9"]] * 40, "icd_version": 10, "age": 50.0, "sex": ["F", "M"] * 40})
    more = plain.assign(admissions=[3, 1] * 40, look_back=30, table="x")
    died = {"mortality": [1, 0] * 40}
    index, again = (MLCI(config={"people": {"age": True, "sex": True}}).fit(data, died) for data in (plain, more))
    assert again.model_.card == index.model_.card
    np.testing.assert_array_equal(again.score(more), index.score(plain))
    np.testing.assert_array_equal(again.risk(more), index.risk(plain))


def test_importance_leaves_out_codes_that_no_admission_has():
    whole = as_admissions([["A000", "A001"], ["B010"]], icd_version=10)
    assert set(untrained().importance(whole.take(np.array([0])))["code"]) == {"A000", "A001"}


def test_importance_is_the_mean_of_effects():
    index = untrained()
    patients = code_lists(80, seed=4)
    frame = index.importance(patients).set_index("code")
    each = [(effect.code, effect.effect) for codes in patients for effect in index.explain(codes)]
    slow = pd.DataFrame(each, columns=["code", "effect"]).groupby("code")["effect"]
    np.testing.assert_allclose(frame["mean_effect"], slow.mean()[frame.index], atol=1e-12)
    np.testing.assert_allclose(
        frame["mean_absolute_effect"], slow.apply(lambda e: e.abs().mean())[frame.index], atol=1e-12
    )
    assert frame.loc["A000", "admissions"] == sum("A000" in codes for codes in patients)
    assert frame["mean_absolute_effect"].is_monotonic_decreasing


def test_codes_beyond_the_first_256_have_no_effect():
    effects = untrained().explain(list(itertools.islice(itertools.cycle(CODES), 10_000)))
    assert len(effects) == 10_000
    assert all(effect.effect == 0 for effect in effects[256:])


def test_scoring_warns_about_codes_the_model_was_not_made_for():
    with pytest.warns(UserWarning, match="codes are") as caught:
        untrained().score([["4280"]], icd_version=9)
    assert ["made for ICD-10" in str(caught[0].message), "unknown" in str(caught[1].message)] == [True, True]


def test_rare_codes_are_left_out_of_the_vocabulary():
    rare = [*PATIENTS[:-3], *[["Q999"]] * 3]
    config = PaperConfig(TokenConfig(min_admissions=10), QUICK.encoder, optimiser=QUICK.optimiser)
    split = ["valid" if row % 8 == 0 else "train" for row in range(len(rare))]
    assert "Q999" not in MLCI(config=config).fit(rare, OUTCOMES, split=split).model_.vocabulary.tokens
    assert "Q999" in MLCI(config=QUICK).fit(rare, OUTCOMES, split=split).model_.vocabulary.tokens


def test_card_has_validation_figures_and_risks_have_intervals(fitted):
    model = fitted.model_
    assert set(model.card["validation"]) == set(model.outcomes)
    for figures in model.card["validation"].values():
        assert figures["n"] - figures["positives"] >= LEAST <= figures["positives"]
        assert 0.5 < figures["auroc_low"] < figures["auroc"] < figures["auroc_high"] < 1
        assert figures["observed_low"] < figures["expected"] < figures["observed_high"]
    reading = model.read(as_admissions(PATIENTS[:50], icd_version=10))
    intervals = model.intervals(reading)
    for name, risk in model.risks(reading).items():
        low, high = intervals[name]
        assert ((low > 0) & (low < risk) & (risk < high) & (high < 1)).all()


def changed(**changes):
    outcomes = {**OUTCOMES, **changes}
    return {name: values for name, values in outcomes.items() if values is not None}


@pytest.mark.parametrize(
    ("outcomes", "options", "message"),
    [
        (changed(long_stay=[0] * 1500), {}, "long_stay is 0 wherever it is known"),
        (changed(long_stay=[None] * 1500), {}, "long_stay is never known"),
        (changed(long_stay=[2] * 1500), {}, "column long_stay, row 0: a whole number is not allowed"),
        (changed(long_stay=["yes"] * 1500), {}, "row 0: text of 3 characters is not allowed"),
        (changed(long_stay=[0, 1]), {}, "has 2 values for 1500 admissions"),
        (changed(mortality=None), {}, "anchor 'mortality' is not among the outcomes long_stay"),
        ([1, 2], {}, "has 2 values for 1500 admissions"),
        (None, {}, "needs outcomes with the codes"),
        ({}, {}, "needs outcomes with the codes"),
        (OUTCOMES, {"split": ["train"] * 1500}, "validation split has no admissions"),
        (OUTCOMES, {"split": ["train"]}, "split: has 1 values for 1500"),
        (OUTCOMES, {"subjects": [1, 2]}, "subjects: has 2 values for 1500"),
        (OUTCOMES, {"split": ["train", "Valid"] * 750}, "split: text of 5 characters is not a split; allowed"),
    ],
)
def test_bad_outcomes_raise_one_sentence(outcomes, options, message):
    with pytest.raises(InputError, match=message):
        MLCI(config=QUICK).fit(PATIENTS, outcomes, **options)


def test_invalid_input_and_settings_raise_an_error():
    with pytest.raises(InputError, match=r"each admission needs a list of strings"):
        untrained().score([[38.9]])
    with pytest.raises(InputError, match="no outcome sepsis; it has mortality, long_stay"):
        MLCI(outcomes=["sepsis"]).fit(toy_cohort(50))
    with pytest.raises(InputError, match="recipe is 'best'; allowed are table, deep, paper"):
        MLCI(recipe="best").fit(toy_cohort(50))
    with pytest.raises(InputError, match="device is 'abacus'"):
        MLCI(device="abacus").fit(toy_cohort(50))
    with pytest.raises(InputError, match="name is 'gru'; allowed is 'deepsets'"):
        MLCI(config=PaperConfig(encoder=EncoderConfig(name="gru"))).fit(toy_cohort(50))
    with pytest.raises(InputError, match="has its own outcomes"):
        MLCI().fit(toy_cohort(50), OUTCOMES)
    for index, cohort in ((MLCI(outcomes=[]), toy_cohort(50)), (MLCI(), replace(toy_cohort(50), outcomes={}))):
        with pytest.raises(InputError, match="no outcome is given to learn from"):
            index.fit(cohort)
    for lists in ([], [["A000"], ["A001"]]):
        with pytest.raises(InputError, match=f"explain: takes one admission, not {len(lists)}"):
            untrained().explain(as_admissions(lists, icd_version=10))
    frame = pd.DataFrame({"visit_id": [1], "DX1": ["I50.9"]})
    for wrong, got in ((frame, "DataFrame"), (None, "NoneType"), ("I50.9", "str"), ([["I50.9"]], "a list of lists")):
        with pytest.raises(InputError, match=f"explain: expected a list of codes of one admission, .*; got {got}"):
            untrained().explain(wrong)


def test_an_outcome_that_is_named_twice_counts_once(tmp_path):
    codes, died = [["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}
    for name, outcomes in (("once", ["mortality"]), ("twice", ["mortality"] * 2)):
        MLCI(outcomes=outcomes).fit(codes, died, icd_version=10).save(tmp_path / name)
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes()


def test_an_admission_without_a_patient_is_a_patient_of_its_own(tmp_path):
    """In a cohort as with codes, in memory as on disk, whether patients are numbers or text."""
    cohort = toy_cohort(200)
    known = np.arange(200) // 2
    for name, known_as in (("number", known), ("text", [f"p{number:03}" for number in known])):
        subjects = pa.array(known_as, mask=np.arange(200) % 3 == 0)
        place = cohort.table.column_names.index("subject_id")
        partly = replace(cohort, table=cohort.table.set_column(place, "subject_id", subjects))
        partly.write(tmp_path / "cohort.parquet")
        partly = mlci.read_cohort(tmp_path / "cohort.parquet")
        options = {"outcomes": ["long_stay"], "config": {"penalty": {"folds": 2}}}
        MLCI(**options).fit(partly, cluster="subject_id").save(tmp_path / f"{name}_clusters")
        for way, folder in (("memory", None), ("disk", tmp_path / f"{name}_tokens")):
            MLCI(**options).fit(tmp_path / "cohort.parquet", memory_map=folder).save(tmp_path / f"{name}_{way}")
    files = {(tmp_path / f"{name}_{way}").read_bytes() for name in ("number", "text") for way in ("memory", "disk")}
    assert len(files) == 1
    assert load(tmp_path / "text_clusters").model_.card["tokens_of_one_patient"] >= 0
    with_codes = [["I50.9"], ["E11.9"]] * 40
    ids = [None if place % 3 else f"p{place}" for place in range(80)]
    assert MLCI().fit(with_codes, {"died": [1, 0] * 40}, icd_version=10, subjects=ids).score(with_codes).std() > 0


def test_load_is_a_public_name():
    assert mlci.load is load


def test_a_fit_needs_no_validation_split():
    lists, died = [["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}
    index = MLCI().fit(lists, died, icd_version=10, split=["train"] * 80)
    assert index.model_.cutoff.held_out is None
    mild, severe = index.score([["E11.9"], ["I50.9"]], icd_version=10)
    assert severe > mild


def test_without_a_validation_split_bands_use_cross_fitted_scores():
    rng = np.random.default_rng(0)
    lists = [[f"A{code:02d}" for code in rng.choice(90, 4, replace=False)] for _ in range(300)]
    random = {"mortality": rng.integers(0, 2, 300)}
    config = TableConfig(penalty=PenaltyConfig(common=1.0, own=1.0))  # so weak that the fit overfits
    model = MLCI(config=config).fit(lists, random, icd_version=10, split=["train"] * 300).model_
    band, in_sample = (
        model.bands["mortality"],
        smooth(model.read(model.as_admissions(lists, icd_version=10)).log_odds[:, 0], random["mortality"]),
    )
    assert np.ptp(in_sample.logit) > 3
    assert np.ptp(band.logit) < 1  # outcomes at random cannot be predicted
