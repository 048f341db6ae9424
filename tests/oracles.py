"""Slow reference implementations, written directly from the definitions, which the fast code must agree with."""

import hashlib
import sys
from collections.abc import Iterable
from unittest.mock import MagicMock

import numpy as np

# Import the package dcor without numba: compiling takes 25 s in each worker, and has crashed some.
_plain = MagicMock(njit=lambda *_, **__: lambda f: f, guvectorize=lambda *_, **__: lambda f: f)
sys.modules |= {"numba": _plain, "numba.types": _plain.types}
import dcor as dcor  # noqa: E402

del sys.modules["numba"], sys.modules["numba.types"]


def digest(rows: Iterable[tuple]) -> str:
    """Return a hash of rows in any order, to compare tables that are too large to keep as expected results."""
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()


def gram(score, kernel="rbf", sigma=1.0):
    """Return the n x n kernel matrix of a score."""
    distance = np.abs(np.subtract.outer(np.asarray(score, float), np.asarray(score, float)))
    if kernel == "energy":
        return -distance
    factors = (1.0,) if kernel == "rbf" else (0.25, 0.5, 1.0, 2.0, 4.0)
    return np.mean([np.exp(-((distance / (sigma * factor)) ** 2) / 2) for factor in factors], axis=0)


def centre(matrix):
    """Return the doubly centred matrix HKH, with H = I - 1/n."""
    h = np.eye(len(matrix)) - 1 / len(matrix)
    return h @ matrix @ h


def nhsic(score, y, kernel="rbf", sigma=1.0, floor=0.0):
    """Return ⟨K_c, L_c⟩ / (‖K_c‖ ‖L_c‖) with the label kernel L = 1[y_i = y_j]."""
    valid = ~np.isnan(y)
    score, y = np.asarray(score, float)[valid], np.asarray(y)[valid]
    if len(y) < 3 or len(set(y)) < 2 or len(set(score)) < 2:
        return 0.0
    k, labels = centre(gram(score, kernel, sigma)), centre(np.equal.outer(y, y).astype(float))
    return np.sum(k * labels) / (max(np.linalg.norm(k), floor) * np.linalg.norm(labels))


def calibration_error(risk, y, groups=10):
    """Return the root mean squared difference of observed and predicted, over groups of equal size by risk.

    The expected squared difference from chance alone is subtracted.
    """
    edges = np.quantile(risk, np.linspace(0, 1, groups + 1))
    error = 0.0
    for low, high, first in zip(edges[:-1], edges[1:], [True] + [False] * (groups - 1)):
        inside = ((risk > low) | (first & (risk >= low))) & (risk <= high)
        if inside.any():
            chance = np.sum(risk[inside] * (1 - risk[inside])) / inside.sum() ** 2
            error += inside.mean() * ((y[inside].mean() - risk[inside].mean()) ** 2 - chance)
    return max(error, 0.0) ** 0.5


def median_difference(values):
    """Return the median of the positive entries of the full |difference| matrix."""
    distance = np.abs(np.subtract.outer(values, values))
    return np.median(distance[distance > 0]) if (distance > 0).any() else 0.0


def threshold_scan(score, direction):
    """Return rho_j of every cut between distinct scores, each from its own centred step vector."""
    direction = direction - direction.mean()
    found = []
    for cut in np.unique(score)[1:]:
        step = (score >= cut).astype(float)
        step -= step.mean()
        found.append(direction @ step / np.linalg.norm(direction) / np.linalg.norm(step))
    return np.array(found)


def spacing_by_nnls(score, outcomes, weights):
    """Return the best nonnegative mixture of thresholds by a general solver, as (value, steps)."""
    from scipy.optimize import nnls

    steps = np.array([score >= cut for cut in np.unique(score)[1:]], dtype=float).T
    steps -= steps.mean(axis=0)
    profiles = outcomes - outcomes.mean(axis=0)
    b = ((profiles.T @ steps) ** 2 / (profiles**2).sum(axis=0)[:, None]).T @ weights
    lower = np.linalg.cholesky((steps.T @ steps) ** 2)
    a, _ = nnls(lower.T, np.linalg.solve(lower, b))
    return np.sqrt(b @ a), a


def padded_deepsets(model, sets):
    """Score with DeepSets by padding: pad to the longest set, apply phi everywhere, mask, pool by mean and by max."""
    import torch

    longest = max(1, max(map(len, sets)))
    ids = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in sets])
    mask = (ids != 0)[:, :, None]
    h = model.phi(model.embedding(ids))
    mean = (h * mask).sum(1) / mask.sum(1).clamp(min=1)
    high = h.masked_fill(~mask, 0).max(1).values
    return model.rho(model.norm(torch.cat([mean, high], dim=1))).squeeze(1)


