"""How often a 95% interval contains the truth when events are few: `mlci evaluate` compared with plain percentiles.

    python benchmarks/intervals.py [--replicates 500] [--resamples 100] [--seed 1] [--events 11,20,82] [-o FILE]
    python benchmarks/intervals.py --replicates 3000 --seed 2029 --events 200 --score weak --admissions several

Each replicate is a hospital of 1,000 admissions. 11, 20, 82 or 200 of them are expected to have the outcome; the score
is strong or weak; patients have one admission, or about two that are alike in score and outcome. The score is judged
with its own risk, which is true, and compared with the same score with noise. True figures come from a million
admissions. A score of pure noise shows how often the test of independence errs.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import norm

from mlci.measures import resample
from mlci.measures.independence import independence
from mlci.measures.intervals import Interval, Reach, difference, percentile
from mlci.measures.registry import METRICS, Pair

N = 1000
EVENTS = (11, 20, 82, 200)
STRENGTHS = {"strong": 2.0, "weak": 0.5}
ALIKE = {"one": 0.0, "several": 1.0}  # admissions per patient
MANY = 1_000_000
APART = ("auroc", "dcorr")
GRID = np.linspace(-6, 6, 1201)


@dataclass(frozen=True)
class Hospital:
    """Admissions whose log-odds rise by `slope` per standard deviation of the score.

    `alike` is the standard deviation of the patients' own log-odds; with 0 each admission is a patient of its own.
    """

    events: int
    slope: float
    alike: float

    def generator(self, seed: int) -> np.random.Generator:
        """An own random generator, so that draws are independent between kinds of hospitals."""
        return np.random.default_rng([seed, self.events, int(10 * self.slope), int(self.alike)])

    @cached_property
    def along(self) -> tuple[float, np.ndarray]:
        """The intercept with `events` expected among `N` admissions, and the true risk along `GRID`."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(30)
        weights, share = weights / weights.sum(), norm.pdf(GRID) / norm.pdf(GRID).sum()
        low, high, level, risks = -20.0, 5.0, 0.0, GRID
        for _ in range(50):
            level = (low + high) / 2
            risks = expit(level + self.slope * GRID[:, None] + self.alike * nodes) @ weights
            low, high = (low, level) if risks @ share > self.events / N else (level, high)
        return level, risks

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Pair, Pair]:
        """The score with its true risk and the outcome, and the same score with noise."""
        level, risks = self.along
        patient = np.repeat(np.arange(n), 1 + rng.poisson(1.0, n))[:n] if self.alike else np.arange(n)
        score = rng.normal(size=n)
        if self.alike:
            score = (score + rng.normal(size=n)[patient]) / np.sqrt(2)
        fate = self.alike * rng.normal(size=n)[patient]
        y = (rng.random(n) < expit(level + self.slope * score + fate)).astype(float)
        own = Pair(score, y, np.interp(score, GRID, risks), kernel="energy", patients=patient)
        return own, Pair(score + rng.normal(size=n), y, kernel="energy", patients=patient)


def truth(hospital: Hospital) -> dict[str, float]:
    """The true figures: from a million admissions, or known because the risk is true."""
    pairs = hospital.draw(MANY, np.random.default_rng(0))
    names = ("auroc", "dcorr", "rank_dcorr", "average_precision")
    found, noisy = ({name: METRICS[name].value(pair) for name in names} for pair in pairs)
    risk = np.asarray(pairs[0].risk)
    rate, brier = risk.mean(), float(np.mean(risk * (1 - risk)))
    bare, loss = (
        float(np.mean(-p * np.log(p) - (1 - p) * np.log1p(-p)))  # entropy: the log-loss of a true risk
        for p in (rate, risk)
    )
    found |= {"mi": bare - loss, "deviance": 1 - loss / bare, "brier": brier, "slope": 1.0, "intercept": 0.0}
    found |= {"calibration_error": 0.0}
    return found | {f"{name}, difference": noisy[name] - found[name] for name in APART}


