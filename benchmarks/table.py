"""How good the recipe `table` is, and what it costs.

    python benchmarks/table.py quality cohort.parquet [--split test] [--seeds 11,101,1001,7,42]
    python benchmarks/table.py small [--codes 1.2] [--recipes table,deep,paper] [--sizes 1000,3000,20000]
    python benchmarks/table.py cost [--admissions 178178]

`quality`: dCorr and AUROC of the score and AUROC of the risks, mean and SD over seeds, compared with Elixhauser's flags
refitted with age and sex on the same training split. `small`: few training admissions of the synthetic hospital, judged
on 20,000 admissions of other patients; `--codes` keeps only so many codes of each admission, on average. `cost`:
processor and wall time and peak memory of a fit at a quarter, half, all and twice MIMIC-IV's size. Choosing penalties
and curves uses a limited number of admissions; everything else grows with their number.
"""

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
import mlci
from mlci.cohort import Cohort
from mlci.judging.rivals import refitted
from mlci.measures.alignment import distance_correlation
from mlci.measures.discrimination import auroc


def figures(score: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dCorr and AUROC x 100 with each outcome."""
    known = [~np.isnan(label) for label in labels.T]
    dcorr = [100 * distance_correlation(score[rows], label[rows]) for rows, label in zip(known, labels.T)]
    return np.array(dcorr), np.array([100 * auroc(score[rows], label[rows]) for rows, label in zip(known, labels.T)])


def of_risks(risks: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """AUROC x 100 of each outcome's own risk."""
    return np.array([figures(risk, label[:, None])[1][0] for risk, label in zip(risks.T, labels.T)])


def shown(values: Sequence[float] | np.ndarray) -> str:
    return " ".join(f"{value:.1f}" for value in values)


def quality(path: str, split: str, seeds: Sequence[int]) -> None:
    cohort = mlci.read_cohort(path)
    judged, found = cohort.split(split), []
    labels = judged.labels()
    for seed in seeds:
        start = time.process_time()
        index = mlci.MLCI(recipe="table", seed=seed).fit(cohort)
        spent = time.process_time() - start
        dcorr, order = figures(index.score(judged.admissions()), labels)
        risks = of_risks(index.risk(judged.admissions()).to_numpy(), labels)
        found.append((dcorr, order, risks, np.array([np.square(dcorr / 100).sum()])))
        print(f"seed {seed}: {shown(dcorr)} | {found[-1][3][0]:.3f} | {shown(order)} | {shown(risks)} | {spent:.0f} s")
    print(f"\n{len(judged):,} admissions of the {split} split; {', '.join(cohort.outcomes)}; {len(seeds)} seeds\n")
    print("| | dCorr | sum of squares | AUROC of the score | AUROC of the risks |\n|---|---|---:|---|---|")
    for row, fold in (("mean", np.mean), ("SD", np.std)):
        dcorr, order, risks, total = (fold(each, axis=0) for each in zip(*found))
        print(f"| table, {row} | {shown(dcorr)} | {total[0]:.3f} | {shown(order)} | {shown(risks)} |")
    for rival, columns in refitted(cohort.split("train"), judged, list(cohort.outcomes)).items():
        risks = np.column_stack([columns[name] for name in cohort.outcomes])
        print(f"| {rival} | | | | {shown(of_risks(risks, labels))} |")


def small(sizes: Sequence[int], recipes: Sequence[str], codes: float | None, seeds: Sequence[int]) -> None:
    hospital = mlci.build_cohort("synthetic", 100_000, seed=7)
    if codes is not None:
        hospital = thinned(hospital, codes)
    judged = hospital.split("test").sample(20_000, seed=0)
    print("| admissions | " + " | ".join(f"{recipe}: sum of squares; AUROC" for recipe in recipes) + " |")
    print("|---:" + "|---" * len(recipes) + "|")
    for size in sizes:
        cells = []
        for recipe in recipes:
            found = []
            for seed in seeds:
                learned = hospital.split("train", "valid").sample(size, seed=seed)
                index = mlci.MLCI(recipe=recipe, seed=seed).fit(learned)
                dcorr, order = figures(index.score(judged.admissions()), judged.labels())
                found.append((np.square(dcorr / 100).sum(), order.mean()))
            total, order = np.mean(found, axis=0)
            cells.append(f"{total:.3f}; {order:.1f}")
        print(f"| {size:,} | {' | '.join(cells)} |", flush=True)


def thinned(cohort: Cohort, codes: float) -> Cohort:
    """Keep a random share of each admission's codes, at least the first, so that the mean is about `codes`."""
    lists, rng = cohort.table["codes"].to_pylist(), np.random.default_rng(0)
    share = (codes - 1) / (np.mean([len(each) for each in lists]) - 1)
    fewer = [each[:1] + [code for code in each[1:] if rng.random() < share] for each in lists]
    place = cohort.table.column_names.index("codes")
    return replace(cohort, table=cohort.table.set_column(place, "codes", pa.array(fewer, pa.list_(pa.string()))))


def cost(admissions: int) -> None:
    steps = ("penalties", "weights", "curves")
    said = ("training admissions", "processor s", "penalties (all tries but one)", *steps[1:], "the rest")
    print(f"| {' | '.join(said)} | without penalties, per 100,000 | clock s | peak GB |\n{'|---:' * 9}|")
    for size in (admissions // 4, admissions // 2, admissions, 2 * admissions):
        cohort = mlci.build_cohort("synthetic", size + 1000, seed=7)
        split = np.where(np.arange(len(cohort)) < size, "train", "valid")
        place = cohort.table.column_names.index("split")
        cohort = replace(cohort, table=cohort.table.set_column(place, "split", pa.array(split)))
        clock, start, ends = time.perf_counter(), time.process_time(), {}

        def on_event(event, ends=ends) -> None:
            ends.setdefault("begun", time.process_time())
            ends[event.step] = time.process_time()

        mlci.MLCI(recipe="table").fit(cohort, on_event=on_event)
        spent = time.process_time() - start
        parts = np.diff([ends["begun"], *(ends[step] for step in steps)])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        shown = " | ".join(f"{part:.1f}" for part in (*parts, spent - parts.sum()))
        each = (spent - parts[0]) / size * 1e5  # penalties are chosen on 40,000 admissions at most
        print(f"| {size:,} | {spent:.1f} | {shown} | {each:.1f} | {time.perf_counter() - clock:.1f} | {peak:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="cost", choices=["quality", "small", "cost"])
    parser.add_argument("cohort", nargs="?")
    parser.add_argument("--split", default="test")
    parser.add_argument("--seeds", default="11,101,1001,7,42")
    parser.add_argument("--sizes", default="1000,3000,20000")
    parser.add_argument("--recipes", default="table,deep,paper")
    parser.add_argument("--codes", type=float)
    parser.add_argument("--admissions", type=int, default=178_178)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the admissions")
    words = parser.parse_args()
    seeds = [int(seed) for seed in words.seeds.split(",")]
    if words.what == "quality":
        quality(words.cohort, words.split, seeds)
    elif words.what == "small":
        small([int(size) for size in words.sizes.split(",")], words.recipes.split(","), words.codes, seeds)
    else:
        cost(words.admissions // 20 if words.quick else words.admissions)


if __name__ == "__main__":
    main()