def comorbidity_flags(codes, version, prefixes):
    """Return each (index, category) with a prefix that begins one of the codes; `prefixes`: rows of the lists."""
    return {
        (row["index"], row["category"])
        for row in prefixes
        if int(row["version"]) == version and any(code.startswith(row["prefix"]) for code in codes)
    }


def ahrq_flags(codes, flags, of_code, exempt):
    """Return AHRQ's comorbidities (CMR_Mapping_Program v2026.1) of one admission, in the steps of AHRQ's program.

    `of_code`: the categories of each listed code, with cerebrovascular disease as CBVD_POA and CBVD_SQLA; `exempt`:
    codes that need no flag.
    """
    neutral = {
        "AIDS",
        "ALCOHOL",
        "AUTOIMMUNE",
        "LUNG_CHRONIC",
        "DEMENTIA",
        "DEPRESS",
        "DIAB_UNCX",
        "DIAB_CX",
        "DRUG_ABUSE",
        "HTN_UNCX",
        "HTN_CX",
        "THYROID_HYPO",
        "THYROID_OTH",
        "CANCER_LYMPH",
        "CANCER_LEUK",
        "CANCER_METS",
        "OBESE",
        "PERIVASC",
        "CANCER_SOLID",
        "CANCER_NSITU",
    }
    found, late_stroke = set(), False
    for code, flag in list(zip(codes, flags))[1:]:  # from the second diagnosis on
        own = of_code.get(code, set())
        found |= own & neutral
        if code in exempt or flag in ("Y", "W"):
            found |= own - neutral
        late_stroke |= code not in exempt and flag in ("N", "U") and "CBVD_POA" in own
    for severer, milder in (
        ("DIAB_CX", "DIAB_UNCX"),
        ("HTN_CX", "HTN_UNCX"),
        ("CANCER_METS", "CANCER_SOLID"),
        ("CANCER_METS", "CANCER_NSITU"),
        ("CANCER_SOLID", "CANCER_NSITU"),
        ("LIVER_SEV", "LIVER_MLD"),
        ("RENLFL_SEV", "RENLFL_MOD"),
    ):
        found -= {milder} if severer in found else set()
    stroke = "CBVD_POA" in found or ("CBVD_SQLA" in found and not late_stroke)
    return (found - {"CBVD_POA", "CBVD_SQLA"}) | ({"CBVD"} if stroke else set())


def pccc_flags(codes, of_code, technical):
    """Return paediatric complex chronic conditions (macro ccc_v3 of 2023, its diagnoses) of one admission.

    `of_code`, `technical`: the conditions of each listed code, by disease and by the technology that it needs.
    """
    found = set().union(*(of_code.get(code, set()) for code in codes))
    devices = set().union(*(technical.get(code, set()) for code in codes))
    if found and devices:  # devices count only for children who have a condition
        found |= {"TECH"} | (devices - {"MISC"})
    return found


def set_score(state, tokens, pooling=("mean", "max")):
    """Return rho(LayerNorm(pool(phi(embedding)))) of one admission in float64; without tokens the pool is 0."""

    def layers(x, name, numbers, last=None):
        for number in numbers:
            x = state[f"{name}.{number}.weight"].astype(float) @ x + state[f"{name}.{number}.bias"]
            x = x if number == last else np.maximum(x, 0)
        return x

    rows = [layers(state["embedding.weight"][token].astype(float), "phi", (0, 2)) for token in tokens]
    rows = np.array(rows or [np.zeros(state["phi.2.bias"].shape)])

    def averaged(logits):
        weight = np.exp(logits - logits.max())
        return weight @ rows / weight.sum()

    poolings = {
        "mean": lambda: rows.mean(axis=0),
        "max": lambda: rows.max(axis=0),
        "sum": lambda: rows.sum(axis=0),
        "attention": lambda: averaged(rows @ state["query"].astype(float) / np.sqrt(rows.shape[1])),
        "gated": lambda: averaged(
            np.array([-np.logaddexp(0, -layers(row, "gate", (0, 2), last=2)[0]) for row in rows])
        ),
    }
    pooled = np.concatenate([poolings[name]() for name in pooling])
    normed = (pooled - pooled.mean()) / np.sqrt(pooled.var() + 1e-5) * state["norm.weight"] + state["norm.bias"]
    return layers(normed, "rho", (0, 2, 4), last=4)[0]


def gram_nhsic(scores, outcome, kernel, floor=0.0):
    """Return normalised HSIC by the definition, from both centred n x n Gram matrices; all outcomes must be known."""
    import torch

    n = len(scores)
    h = torch.eye(n, dtype=scores.dtype) - 1 / n
    k = h @ kernel(scores[:, None], scores[None, :]) @ h
    delta = h @ (outcome[:, None] == outcome[None, :]).to(scores.dtype) @ h
    return (k * delta).sum() / (k.norm().clamp(min=floor) * delta.norm())
