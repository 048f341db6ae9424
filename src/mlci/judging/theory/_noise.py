"""The effect of noise on the scores on nHSIC, compared with the paper's noise-averaging lemma."""

from dataclasses import dataclass

import numpy as np

from mlci.judging.theory._outcomes import complete


@dataclass(frozen=True)
class NoiseAverage:
    """nHSIC under noise on the scores, and the lemma's bound; arrays have one entry per draw."""

    averaged: float  # nHSIC of the mean centred kernel
    tau: float  # norm of the mean centred kernel
    realised: np.ndarray  # nHSIC of the perturbed scores
    distance: np.ndarray  # ||K_c(s) - mean K_c||_F
    bound: np.ndarray  # 4 / tau * distance
    applies: np.ndarray  # whether distance <= tau / 2, the lemma's precondition


def noise_average(
    score, outcome, *, sd: float, rng: np.random.Generator, sigma: float, draws: int = 20, limit: int = 2_000
) -> NoiseAverage:
    """Add normal noise to the scores and compare the change of nHSIC with the noise-averaging lemma.

    The mean of the RBF kernel under normal noise is known in closed form: off the diagonal it is a wider, scaled RBF
    kernel. The distance between kernels needs dense matrices, so at most `limit` admissions are used.

    Args:
        score: one number per admission.
        outcome: 0, 1, or NaN if unknown.
        sd: of the noise.
        rng: draws the noise and, above `limit`, the admissions.
        sigma: the kernel's bandwidth.
        draws: number of draws of noise.
        limit: most admissions to use.

    Returns:
        nHSIC after each draw, nHSIC of the mean kernel, and the lemma's bound.

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
    np.fill_diagonal(mean, 1.0)  # the similarity of an admission with itself is 1 under any noise
    mean = centred(mean)
    tau = float(np.linalg.norm(mean))
    realised, distance = np.empty(draws), np.empty(draws)
    for draw in range(draws):
        gram = centred(kernel(score + rng.normal(0, sd, len(score)), sigma**2))
        realised[draw] = profile @ gram @ profile / np.linalg.norm(gram)
        distance[draw] = np.linalg.norm(gram - mean)
    averaged = float(profile @ mean @ profile / tau)
    return NoiseAverage(averaged, tau, realised, distance, 4 / tau * distance, distance <= tau / 2)
