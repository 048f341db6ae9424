"""Noise on the scores: what it does to nHSIC, beside the paper's lemma."""

from dataclasses import dataclass

import numpy as np

from mlci.judging.theory._outcomes import complete


@dataclass(frozen=True)
class NoiseAverage:
    """What noise on the scores did to nHSIC, beside the lemma's bound; one entry per draw."""

    averaged: float  # nHSIC of the mean centred kernel
    tau: float  # norm of the mean centred kernel
    realised: np.ndarray  # nHSIC of the perturbed scores
    distance: np.ndarray  # ||K_c(s) - mean K_c||_F
    bound: np.ndarray  # 4 / tau * distance
    applies: np.ndarray  # the lemma speaks of draws with distance <= tau / 2


def noise_average(
    score, outcome, *, sd: float, rng: np.random.Generator, sigma: float, draws: int = 20, limit: int = 2_000
) -> NoiseAverage:
    """Add normal noise to the scores and compare what happens to nHSIC with the noise-averaging lemma.

    The RBF kernel's mean under normal noise is known exactly: away from the diagonal again an RBF, wider by the noise,
    and shrunk. The distance between kernels needs them whole, so at most `limit` admissions take part.

    Args:
        score: one number per admission.
        outcome: 0, 1, or NaN where not known.
        sd: of the noise.
        rng: draws the noise and, above `limit`, the admissions.
        sigma: the kernel's bandwidth.
        draws: of noise.
        limit: most admissions that take part.

    Returns:
        nHSIC after each draw, its mean by the lemma, and the lemma's bound.

    >>> import numpy as np
    >>> found = noise_average([1, 2, 3, 4], [0, 0, 1, 1], sd=0.01, rng=np.random.default_rng(0), sigma=1.0, draws=3)
    >>> bool((abs(found.realised - found.averaged) <= found.bound).all())
    True
    """
    score, outcomes, _, _ = complete(score, outcome, ["outcome"])
    if len(score) > limit:
        rows = rng.choice(len(score), limit, replace=False)
        score, outcomes, _, _ = complete(score[rows], outcomes[rows], ["outcome"])
    profile = outcomes[:, 0] - outcomes[:, 0].mean()
    profile /= np.sqrt(profile @ profile)

    def kernel(values: np.ndarray, variance: float) -> np.ndarray:
        return np.exp(-((values[:, None] - values) ** 2) / (2 * variance))

    def centred(gram: np.ndarray) -> np.ndarray:
        rows = gram.mean(axis=0)
        return gram - rows - rows[:, None] + rows.mean()

    wide = sigma**2 + 2 * sd**2
    mean = sigma / np.sqrt(wide) * kernel(score, wide)
    np.fill_diagonal(mean, 1.0)  # an admission keeps similarity 1 with itself whatever its noise
    mean = centred(mean)
    tau = float(np.linalg.norm(mean))
    realised, distance = np.empty(draws), np.empty(draws)
    for draw in range(draws):
        gram = centred(kernel(score + rng.normal(0, sd, len(score)), sigma**2))
        realised[draw] = profile @ gram @ profile / np.linalg.norm(gram)
        distance[draw] = np.linalg.norm(gram - mean)
    averaged = float(profile @ mean @ profile / tau)
    return NoiseAverage(averaged, tau, realised, distance, 4 / tau * distance, distance <= tau / 2)
