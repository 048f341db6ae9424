"""Hospital comparison: planted outliers found, false alarms, and speed and memory.

    python benchmarks/compare.py found [--admissions 100000] [--seeds 1,2,3,4,5] [--recipes table,deep]
    python benchmarks/compare.py [speed] [--admissions 1000000] [--hospitals 500]

`found` makes synthetic hospitals of known quality: of forty, four are worse and four better. It judges them by each
index and counts, over all seeds, how many planted outliers are found and how many ordinary hospitals are flagged.
Learned indices are fitted on another synthetic hospital, so that no hospital's own deaths are learned. `speed` measures
the processor time of `mlci.compare` with 200 resamples, adjusted by age and sex, and the memory it adds.
"""

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
import mlci
from mlci.judging.compare import compare
from mlci.judging.rivals import classic

OUTCOME = "mortality_30d"
LIMITS = {"exact": "none", "with room": "additive"}


def found(words: argparse.Namespace) -> None:
    learned = {}
    for recipe in filter(None, words.recipes.split(",")):
        start = time.process_time()
        learned[recipe] = mlci.MLCI(recipe=recipe, seed=11).fit(mlci.build_cohort("synthetic", words.fit, seed=1000))
        print(f"{recipe}: fitted in {time.process_time() - start:.0f} s of processor time", flush=True)
    counts: Counter[tuple[str, ...]] = Counter()
    rows: list[pd.DataFrame] = []
    pairs: list[pd.DataFrame] = []
    for seed in map(int, words.seeds.split(",")):
        cohort = mlci.build_cohort("synthetic", words.admissions, seed=seed, hospitals=words.hospitals)
        scores = {"no index (age and sex)": np.zeros(len(cohort)), **dict(reversed(classic(cohort).items()))}
        scores |= {recipe: index.score(cohort) for recipe, index in learned.items()}
        scores["true severity"] = cohort.column("true_severity")
        truth = pd.DataFrame({name: cohort.column(name) for name in ("hospital", "true_quality", "true_coding")})
        truth = truth.drop_duplicates("hospital").set_index("hospital")
        for limits, method in LIMITS.items():
            got = compare(
                cohort,
                scores,
                by="hospital",
                outcome=OUTCOME,
                adjust=["age", "sex"],
                overdispersion=method,
                resamples=0,
            )
            _count(counts, got, truth, limits)
        rows.append(got.models.assign(seed=seed))
        pairs.append(got.changes)
        many = set(got.coding.loc[got.coding["verdict"] == "many", "group"])
        upcoding = set(truth.index[truth["true_coding"] == truth["true_coding"].max()])
        counts["coding", "found"] += len(many & upcoding)
        counts["coding", "planted"] += len(upcoding)
        counts["coding", "false"] += len(many - upcoding)
        print(f"seed {seed}: {len(cohort):,} admissions, {got.events:,} events", flush=True)
    _print(counts, pd.concat(rows), pd.concat(pairs))


def _count(counts: Counter, got, truth: pd.DataFrame, limits: str) -> None:
    """Count outliers found on the right side, and false alarms, at the 95% and the 99.8% limits."""
    for row in got.table.itertuples():
        if not row.ranked:
            continue
        quality = truth.loc[row.group, "true_quality"]
        right = "high" if quality > 0 else "low"
        for level, verdict in (("95%", row.alert), ("99.8%", row.verdict)):
            key = (row.model, limits, level)
            counts[(*key, "planted" if quality else "alike")] += 1
            counts[(*key, "found")] += int(bool(quality) and verdict == right)
            counts[(*key, "false")] += int(not quality and verdict != "as expected")


def _print(counts: Counter, models: pd.DataFrame, changes: pd.DataFrame) -> None:
    heads = [f"{limits} {level}" for limits in LIMITS for level in ("95%", "99.8%")]
    print(f"\n| index | AUROC | mean squared z | {' | '.join(f'{head}: found, false' for head in heads)} |")
    print(f"|---|---:|---:|{'---|' * len(heads)}")
    for model, part in models.groupby("model", sort=False):
        cells = []
        for limits in LIMITS:
            for level in ("95%", "99.8%"):
                tell = {word: counts[model, limits, level, word] for word in ("found", "planted", "false", "alike")}
                cells.append("{found} of {planted}, {false} of {alike}".format(**tell))
        print(f"| {model} | {part['auroc'].mean():.3f} | {part['phi'].mean():.2f} | {' | '.join(cells)} |")
    tell = {word: counts["coding", word] for word in ("found", "planted", "false")}
    print("\nHospitals that record too much: {found} of {planted} found, {false} others flagged.".format(**tell))
    print("\n| indices | different verdict | move ten ranks or more | largest move |\n|---|---:|---:|---:|")
    for (first, second), part in changes.groupby(["model", "versus"], sort=False):
        share = part["other_verdict"].sum() / part["groups"].sum()
        print(f"| {first}, {second} | {share:.0%} | {part['far'].mean():.0%} | {part['farthest'].max():.0f} |")


def speed(words: argparse.Namespace) -> None:
    cohort = mlci.build_cohort("synthetic", words.admissions, seed=1, hospitals=words.hospitals)
    score = classic(cohort)["Elixhauser"]
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak use of memory (Linux)
    before, start, wall = _highest(), time.process_time(), time.perf_counter()
    got = compare(cohort, score, by="hospital", outcome=OUTCOME, adjust=["age", "sex"])
    used, passed = time.process_time() - start, time.perf_counter() - wall
    more = (_highest() - before) / 1e6
    print(f"{len(cohort):,} admissions, {len(got.table)} hospitals, {got.resamples} resamples:")
    print(f"{used:.1f} s of processor time, {passed:.1f} s by the clock, {more:.2f} GB more memory at peak")


def _highest() -> int:
    """The peak use of memory since the last reset, in kB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["found", "speed"], nargs="?", default="speed")
    parser.add_argument("--admissions", type=int)
    parser.add_argument("--hospitals", type=int)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--recipes", default="table")
    parser.add_argument("--fit", type=int, default=40_000, help="admissions that learned indices are fitted on")
    words = parser.parse_args()
    words.admissions = words.admissions or (100_000 if words.what == "found" else 1_000_000)
    words.hospitals = words.hospitals or (40 if words.what == "found" else 500)
    {"found": found, "speed": speed}[words.what](words)


if __name__ == "__main__":
    main()
