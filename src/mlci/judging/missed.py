"""What an index leaves on the table: scores, codes and outcomes in, the codes that say more than the score does out.

Beside a curve of the score itself, whose shape is held, each category of codes (three characters) is tried alone: the
log-odds of its presence, and how much of an outcome's deviance a weight for it would explain (partial deviance). The
deviance's interval is that of its signed root; admissions count as independent. Categories of fewer than ten admissions
are passed over.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import expit

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.codes.family import family
from mlci.codes.icd import title
from mlci.codes.rules import rules
from mlci.cohort import Cohort
from mlci.judging.smooth import smooth

LEAST = 10  # admissions with a category and without it, with an outcome and without it
SURE = 1.96
STEPS, SHRINKAGE = 30, 0.01  # of Newton's method, and a little pull to 0 where all or none have the outcome


def missed(scores: Mapping[str, np.ndarray], cohort: Cohort) -> pd.DataFrame:
    """Rank the categories of codes by what they add to each score.

    Args:
        scores: name → one number per admission of the cohort.
        cohort: the admissions with their codes and outcomes.

    Returns:
        One row per score, outcome and category, the most missed first: admissions that have it, whether the index
        counts any of its codes (`inside`; known of cci_ and eci_ scores alone), its log-odds beyond the score with an
        interval, the deviance that it would explain with an interval, and that as a share of the deviance of a
        constant risk.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(400), "codes": [["A41.9"], ["I10"]] * 200, "died": [1, 0] * 200})
    >>> visits.loc[:39, "died"] = [0, 1] * 20
    >>> cohort = Cohort.from_frame(visits, icd_version=10, outcomes={"mortality": "died"})
    >>> missed({"points": np.arange(400.0) % 7}, cohort)["category"].tolist()
    ['A41', 'I10']
    """
    admissions = cohort.admissions()
    names, row, category = _present(admissions)
    many = np.bincount(category, minlength=len(names))
    rows = []
    for model, score in scores.items():
        if len(score) != len(cohort):
            raise InputError(
                f"{model}: has {len(score)} admissions and the cohort has {len(cohort)}; they must be equal."
            )
        inside = _inside(model, admissions, names)
        for outcome, y in zip(cohort.outcomes, cohort.labels().T):
            known = ~np.isnan(y)
            if min(np.nansum(y), np.nansum(1 - y)) < LEAST:
                continue
            found = _added(np.asarray(score, dtype=float), np.nan_to_num(y), known, row, category, len(names))
            found = found.assign(model=model, outcome=outcome, admissions=many, inside=inside)
            found[["icd_version", "category"]] = names
            enough = (many >= LEAST) & (many <= len(cohort) - LEAST) & found["deviance"].notna()
            rows.append(found[enough].sort_values("deviance", ascending=False, kind="stable"))
    table = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=COLUMNS)
    table["title"] = [
        title(code, int(version)) or "" for version, code in table[["icd_version", "category"]].to_numpy()
    ]
    return table[COLUMNS]


COLUMNS = [
    *("model", "outcome", "icd_version", "category", "title", "inside", "admissions", "log_odds", "low", "high"),
    *("deviance", "deviance_low", "deviance_high", "share"),
]


def _present(admissions: Admissions) -> tuple[list[tuple[int, str]], np.ndarray, np.ndarray]:
    """The categories, and each pair of an admission and a category that it has."""
    keys = [(int(version), value[:3]) for value, version in zip(admissions.values, admissions.versions)]
    names = sorted(set(keys))
    number = {name: place for place, name in enumerate(names)}
    of_code = np.array([number[key] for key in keys], dtype=np.int64)
    row = np.repeat(np.arange(len(admissions)), np.diff(admissions.offsets))
    pairs = np.unique(row * np.int64(max(len(names), 1)) + of_code[admissions.indices])
    return names, pairs // max(len(names), 1), pairs % max(len(names), 1)


def _inside(model: str, admissions: Admissions, names: list[tuple[int, str]]) -> list[bool | None]:
    """Whether an index counts a code of each category, where its lists are known."""
    short = model.rpartition(":")[2].partition("_")[0]
    index = next((index.name for index in family().values() if index.short == short), None)
    if index is None:
        return [None] * len(names)
    counted: set[tuple[int, str]] = set()
    for version in (9, 10):
        codes = admissions.values[admissions.versions == version]
        hits = rules((index,)).code_bits(codes, version).any(axis=0)
        counted |= {(version, code[:3]) for code, hit in zip(codes, hits) if hit}
    return [name in counted for name in names]


def _added(
    score: np.ndarray, y: np.ndarray, known: np.ndarray, row: np.ndarray, category: np.ndarray, size: int
) -> pd.DataFrame:
    """What each category adds to a curve of the score: logistic regressions on one category each, all at once.

    The admissions that have the category and those that lack it are fitted apart: the former by Newton's method, the
    latter, which the curve fits already but for what the former took with them, by one step of it.
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
    unlike = ((y - risk) * known).sum() - total(happened - expit(logit))
    weight = np.maximum((risk * (1 - risk) * known).sum() - total(expit(logit) * expit(-logit)), 1e-9)
    gained = total(_likelihood(happened, logit + effect[category]) - _likelihood(happened, logit))
    deviance = np.where(total(np.ones(len(row))) > 0, np.maximum(2 * gained, 0) + unlike**2 / weight, np.nan)
    effect, error = effect - unlike / weight, np.sqrt(1 / information + 1 / weight)
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