def judged(own: Pair, noisy: Pair, *, resamples: int, seed: int) -> Iterator[tuple[str, float, Interval, Interval]]:
    """Figure, value, and its interval as `mlci evaluate` gives it and by percentiles."""
    ranking, information, calibration = (METRICS[name].resampler for name in ("auroc", "mi", "brier"))
    statistics = [kind.make(own) for kind in (ranking, information, calibration)] + [ranking.make(noisy)]
    drawn = resample.bootstrap(statistics, own.patients, resamples=resamples, seed=seed, threads=1)
    names = (*ranking.metrics, *information.metrics, *calibration.metrics)
    draws, beside = dict(zip(names, np.hstack(drawn[:3]).T)), dict(zip(ranking.metrics, drawn[3].T))
    reach, nothing = Reach(own.events), np.full(1, np.nan)
    for name in (*names, "calibration_error"):
        value, column = METRICS[name].value(own), draws.get(name, nothing)
        yield name, value, METRICS[name].interval(own, value, column, reach), percentile(value, column, reach)
    for name in APART:
        value, other, base = METRICS[name].value(noisy) - METRICS[name].value(own), beside[name], draws[name]
        gap = difference(value, other, base, reach)
        yield f"{name}, difference", value, gap, percentile(value, other - base, reach)


def _held(bound: Interval, truth: float) -> float:
    """1 where the interval contains the truth, 0 where not, NaN without an interval."""
    return np.nan if np.isnan(bound.low) else float(bound.low <= truth <= bound.high)


def coverage(hospital: Hospital, *, replicates: int, resamples: int, seed: int = 1) -> pd.DataFrame:
    """Share of replicates whose interval contains the truth, and the mean of figure − truth."""
    rng, true, rows = hospital.generator(seed), truth(hospital), []
    for replicate in range(replicates):
        own, noisy = hospital.draw(N, rng)
        if own.events < 3:
            continue
        for name, value, ours, plain in judged(own, noisy, resamples=resamples, seed=replicate):
            if name in true:
                held = [_held(bound, true[name]) for bound in (ours, plain)]
                rows.append((name, *held, value - true[name], true[name]))
    frame = pd.DataFrame(rows, columns=["figure", "covered", "by_percentiles", "bias", "truth"])
    return frame.groupby("figure", sort=False).mean().reset_index()


def errs(hospital: Hospital, *, replicates: int, seed: int) -> float:
    """How often the test of independence rejects a score of pure noise at 5%."""
    rng = hospital.generator(seed)
    pairs = (hospital.draw(N, rng)[0] for _ in range(replicates))
    found = [independence(pair.scores, pair.y, patients=pair.patients) for pair in pairs if pair.events]
    return float(np.mean(np.array(found) < 0.05))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--resamples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", default=",".join(map(str, EVENTS)), help="separated by commas")
    parser.add_argument("--score", choices=STRENGTHS, action="append", help="only this strength")
    parser.add_argument("--admissions", choices=ALIKE, action="append", help="per patient")
    parser.add_argument("-o", "--output", type=Path, help="file for the whole table (CSV)")
    options = parser.parse_args()
    begun, parts = time.process_time(), []
    size = {"replicates": options.replicates, "seed": options.seed}
    for events in map(int, options.events.split(",")):
        for admissions, alike in ((name, ALIKE[name]) for name in options.admissions or ALIKE):
            for strength in options.score or STRENGTHS:
                hospital = Hospital(events, STRENGTHS[strength], alike)
                found = coverage(hospital, resamples=options.resamples, **size)
                parts.append(found.assign(events=events, score=strength, admissions=admissions))
            noise = errs(Hospital(events, 0.0, alike), **size)
            print(
                f"{events} events, {admissions} admission(s) per patient: independence rejected {noise:.1%}", flush=True
            )
    table = pd.concat(parts, ignore_index=True)
    shown = table.assign(
        cell=[f"{100 * a:.1f} ({100 * b:.1f})" for a, b in zip(table["covered"], table["by_percentiles"])]
    )
    wide = shown.pivot(index="figure", columns=["events", "score", "admissions"], values="cell")
    print("\nCoverage in %, in brackets by percentiles:\n")
    print(wide.loc[table["figure"].unique()].T.to_string())
    print("\nMean of figure - truth:\n")
    print(shown.pivot(index="figure", columns=["events", "score", "admissions"], values="bias").T.round(4).to_string())
    print(f"\n{time.process_time() - begun:.0f} s of processor time")
    if options.output:
        table.to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
