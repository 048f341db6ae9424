"""The paper's lemmas and its theorem, checked on data: whether each holds, and by what margin.

Turn a `Setting` into one `Check` per law. The two sides of a law are computed independently (kernel forms of actual
scores on one side, cosines and singular values on the other), so that an error in either would show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlci.judging.theory._ascent import best_monotone
from mlci.judging.theory._noise import noise_average
from mlci.judging.theory._scan import Threshold, scan
from mlci.judging.theory._setting import SEED, Setting, settle

TOLERANCE = 1e-8
DENSE = 1_000  # most admissions for a dense kernel matrix


@dataclass(frozen=True)
class Check:
    """A law `left relation right`; if its precondition fails, it does not apply to these data."""

    law: str
    left: float
    relation: Literal["≥", "=", "≤"]
    right: float
    unmet: str = ""  # the precondition that fails, in words

    @property
    def margin(self) -> float:
        """The margin by which the law holds; for an equality, minus the absolute difference."""
        gap = self.left - self.right
        return {"≥": gap, "≤": -gap, "=": -abs(gap)}[self.relation]

    @property
    def holds(self) -> bool | None:
        """Whether the law holds; None if its precondition fails."""
        return None if self.unmet else bool(self.margin >= -TOLERANCE * max(1.0, abs(self.left), abs(self.right)))

    @property
    def verdict(self) -> str:
        if self.holds is None:
            return f"precondition fails: {self.unmet}"
        words = f"to {-self.margin:.1g}" if self.relation == "=" else f"by {self.margin:.4g}"
        return f"holds {words}" if self.holds else f"FAILS by {-self.margin:.4g}"


def check(score, outcomes, names: Sequence[str], *, noise: float | None = None, **options) -> tuple[Check, ...]:
    """Evaluate each law of the paper on a score and outcomes.

    Args:
        score: one number per admission.
        outcomes: n x T, NaN if unknown.
        names: of the outcomes.
        noise: the standard deviation of normal noise on the score, for the noise-averaging lemma; None omits it.
        **options: weights, sigma, floor, protocol, sample and seed, as in `settle`.

    Returns:
        The two sides of each law, and whether it holds.

    >>> all(found.holds for found in check([1, 2, 3, 4], [0, 0, 1, 1], ["mortality"]))
    True
    """
    setting = settle(score, outcomes, names, **options)
    cut = scan(setting.score, setting.v).best(0)
    best = best_monotone(setting)
    laws = [
        label_kernel(setting),
        reduction(setting),
        bound(setting),
        exactness(setting, cut),
        certificate(setting, cut, best),
        canonical_norm(setting, cut),
        least_norm(setting, cut),
        floored_threshold(setting, cut),
        *retained(setting),
        retention(setting, best),
    ]
    if noise is not None:
        laws += [
            averaging(setting, noise, column, seed=options.get("seed", SEED)) for column in range(len(setting.names))
        ]
    return tuple(laws)


def ratio(setting: Setting, score: np.ndarray, direction: np.ndarray) -> float:
    """Return w' K_c w / ||K_c|| of any score; 0 if the norm is 0."""
    (form,), norm = setting.forms(score, direction[:, None])
    return float(form / norm) if norm > 0 else 0.0


def objectives(setting: Setting, score: np.ndarray) -> tuple[float, float]:
    """Return J and J1 of any score of these admissions, with the setting's floor; both are 0 if the norm is 0."""
    forms, norm = setting.forms(score, np.column_stack([setting.v, setting.stacked]))
    norm = max(norm, setting.floor)
    return (float(forms[1:].sum() / norm), float(setting.values[0] ** 2 * forms[0] / norm)) if norm else (0.0, 0.0)


def two_level(setting: Setting, cut: Threshold, gap: float) -> np.ndarray:
    """Return a two-level score with its step at the cut; the levels are `gap` apart."""
    return np.where(setting.score >= cut.score, gap / 2, -gap / 2)


