"""How often intervals contain the population's value when a stratified, clustered, unequal sample is judged.

    python benchmarks/survey.py [REPLICATES]

A synthetic country has 600 hospitals in six strata, whose patients die more often in some hospitals than in others at
the same severity. A sample has ten hospitals of each stratum and 25 admissions of each, severe ones with twice the
probability. Each sample is judged with its design (weights, clusters, strata), with its weights only, and as if it were
a simple random sample. The table gives how many of the 95% intervals contain the country's value.
"""

import sys

import numpy as np

from mlci.judging.evaluate import judge
from mlci.measures.design import Design
from mlci.measures.registry import METRICS, Pair

STRATA, HOSPITALS, ADMISSIONS = 6, 100, 300  # of the country, hospitals of each stratum, admissions of each hospital
DRAWN, EACH = 10, 25  # hospitals of a stratum, admissions of a hospital in a sample
FIGURES = ("auroc", "dcorr", "deviance", "observed_expected", "slope", "brier")
FORMS = ("weights, clusters and strata", "weights alone", "as a simple random sample")


def country(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Hospital, stratum, score, risk and outcome of every admission."""
    hospital = np.repeat(np.arange(STRATA * HOSPITALS), ADMISSIONS)
    stratum = hospital // HOSPITALS
    level, worse = rng.normal(0, 0.4, STRATA * HOSPITALS), rng.normal(0, 0.5, STRATA * HOSPITALS)
    score = rng.normal(size=len(hospital)) + level[hospital] + 0.2 * stratum
    died = rng.random(len(hospital)) < 1 / (1 + np.exp(2.5 - score - worse[hospital]))
    risk = 1 / (1 + np.exp(2.5 - score))
    return {"hospital": hospital, "stratum": stratum, "score": score, "risk": risk, "died": died.astype(float)}


def sample(world: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The admissions of one sample, and how many of the country each represents."""
    rows, weights = [], []
    for stratum in range(STRATA):
        for hospital in stratum * HOSPITALS + rng.choice(HOSPITALS, DRAWN, replace=False):
            inside = np.flatnonzero(world["hospital"] == hospital)
            chance = np.where(world["score"][inside] > 1, 2.0, 1.0)
            chance *= EACH / chance.sum()
            taken = rng.random(len(inside)) < chance
            rows.append(inside[taken])
            weights.append(HOSPITALS / DRAWN / chance[taken])
    return np.concatenate(rows), np.concatenate(weights)


def main(replicates: int = 200) -> None:
    rng = np.random.default_rng(2010)
    world = country(rng)
    whole = Pair(world["score"], world["died"], world["risk"], kernel="energy")
    truth = {name: METRICS[name].value(whole) for name in FIGURES}
    held = np.zeros((len(FORMS), len(FIGURES)))
    for replicate in range(replicates):
        rows, weights = sample(world, rng)
        hospital, stratum = world["hospital"][rows], world["stratum"][rows]
        forms = (
            Design.of(hospital, weights=weights, strata=stratum),
            Design.of(np.arange(len(rows)), weights=weights),
            Design.of(np.arange(len(rows))),
        )
        for place, design in enumerate(forms):
            table = judge(
                {"score": world["score"][rows]},
                {"died": world["died"][rows]},
                groups=design,
                risks={"score": {"died": world["risk"][rows]}},
                kernel="energy",
                metrics=FIGURES,
                resamples=200,
                seed=replicate,
            ).table.set_index("metric")
            held[place] += [table.loc[name, "low"] <= truth[name] <= table.loc[name, "high"] for name in FIGURES]
    print(f"{replicates} samples of about {STRATA * DRAWN * EACH:,} admissions of {len(world['died']):,}; covered, %\n")
    print(f"| | {' | '.join(METRICS[name].short for name in FIGURES)} |")
    print("|---" * (1 + len(FIGURES)) + "|")
    for form, row in zip(FORMS, held):
        print(f"| {form} | {' | '.join(f'{100 * share / replicates:.0f}' for share in row)} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
