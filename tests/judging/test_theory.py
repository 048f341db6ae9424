import json
import subprocess
import sys
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracles
from mlci.base.errors import InputError
from mlci.judging import theory
from mlci.judging.theory import _checks as checks
from mlci.judging.theory._ascent import best_monotone

NAMES = ["mortality", "long_stay", "icu_transfer"]


@st.composite
def cases(draw, tasks: int = 3):
    """Draw scores, often tied, outcomes that each have both classes, and weights."""
    n = draw(st.integers(6, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    score = rng.normal(size=n) if draw(st.booleans()) else rng.integers(0, 6, n).astype(float)
    outcomes = (score[:, None] + rng.normal(0, 2, (n, tasks)) > rng.normal(size=tasks)).astype(float)
    assume(np.ptp(score) > 0 and (np.ptp(outcomes, axis=0) > 0).all())
    return score, outcomes, rng.uniform(0.3, 2, tasks)


def hospital(n: int = 4_000, seed: int = 0):
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    outcomes = (score[:, None] + rng.normal(size=(n, 3)) > [2.2, 0.8, 1.6]).astype(float)
    outcomes[rng.random(n) < 0.05, 1] = np.nan
    return score, outcomes


def gram(score, sigma):
    """Return the dense centred RBF Gram matrix."""
    n = len(score)
    centring = np.eye(n) - 1 / n
    return centring @ np.exp(-((score[:, None] - score) ** 2) / (2 * sigma**2)) @ centring


@given(cases())
def test_scan_equals_brute_force(case):
    score, outcomes, _ = case
    found = theory.scan(score, outcomes)
    for column, outcome in enumerate(outcomes.T):
        np.testing.assert_allclose(found.rho[:, column], oracles.threshold_scan(score, outcome), atol=1e-10)
        best = found.best(column)
        assert (score >= best.score).sum() == best.tail
        assert (score < best.score).sum() == best.split


@given(cases())
def test_diagnosis_equals_the_formulas_of_the_paper_with_whole_matrices(case):
    score, outcomes, weights = case
    found = theory.diagnose(score, outcomes, NAMES, weights=weights, sigma=0.9, floor=0.0)
    profiles = outcomes - outcomes.mean(axis=0)
    stacked = (np.sqrt(weights) * profiles / np.linalg.norm(profiles, axis=0)).T
    _, values, right = np.linalg.svd(stacked, full_matrices=False)
    kernel = gram(score, 0.9)
    norm = np.linalg.norm(kernel)
    np.testing.assert_allclose(found.singular_values, values, atol=1e-7)
    assert found.energy == pytest.approx(values[0] ** 2 / (stacked**2).sum())
    assert found.objective == pytest.approx(np.sum(kernel * (stacked.T @ stacked)) / norm, abs=1e-9)
    assert 0 <= found.retention <= 1 + 1e-9
    if values[0] - values[1] > 1e-3:  # else v is not unique
        v = right[0]
        assert found.projected == pytest.approx(values[0] ** 2 * (v @ kernel @ v) / norm, abs=1e-6)
        scan = oracles.threshold_scan(score, v) ** 2
        assert found.shared.threshold.rho2 == pytest.approx(scan.max(), abs=1e-6)
    labels = outcomes[:, 0][:, None] == outcomes[:, 0]
    centring = np.eye(len(score)) - 1 / len(score)
    labels = centring @ labels @ centring
    assert found.tasks[0].nhsic == pytest.approx(np.sum(kernel * labels) / norm / np.linalg.norm(labels), abs=1e-9)
    joint = sum(w * oracles.threshold_scan(score, y) ** 2 for w, y in zip(weights, outcomes.T))
    assert found.best_objective.rho2 * np.sqrt((values**4).sum()) == pytest.approx(joint.max(), abs=1e-9)


@given(cases(), st.floats(1e-3, 1e3))
def test_retention_does_not_depend_on_the_floor(case, floor):
    score, outcomes, weights = case
    free = theory.diagnose(score, outcomes, NAMES, weights=weights, sigma=1.0, floor=0.0)
    floored = theory.diagnose(score, outcomes, NAMES, weights=weights, sigma=1.0, floor=floor)
    assert floored.retention == pytest.approx(free.retention)
    assert floored.objective <= free.objective * (1 + 1e-12)
    assert floored.projected <= floored.objective * (1 + 1e-9)


@given(cases(), st.floats(0.1, 5), st.data())
def test_alignment_of_two_levels_is_rho_squared_for_any_gap(case, gap, data):
    score, outcomes, _ = case
    scan = theory.scan(score, outcomes)
    row = data.draw(st.integers(0, len(scan.split) - 1))
    levels = np.where(score >= scan.score[row], gap, 0.0)
    found = theory.diagnose(levels, outcomes, NAMES, sigma=1.0, floor=0.0)
    np.testing.assert_allclose([task.nhsic for task in found.tasks], scan.rho[row] ** 2, atol=1e-8)


@given(cases(tasks=1), st.data())
def test_certificate_is_one_only_for_a_step(case, data):
    score, outcomes, _ = case
    cut = data.draw(st.sampled_from(np.unique(score)[1:].tolist()))
    step = (score >= cut).astype(float)
    assert theory.cutoff(score, step, ["a"]).certificate == pytest.approx(1)
    assert theory.cutoff(score, step, ["a"]).score == cut
    assert theory.best_spacing(score, step, cuts=None).certificate == pytest.approx(1)
    is_step = any(np.array_equal(outcomes[:, 0], score >= c) for c in np.unique(score)[1:])
    is_step |= any(np.array_equal(outcomes[:, 0], score < c) for c in np.unique(score)[1:])
    assert (theory.cutoff(score, outcomes, ["a"]).certificate > 1 - 1e-9) == is_step


@given(cases())
def test_spacing_is_optimal(case):
    score, outcomes, weights = case
    found = theory.best_spacing(score, outcomes, weights, cuts=None)
    value, _ = oracles.spacing_by_nnls(score, outcomes, weights)
    assert found.value == pytest.approx(value)
    assert found.certificate >= found.threshold - 1e-12
    assert found.certificate <= 1 + 1e-12


@settings(max_examples=25)
@given(cases())
def test_spaced_score_attains_its_value_and_no_other_monotone_score_beats_it(case):
    score, outcomes, weights = case
    found = theory.best_spacing(score, outcomes, weights, cuts=None)

    def value(candidate):
        return sum(w * oracles.dcor.distance_correlation(candidate, y) ** 2 for w, y in zip(weights, outcomes.T))

    assert value(found.apply(score)) == pytest.approx(found.value)
    ranks = np.searchsorted(np.unique(score), score)
    rng = np.random.default_rng(len(score))
    for heights in (np.ones(99), rng.exponential(size=99), rng.pareto(0.5, size=99)):
        assert value(np.cumsum(heights)[ranks]) <= found.value + 1e-9


def test_certificates_are_ordered():
    found = theory.diagnose(*hospital(), NAMES)
    for task in (found.shared, *found.tasks):
        assert task.threshold.rho2 <= task.monotone <= 1
    score, outcomes = hospital()
    known = ~np.isnan(outcomes[:, 1])
    alone = theory.best_spacing(score[known], outcomes[known, 2], cuts=None)
    assert found.tasks[2].monotone == pytest.approx(alone.certificate)


def test_a_spacing_with_few_cuts_loses_little_and_carries_over():
    score, outcomes = hospital(40_000)
    every, few = (theory.best_spacing(score, outcomes, cuts=cuts) for cuts in (None, 300))
    assert 0.99 * every.certificate < few.certificate <= every.certificate
    assert len(few.cuts) <= 300
    again = theory.Spacing.from_dict(json.loads(json.dumps(few.to_dict())))
    new = np.random.default_rng(3).normal(size=100)
    np.testing.assert_array_equal(again.apply(new), few.apply(new))
    assert (np.diff(few.apply(np.sort(new))) >= 0).all()
    assert few.apply([-np.inf, np.inf]).tolist() == [0, 1]


def test_applying_a_cutoff_or_spacing_imports_only_numpy():
    probe = (
        "import sys, mlci.judging.theory as t; t.Cutoff(1.0, .5, 1, 2, ()).flag([1, 2]);"
        "t.Spacing.from_dict({'cuts': [1], 'levels': [1], 'value': 1, 'bound': 1, 'threshold': 1}).apply([1]);"
        "print(any(m in sys.modules for m in ('sklearn', 'scipy', 'pandas', 'pyarrow')))"
    )
    done = subprocess.run([sys.executable, "-c", probe], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "False"


def test_cutoff_counts_both_sides_and_survives_json():
    score, outcomes = hospital()
    found = theory.cutoff(score, outcomes, NAMES)
    assert found == theory.Cutoff.from_dict(json.loads(json.dumps(found.to_dict())))
    high = found.flag(score)
    assert high.sum() == found.tail
    for contrast, column in zip(found.contrasts, outcomes.T):
        assert contrast.above.rate == pytest.approx(np.nanmean(column[high]))
        assert contrast.below.rate == pytest.approx(np.nanmean(column[~high]))
        assert contrast.above.n + contrast.below.n == (~np.isnan(column)).sum()
        assert contrast.above.low <= contrast.above.rate <= contrast.above.high
    diagnosis = theory.diagnose(score, outcomes, NAMES)
    assert found.score == diagnosis.shared.threshold.score
    assert found.certificate == pytest.approx(diagnosis.shared.threshold.rho2)


def test_protocol_paper_follows_the_code_of_the_authors():
    score, outcomes = hospital(9_000)
    found = theory.diagnose(score, outcomes, NAMES, protocol="paper", sample=1_000)
    rows = np.flatnonzero(~np.isnan(outcomes).any(axis=1))
    rows = rows[np.random.default_rng(12345).choice(len(rows), 1_000, replace=False)]
    s = 2 * (score[rows] - score[rows].min()) / np.ptp(score[rows]) - 1
    i, j = np.random.default_rng(12345).integers(0, 1_000, (2, 20_000))
    sigma = np.median(np.abs(s[i] - s[j]))
    kernel = gram(s, sigma)
    y = outcomes[rows, 0] - outcomes[rows, 0].mean()
    assert found.n == 1_000
    assert found.sigma == pytest.approx(sigma)
    assert found.tasks[0].nhsic == pytest.approx(y @ kernel @ y / np.linalg.norm(kernel) / (y @ y))
    assert len(found.scan.split) == 999
    assert found.objective == pytest.approx(theory.diagnose(score, outcomes, NAMES).objective, rel=0.15)


def test_split_ties_cut_everywhere():
    score, direction = np.array([0.0, 1, 1, 1, 2]), np.arange(5.0)
    assert theory.scan(score, direction).split.tolist() == [1, 4]
    assert theory.scan(score, direction, ties="split").split.tolist() == [1, 2, 3, 4]


@settings(max_examples=30)
@given(cases(tasks=1), st.floats(0.01, 1))
def test_noise_averaging_lemma_holds(case, sd):
    score, outcomes, _ = case
    rng = np.random.default_rng(1)
    found = theory.noise_average(score, outcomes[:, 0], sd=sd, rng=rng, sigma=1.0, draws=10)
    difference = np.abs(found.realised - found.averaged)
    assert (difference[found.applies] <= found.bound[found.applies] + 1e-12).all()


def test_mean_kernel_is_the_mean_of_many_draws():
    score, outcomes = hospital(60)
    found = theory.noise_average(score, outcomes[:, 2], sd=0.3, rng=np.random.default_rng(0), sigma=0.8, draws=1)
    rng = np.random.default_rng(5)
    mean = np.mean([gram(score + rng.normal(0, 0.3, len(score)), 0.8) for _ in range(4_000)], axis=0)
    y = outcomes[:, 2] - outcomes[:, 2].mean()
    assert found.tau == pytest.approx(np.linalg.norm(mean), rel=0.01)
    assert found.averaged == pytest.approx(y @ mean @ y / np.linalg.norm(mean) / (y @ y), rel=0.01)


def test_outcomes_that_cannot_be_used_are_named():
    score, outcomes = hospital()
    never, unknown = np.zeros(len(score)), np.full(len(score), np.nan)
    home = np.where(outcomes[:, 0] == 1, np.nan, outcomes[:, 2])  # unknown for patients who died
    table = np.column_stack([outcomes, never, unknown, home])
    found = theory.diagnose(score, table, [*NAMES, "never", "unknown", "home"])
    assert found.outcomes == ("long_stay", "icu_transfer", "home")
    assert found.left_out["never"] == "it is never present in 4,000 admissions"
    assert found.left_out["unknown"] == "it is not known for any scored admission"
    assert "one class only among" in found.left_out["mortality"]
    assert "(home is missing wherever it is present)" in found.left_out["mortality"]


def test_of_outcomes_never_known_together_the_one_known_most_is_used():
    score, outcomes = hospital()
    mostly = np.where(np.arange(len(score)) < 300, outcomes[:, 1], np.nan)
    rest = np.where(np.arange(len(score)) < 300, np.nan, outcomes[:, 0])
    found = theory.diagnose(score, np.column_stack([rest, mostly]), ["mortality", "long_stay"])
    assert found.outcomes == ("mortality",)
    assert found.left_out["long_stay"].endswith("and never known together with the others")


def test_an_outcome_of_weight_zero_is_left_out():
    score, outcomes = hospital()
    found = theory.diagnose(score, outcomes, NAMES, weights=[1, 0, 1])
    without = theory.diagnose(score, outcomes[:, [0, 2]], ["mortality", "icu_transfer"])
    assert found.left_out == {"long_stay": "its weight is 0"}
    assert found.objective == without.objective
    spaced = [theory.best_spacing(score, outcomes, [1, 0, 1]), theory.best_spacing(score, outcomes[:, [0, 2]])]
    assert spaced[0].value == spaced[1].value
    assert len(theory.cutoff(score, outcomes, NAMES, weights=[1, 0, 1]).contrasts) == 3


@pytest.mark.parametrize(
    ("score", "outcomes", "options", "message"),
    [
        ([1, 1, 1], [0, 1, 1], {}, "all scores are equal"),
        ([1, 2, 3], [1, 1, 1], {}, "no outcome can be evaluated: a: it is always present in 3 admissions"),
        ([1, 2], [0, 1, 1], {}, "2 scores for 3 admissions"),
        ([1, 2, 3], [0, 1, 1], {"weights": [-1.0]}, "one number of 0 or more per outcome"),
        ([1, 2, 3], [0, 1, 1], {"protocol": "best"}, "allowed are exact and paper"),
    ],
)
def test_bad_input_raises_one_sentence(score, outcomes, options, message):
    with pytest.raises(InputError, match=message):
        theory.diagnose(score, outcomes, ["a"], **options)


def test_spacing_refuses_an_outcome_with_one_class():
    with pytest.raises(InputError, match="both classes"):
        theory.best_spacing([1, 2, 3], [1, 1, 1])


def setting_of(case, **options):
    score, outcomes, weights = case
    return theory.settle(score, outcomes, NAMES, weights=weights, sigma=0.9, **options)


@settings(max_examples=10)
@given(cases())
def test_every_law_holds_on_random_data(case):
    score, outcomes, weights = case
    found = theory.check(score, outcomes, NAMES, weights=weights, sigma=0.9, noise=0.01)
    assert [law.law for law in found if law.holds is False] == []
    assert sum(law.holds is True for law in found) >= 11
    assert all(law.verdict.startswith("holds") for law in found if law.holds)


def cut_of(setting):
    return theory.scan(setting.score, setting.v).best(0)


@dataclass(frozen=True)
class WrongKernel(theory.Setting):
    """A setting whose kernel forms are wrong."""

    sign: int = 1

    def forms(self, score, directions):
        forms, norm = super().forms(score, directions)
        return self.sign * forms, norm / 1_000


def test_laws_hold_for_scores_of_any_unit():
    """Scores around 10¹² have slopes of 0 at some start of the ascent, which must not become infinite steps."""
    score, died = 1e12 + 1e6 * np.array([901.0, 91.0, 1302.0, 1269.0]), np.array([0.0, 1.0, 0.0, 0.0])
    assert all(found.holds for found in theory.check(score, died, ["died"]))


def test_each_check_fails_if_its_law_is_broken():
    """Each law is checked with one wrong ingredient."""
    score, outcomes = hospital(300)
    setting = setting_of((np.round(score, 2), np.nan_to_num(outcomes), np.array([2.0, 1.0, 0.5])))
    cut, best = cut_of(setting), best_monotone(setting)
    assert checks.retention(setting, best).holds
    # A direction that is too long: a part exceeds the whole.
    longer = replace(setting, u=2 * setting.u)
    assert [law.holds for law in checks.retained(longer)] == [False, True, False]
    assert not checks.reduction(longer).holds
    # A kernel whose norm is computed too small.
    wrong = WrongKernel(**{field.name: getattr(setting, field.name) for field in fields(setting)})
    assert not checks.bound(wrong).holds
    assert not checks.canonical_norm(wrong, cut).holds
    assert not checks.least_norm(wrong, cut).holds
    # A negative kernel: the alignment of a score with a direction is negative.
    negative = WrongKernel(**{field.name: getattr(setting, field.name) for field in fields(setting)}, sign=-1)
    assert not checks.retained(negative)[1].holds
    # A certificate that belongs to another cut.
    other = replace(cut, score=float(np.median(setting.score)))
    assert not checks.exactness(setting, other).holds
    assert not checks.floored_threshold(setting, other).holds
    assert not checks.canonical_norm(setting, other).holds
    assert not checks.certificate(setting, replace(cut, score=setting.score.max(), rho2=1.0), best).holds
    # Labels that are not 0 and 1, whose kernel is not of rank one.
    numeric = replace(setting, outcomes=np.where(setting.score[:, None] > 1, 2.0, setting.outcomes))
    assert checks.label_kernel(numeric).left > 0.1
    assert "not 0 or 1" in checks.label_kernel(numeric).verdict
    # A score given as the best for J1 that is worse than the original score.
    permuted = np.random.default_rng(0).permutation(setting.score)
    assert "not a maximum" in checks.retention(setting, permuted).verdict
    assert checks.Check("x", 1.0, "≥", 2.0).verdict == "FAILS by 1"


def test_a_floor_above_epsilon_star_is_reported_as_a_missing_precondition():
    score, outcomes = hospital(300)
    case = (score, np.nan_to_num(outcomes), np.ones(3))
    setting = setting_of(case)
    star = checks.epsilon_star(setting)
    expected = 2 * (1 - np.exp(-((2 * setting.half / 0.9) ** 2) / 2)) * 299 / 300
    assert star == pytest.approx(expected)
    norms = [
        setting.forms(np.where(setting.score >= edge, setting.half, -setting.half), setting.v[:, None])[1]
        for edge in np.sort(setting.score)[[1, 150, 299]]
    ]
    assert min(norms) == pytest.approx(star)  # the minimum is at the cut of a single admission
    high = replace(setting, floor=2 * star)
    assert checks.floored_threshold(setting, cut_of(setting)).holds
    assert f"is above ε⋆ = {star:.3g}" in checks.floored_threshold(high, cut_of(high)).verdict


def test_too_much_noise_and_a_wrong_norm_are_reported():
    score, outcomes = hospital(200)
    setting = setting_of((score, np.nan_to_num(outcomes), np.ones(3)))
    assert checks.averaging(setting, 0.02, 0, seed=1).holds
    assert "not τ/2" in checks.averaging(setting, 30.0, 0, seed=1).verdict
    assert not checks.averaging(setting, 0.3, 0, seed=1, tau=1e4).holds  # not the norm of the mean kernel


@settings(max_examples=10)
@given(cases())
def test_the_best_monotone_score_is_monotone_bounded_and_no_worse(case):
    setting = setting_of(case)
    best = best_monotone(setting)
    order = np.argsort(setting.score, kind="stable")
    assert (np.diff(best[order]) >= -1e-12).all()
    assert np.abs(best).max() <= setting.half * (1 + 1e-9)
    reached = checks.ratio(setting, best, setting.v)
    assert reached >= checks.ratio(setting, setting.score, setting.v) - 1e-9
    assert reached >= cut_of(setting).rho2 - 1e-9


def test_no_other_monotone_score_beats_the_ascent():
    """Compare with a general optimiser from random starting levels."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(3)
    score = np.arange(12.0)
    outcomes = (score[:, None] + rng.normal(0, 4, (12, 3)) > [8, 5, 6]).astype(float)
    setting = setting_of((score, outcomes, np.ones(3)))
    found = checks.ratio(setting, best_monotone(setting), setting.v)

    def loss(steps):
        levels = np.clip(np.cumsum(np.abs(steps)), 0, 2 * setting.half)
        return -checks.ratio(setting, levels, setting.v)

    others = [-minimize(loss, rng.exponential(1, 12), method="Powell", options={"maxiter": 5}).fun for _ in range(2)]
    assert max(others) <= found + 1e-3


def test_a_floor_can_be_chosen_in_either_protocol():
    score, outcomes = hospital(400)
    exact, paper = (theory.diagnose(score, outcomes, NAMES, protocol=name) for name in ("exact", "paper"))
    assert "floored at 0.0001 (protocol exact)" in exact.flooring
    assert "unfloored (protocol paper)" in paper.flooring
    floored = theory.diagnose(score, outcomes, NAMES, protocol="paper", floor=1e6)
    assert floored.objective < paper.objective
    assert floored.retention == pytest.approx(paper.retention)


def test_admissions_of_weight_0_have_no_part_in_a_cutoff():
    """Also where they alone have an outcome, which is then left out."""
    rng = np.random.default_rng(0)
    score, names = rng.normal(size=300), ["died", "stayed"]
    outcomes = np.column_stack([rng.random(300) < 1 / (1 + np.exp(1 - score)), rng.random(300) < 0.3]).astype(float)
    mass = np.where(outcomes[:, 1] == 1, 0.0, 1.0)
    found = theory.cutoff(score, outcomes, names, mass=mass)
    plain = theory.cutoff(score[mass > 0], outcomes[mass > 0], names)
    assert (found.score, found.left_out) == (plain.score, plain.left_out)
    assert found.certificate == pytest.approx(plain.certificate)
    reached = theory.certify(score, outcomes, names, found.score, mass=mass)
    assert reached == pytest.approx(plain.certificate)