def label_kernel(setting: Setting) -> Check:
    """Lemma B.1: the centred delta kernel of a binary outcome is 2 l l', so its norm is 2 ||l||^2."""
    worst = 0.0
    for y in setting.outcomes[:DENSE].T:
        same = (y[:, None] == y).astype(float)
        centred = same - same.mean(axis=0) - same.mean(axis=1)[:, None] + same.mean()
        profile = y - y.mean()
        worst = max(worst, float(np.abs(centred - 2 * np.outer(profile, profile)).max()))
    binary = np.isin(setting.outcomes, (0, 1)).all()
    return Check("label kernel L_c = 2 l l'", worst, "=", 0.0, "" if binary else "an outcome is not 0 or 1")


def reduction(setting: Setting) -> Check:
    """Lemma 6.1: J1(s) = sigma_1^2 Delta_v(s); on the left by W~1 = u u' W~, on the right by W~'s singular vectors."""
    _, values, vectors = np.linalg.svd(setting.stacked.T, full_matrices=False)
    left = ratio(setting, setting.score, setting.stacked @ setting.u)
    return Check("reduction: J1(s) = σ₁² Δ_v(s)", left, "=", values[0] ** 2 * ratio(setting, setting.score, vectors[0]))


def bound(setting: Setting) -> Check:
    """Lemma 6.2, the bound: no score exceeds ||w||^2 for a direction w; the check shows the largest value reached."""
    directions = setting.directions / np.sqrt((setting.directions**2).sum(axis=0))
    reached = max(ratio(setting, setting.score, unit) for unit in directions.T)
    return Check("bound: Δ_w(s) ≤ ‖w‖² = 1", reached, "≤", 1.0)


def exactness(setting: Setting, cut: Threshold) -> Check:
    """Lemma 6.2, exactness: a two-level score reaches rho^2 for any levels; the check shows the worst of three."""
    gaps = setting.half * np.array([2.0, 1.0, 0.1])
    values = [ratio(setting, two_level(setting, cut, gap), setting.v) for gap in gaps]
    worst = max(values, key=lambda value: abs(value - cut.rho2))
    flat = _similarity(setting, gaps.min()) == 1
    return Check(
        "exactness: Δ_v(r⁽ʲ⁾) = ρ⋆²", worst, "=", cut.rho2, "the levels are too close to differ" if flat else ""
    )


def certificate(setting: Setting, cut: Threshold, best: np.ndarray) -> Check:
    """Lemma 6.2, the certificate: the best cut reaches at least the share rho*^2 of the value of any monotone score."""
    reached = ratio(setting, two_level(setting, cut, 2 * setting.half), setting.v)
    return Check("certificate: Δ_v(r⁽ʲ⁾) ≥ ρ⋆² Δ_v(r₁⋆)", reached, "≥", cut.rho2 * ratio(setting, best, setting.v))


def canonical_norm(setting: Setting, cut: Threshold) -> Check:
    """Levels -B and B: the norm of K_c is 2 (kappa(0) - kappa(2B)) j (n - j) / n."""
    _, norm = setting.forms(two_level(setting, cut, 2 * setting.half), setting.v[:, None])
    expected = 2 * (1 - _similarity(setting, 2 * setting.half)) * cut.split * cut.tail / setting.n
    return Check("levels ±B: ‖K_c(r⁽ʲ⁾)‖ = 2 (κ(0) − κ(2B)) j (n − j) / n", norm / expected, "=", 1.0)


def least_norm(setting: Setting, cut: Threshold) -> Check:
    """Levels -B and B: the norm of every cut is at least epsilon* = 2 (kappa(0) - kappa(2B)) (n - 1) / n."""
    _, norm = setting.forms(two_level(setting, cut, 2 * setting.half), setting.v[:, None])
    return Check("levels ±B: ‖K_c(r⁽ʲ⁾)‖ ≥ ε⋆", norm, "≥", epsilon_star(setting))


