"""How good an index of a small hospital is: 1,000 admissions with 20 deaths, judged on 20,000 others.

    python benchmarks/small_hospitals.py [--recipe table] [--outcome mortality] [--hospitals 8] [-o small.csv]

There are eight synthetic hospitals. From each, patients are drawn until there are 1,000 admissions and 20 deaths. The
index is learned from these alone (one patient in eight for validation). Its risk of death is judged on 20,000
admissions of other patients of that hospital, and compared with the bare rate of the 1,000 and with an isotonic curve
over the same scores. "Reach the 90th" is the share of these others whose score has that percentile or a higher one.
"Could" is the share that would have it by percentiles of their own: where many share a score, not every share is
possible.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from mlci.base.shares import md5_split
from mlci.cohort import Cohort, build_cohort
from mlci.index.estimator import MLCI
from mlci.judging.curves import isotonic
from mlci.measures.discrimination import auroc, calibration, log_losses

SMALL, DEATHS, OTHERS = 1000, 20, 20_000
OUTCOME = "mortality"
REACHED = (10, 25, 50, 75, 90, 95)  # percentiles


def hospital(seed: int, *, small: int = SMALL, deaths: int = DEATHS, others: int = OTHERS) -> tuple[Cohort, Cohort]:
    """The small cohort with the given number of deaths, and admissions of other patients."""
    cohort = build_cohort("synthetic", 2 * others, seed=seed)
    rng, died = np.random.default_rng(seed), cohort.labels(OUTCOME)[:, 0] == 1
    chosen = np.zeros(len(cohort), dtype=bool)
    chosen[rng.choice(np.flatnonzero(died), deaths, replace=False)] = True
    chosen[rng.choice(np.flatnonzero(~died), small - deaths, replace=False)] = True
    subjects = cohort.column("subject_id")
    apart = ~np.isin(subjects, subjects[chosen])
    return cohort.where(chosen), cohort.where(apart).sample(others, seed=seed)


def judged(
    small: Cohort, others: Cohort, *, recipe: str, learned: list[str] | None = None, seed: int = 11
) -> dict[str, float]:
    """Figures of the risk of death, and the shares that reach percentiles and the cutoff."""
    subjects = small.column("subject_id")
    parts = np.array(["train", "valid"], dtype=object)[md5_split([str(one) for one in subjects], (0.875, 0.125))]
    index = MLCI(recipe=recipe, seed=seed, outcomes=learned)
    outcomes = dict(zip(small.outcomes, small.labels().T))
    index.fit(small.table.select(["codes", "icd_version"]), outcomes, split=parts, subjects=subjects)
    table = index.table(others)
    risk, y = table[f"risk_{OUTCOME}"].to_numpy(), others.labels(OUTCOME)[:, 0]
    own = small.labels(OUTCOME)[:, 0]
    steps = isotonic(index.score(small), own)(table["score"].to_numpy())
    score, figures = table["score"].to_numpy(), calibration(risk, y)
    own_percentile = replace(index.model_, quantiles=np.quantile(score, np.linspace(0, 1, 1001))).percentile
    return {
        "least risk": float(risk.min()),
        "log-loss": float(log_losses(risk, y).mean()),
        "of the rate": float(log_losses(np.full(len(y), own.mean()), y).mean()),
        "of isotonic": float(log_losses(steps, y).mean()),
        "isotonic at 0": float(np.mean(steps == 0)),
        "slope": figures.slope,
        "AUROC": auroc(risk, y),
        "AUROC of the score": auroc(table["score"], y),
        **{f"reach the {p}th": float(np.mean(table["percentile"] >= p)) for p in REACHED},
        **{f"could reach the {p}th": float(np.mean(own_percentile(score) >= p)) for p in REACHED},
        "high severity": float(table["high_severity"].mean()),
        "high severity, said": float(index.model_.cutoff.share),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="table")
    parser.add_argument("--outcome", action="append", help="learn from this outcome only; may be repeated")
    parser.add_argument("--hospitals", type=int, default=8)
    parser.add_argument("-o", "--output", type=Path, help="file for the whole table (CSV)")
    options = parser.parse_args()
    facts = {"recipe": options.recipe, "learned": options.outcome}
    rows = {seed: judged(*hospital(seed), **facts) for seed in range(options.hospitals)}
    table = pd.DataFrame(rows).T.rename_axis("hospital")
    table.loc["mean"], table.loc["median"] = table.mean(), table.loc[: options.hospitals - 1].median()
    print(table.T.round(4).to_string())
    if options.output:
        table.to_csv(options.output)


if __name__ == "__main__":
    main()
