"""Find what a score misses: the categories of codes that add most to it in predicting an outcome.

Each category of codes (three characters) is added alone to the risk curve of the score, which is held fixed as an
offset. The table has the log-odds of the category and its partial deviance: how much of the outcome's deviance a weight
for it would explain. The interval of the deviance comes from its signed root. Admissions count as independent.
Categories of fewer than ten admissions are skipped.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import expit

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.codes.categories import category_words
from mlci.codes.family import family
from mlci.codes.icd import title
from mlci.codes.rules import rules
from mlci.cohort import Cohort
from mlci.judging.smooth import smooth

LEAST = 10  # admissions with a category, without it, with an outcome, and without it
SURE = 1.96
STEPS, SHRINKAGE = 30, 0.01  # Newton steps, and a small ridge for categories where all or none have the outcome


def missed(scores: Mapping[str, np.ndarray], cohort: Cohort) -> pd.DataFrame:
    """Rank the categories of codes by what they add to each score.

    Args:
        scores: name → one number per admission of the cohort.
        cohort: the admissions with their codes and outcomes.

    Returns:
        One row per score, outcome and category, the largest deviance first: the number of admissions with the category,
        its log-odds given the score, the deviance that it would explain, both with intervals, and that deviance as a
        share of the null deviance. For a published index (recognised by the name of its column), a category has two
        rows if the index counts only some of its codes: `inside` tells them apart, and is empty for other scores.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(400), "codes": [["A41.9"], ["I10"]] * 200, "died": [1, 0] * 200})
    >>> visits.loc[:39, "died"] = [0, 1] * 20
    >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"})
    >>> missed({"points": np.arange(400.0) % 7}, cohort)["category"].tolist()
    ['A41', 'I10']
    """
    admissions = cohort.admissions()
    rows = []
    for model, score in scores.items():
        if len(score) != len(cohort):
            raise InputError(
                f"{model}: has {len(score)} admissions, but the cohort has {len(cohort)}; they must be equal."
            )
        names, row, category = _present(admissions, _counted(model, admissions))
        many = np.bincount(category, minlength=len(names))
        for outcome, y in zip(cohort.outcomes, cohort.labels().T):
            known = ~np.isnan(y)
            if min(np.nansum(y), np.nansum(1 - y)) < LEAST:
                continue
            found = _added(np.asarray(score, dtype=float), np.nan_to_num(y), known, row, category, len(names))
            found = found.assign(model=model, outcome=outcome, admissions=many)
            found[["icd_version", "category", "inside"]] = names
            enough = (many >= LEAST) & (many <= len(cohort) - LEAST) & found["deviance"].notna()
            rows.append(found[enough].sort_values("deviance", ascending=False, kind="stable"))
    table = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=COLUMNS)
    titles = _titles(admissions)
    table["title"] = [titles[int(version), code] for version, code in table[["icd_version", "category"]].to_numpy()]
    return table[COLUMNS]


COLUMNS = [
    *("model", "outcome", "icd_version", "category", "title", "inside", "admissions", "log_odds", "low", "high"),
    *("deviance", "deviance_low", "deviance_high", "share"),
]


def _present(
    admissions: Admissions, counted: np.ndarray | None
) -> tuple[list[tuple[int, str, bool | None]], np.ndarray, np.ndarray]:
    """Return the categories, split if an index counts only a part, and all pairs of an admission and a category."""
    inside: list[bool | None] = [None] * len(admissions.values) if counted is None else counted.tolist()
    keys = [(int(v), value[:3], part) for value, v, part in zip(admissions.values, admissions.versions, inside)]
    names = sorted({*keys}, key=lambda key: (key[0], key[1], bool(key[2])))
    number = {name: place for place, name in enumerate(names)}
    of_code = np.array([number[key] for key in keys], dtype=np.int64)
    row = np.repeat(np.arange(len(admissions)), np.diff(admissions.offsets))
    pairs = np.unique(row * np.int64(max(len(names), 1)) + of_code[admissions.indices])
    return names, pairs // max(len(names), 1), pairs % max(len(names), 1)


def _counted(model: str, admissions: Admissions) -> np.ndarray | None:
    """Return whether a published index counts each distinct code; None for other scores."""
    column = model.rpartition(":")[2]
    short = {"cci", "eci"} if column == "cci_eci" else {column.partition("_")[0]}
    indices = tuple(index.name for index in family().values() if index.short in short)
    if not indices:
        return None
    found = np.zeros(len(admissions.values), dtype=bool)
    for version in (9, 10):
        rows = admissions.versions == version
        flags = rules(indices).flags(rules(indices).code_bits(admissions.values[rows], version))
        found[rows] = np.any(list(flags.values()), axis=0)
    return found


def _titles(admissions: Admissions) -> dict[tuple[int, str], str]:
    """Return the title of each category, or else that of its most frequent code."""
    found: dict[tuple[int, str], str] = {}
    for place in np.argsort(-admissions.mentions, kind="stable"):
        code, version = str(admissions.values[place]), int(admissions.versions[place])
        key = version, code[:3]
        if not found.get(key):
            found[key] = category_words(code[:3], version) or title(code, version) or ""
    return found


def _added(
    score: np.ndarray, y: np.ndarray, known: np.ndarray, row: np.ndarray, category: np.ndarray, size: int
) -> pd.DataFrame:
    """Return what each category adds to the risk curve of the score: one logistic regression per category, vectorised.

    Admissions with and without the category get separate intercepts. Those with it are fitted by Newton's method. Those
    without it are fitted by a single Newton step, because the curve already fits them up to the excess of the others.
    """
    risk = smooth(score[known], y[known])(score)
    row, category = row[known[row]], category[known[row]]
    logit, happened = np.log(risk / (1 - risk))[row], y[row]

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(category, values, minlength=size)

    effect = np.zeros(size)
    for _ in range(STEPS):
        fitted = expit(logit + effect[category])
        information = total(fitted * (1 - fitted)) + SHRINKAGE
        step = (total(happened - fitted) - SHRINKAGE * effect) / information
        effect += np.clip(step, -1, 1)
    residual = ((y - risk) * known).sum() - total(happened - expit(logit))  # of those without the category
    weight = np.maximum((risk * (1 - risk) * known).sum() - total(expit(logit) * expit(-logit)), 1e-9)
    gained = total(_likelihood(happened, logit + effect[category]) - _likelihood(happened, logit))
    deviance = np.where(total(np.ones(len(row))) > 0, np.maximum(2 * gained, 0) + residual**2 / weight, np.nan)
    effect, error = effect - residual / weight, np.sqrt(1 / information + 1 / weight)
    rate = y[known].mean()
    null = -2 * known.sum() * (rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    return pd.DataFrame(
        {
            "log_odds": effect,
            "low": effect - SURE * error,
            "high": effect + SURE * error,
            "deviance": deviance,
            "deviance_low": np.maximum(np.sqrt(deviance) - SURE, 0) ** 2,
            "deviance_high": (np.sqrt(deviance) + SURE) ** 2,
            "share": deviance / null,
        }
    )


def _likelihood(happened: np.ndarray, logit: np.ndarray) -> np.ndarray:
    return happened * logit - np.logaddexp(0, logit)
