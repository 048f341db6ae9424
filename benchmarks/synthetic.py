"""How close each recipe comes to the best possible score on the synthetic hospital, where true severity is known.

    python benchmarks/synthetic.py [--admissions 40000] [--seeds 11,101]

Outcomes are drawn from severity alone, so no score can be aligned better than severity in its best spacing (fitted on
the training split, where severity is known as well). The rows below it are the recipes, each also in its own best
spacing, and the classic indices. Test split, mean over seeds, intervals by resampled patients for the first seed.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
import mlci
from mlci.codes.comorbidity import charlson, elixhauser
from mlci.judging.evaluate import evaluate
from mlci.judging.theory import best_spacing


def spaced(score: dict[str, np.ndarray], outcomes: np.ndarray) -> np.ndarray:
    """The test split's score in the spacing that is best on the training split."""
    return best_spacing(score["train"], outcomes).apply(score["test"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--admissions", type=int, default=40_000)
    parser.add_argument("--seeds", default="11,101")
    parser.add_argument("--resamples", type=int, default=500)
    words = parser.parse_args()
    cohort = mlci.build_cohort("synthetic", words.admissions, seed=7)
    parts = {name: cohort.split(name) for name in ("train", "test")}
    outcomes, test = parts["train"].labels(), parts["test"]
    severity = {name: part.column("true_severity") for name, part in parts.items()}
    rows = {
        "true severity, best spacing": [spaced(severity, outcomes)],
        "true severity": [severity["test"]],
    }
    for recipe in ("table", "deep", "paper"):
        for seed in map(int, words.seeds.split(",")):
            start = time.process_time()
            index = mlci.MLCI(recipe=recipe, seed=seed).fit(cohort)
            print(f"{recipe}, seed {seed}: {time.process_time() - start:.0f} s of processor time", flush=True)
            score = {name: index.score(part.admissions()) for name, part in parts.items()}
            rows.setdefault(f"recipe {recipe}", []).append(score["test"])
            rows.setdefault(f"recipe {recipe}, best spacing", []).append(spaced(score, outcomes))
    rows["Elixhauser (van Walraven)"] = [elixhauser(test)["eci_vw"].to_numpy(float)]
    rows["Charlson"] = [charlson(test)["cci_charlson"].to_numpy(float)]
    print(f"\n{len(test):,} test admissions; {', '.join(cohort.outcomes)}; all but rank correlations x 100\n")
    print("| | Spearman with true severity | dCorr (95 % interval) | AUROC | sum of squared dCorr |")
    print("|---|---:|---|---|---:|")
    for row, scores in rows.items():
        tables = [
            evaluate({"": score}, test, kernel="energy", resamples=0 if place else words.resamples)
            for place, score in enumerate(scores)
        ]
        value = np.mean([table["value"] for table in tables], axis=0)
        dcorr, auroc = (tables[0]["metric"] == name for name in ("dcorr", "auroc"))
        limits = zip(100 * value[dcorr], 100 * tables[0].loc[dcorr, "low"], 100 * tables[0].loc[dcorr, "high"])
        cells = [
            ", ".join(f"{a:.1f} ({low:.1f} to {high:.1f})" for a, low, high in limits),
            " ".join(f"{100 * a:.1f}" for a in value[auroc]),
            f"{np.mean([(table.loc[dcorr, 'value'] ** 2).sum() for table in tables]):.3f}",
        ]
        ranked = np.mean([spearmanr(score, severity["test"]).statistic for score in scores])
        print(f"| {row} | {ranked:.3f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