def floored_threshold(setting: Setting, cut: Threshold) -> Check:
    """Levels -B and B: a floor of at most epsilon* has no effect, so J1 of a cut is sigma_1^2 rho^2."""
    _, projected = objectives(setting, two_level(setting, cut, 2 * setting.half))
    star = epsilon_star(setting)
    unmet = f"the floor {setting.floor:.3g} is above ε⋆ = {star:.3g}" if setting.floor > star else ""
    return Check("floor ε₀ ≤ ε⋆: J1(r⁽ʲ⁾) = σ₁² ρ⋆²", projected, "=", setting.values[0] ** 2 * cut.rho2, unmet)


def retained(setting: Setting) -> list[Check]:
    """Theorem 6.3: J(s) >= J1(s) >= 0, so their ratio gamma lies in [0, 1]; computed here from all singular vectors."""
    objective, projected = objectives(setting, setting.score)
    _, _, vectors = np.linalg.svd(setting.stacked.T, full_matrices=False)
    forms, _ = setting.forms(setting.score, vectors.T)
    parts = forms * np.linalg.svd(setting.stacked, compute_uv=False) ** 2
    gamma = projected / objective if objective > 0 else float("nan")
    unmet = "" if objective > 0 else "J(s) is not positive"
    return [
        Check("J(s) ≥ J1(s)", objective, "≥", projected),
        Check("J1(s) ≥ 0", projected, "≥", 0.0),
        Check("γ(s) = σ₁² v'K_c v / Σ σₖ² vₖ'K_c vₖ", gamma, "=", float(parts[0] / parts.sum()), unmet),
    ]


def retention(setting: Setting, best: np.ndarray) -> Check:
    """Theorem 6.3: the monotone score with the largest J1 retains the share gamma of any monotone score's J."""
    objective, projected = objectives(setting, setting.score)
    if not objective > 0:
        return Check("retention: J(r₁⋆) ≥ γ(s) J(s)", 0.0, "≥", 0.0, "J(s) is not positive")
    kept, reached = objectives(setting, best)
    unmet = "" if reached >= projected - TOLERANCE else "r₁⋆ is not a maximum: J1 of the score itself is larger"
    return Check("retention: J(r₁⋆) ≥ γ(s) J(s)", kept, "≥", projected, unmet)


def averaging(setting: Setting, noise: float, column: int, *, seed: int, tau: float = 1.0) -> Check:
    """Lemma B.5: if a noisy score's kernel is close to the mean kernel, so is its nHSIC.

    `tau` is the lower bound of the mean kernel's norm, as a share of that norm; the lemma allows at most 1. The check
    shows the draw of noise that comes closest to its bound.
    """
    drawn = {"sd": noise, "rng": np.random.default_rng(seed), "sigma": setting.sigma, "limit": DENSE}
    found = noise_average(setting.score, setting.outcomes[:, column], **drawn)
    law = f"noise {noise:g}, {setting.names[column]}: |nHSIC(s) − mean| ≤ 4/τ ‖K_c(s) − mean‖"
    applies = found.distance <= tau * found.tau / 2
    if not applies.any():
        near = f"the nearest of {len(applies)} draws is {found.distance.min() / found.tau:.3g} τ away, not τ/2"
        return Check(law, float("nan"), "≤", float("nan"), near)
    error, limit = np.abs(found.realised - found.averaged)[applies], (found.bound / tau)[applies]
    tightest = int(np.argmin(limit - error))
    return Check(law, float(error[tightest]), "≤", float(limit[tightest]))


def epsilon_star(setting: Setting) -> float:
    """Return the smallest norm of a two-level score with levels -B and B: 2 (kappa(0) - kappa(2B)) (n - 1) / n."""
    return 2 * (1 - _similarity(setting, 2 * setting.half)) * (setting.n - 1) / setting.n


def _similarity(setting: Setting, distance: float) -> float:
    """Return kappa, the kernel at a distance; kappa(0) is 1."""
    return float(np.exp(-((distance / setting.sigma) ** 2) / 2))
