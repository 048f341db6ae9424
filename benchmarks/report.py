"""`mlci report` on test splits of growing size: wall time, processor time, size of the page, peak memory.

    python benchmarks/report.py [--quick]

The command runs in a process of its own, start-up included. The comparison is a small part of the page done the plain
way: the AUROC of three scores for four outcomes over 200 resamples by scikit-learn (processor seconds, extrapolated
from a twentieth of them). The model is a table learned from 10,000 synthetic admissions.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import mlci
from score import timed

LIMIT = 5.0  # seconds by the clock, 50,000 test admissions, two idle cores
PAIRS, RESAMPLES = 12, 200


def plain(cohort: mlci.Cohort) -> float:
    """Processor seconds of resampled AUROCs by scikit-learn."""
    rng, y = np.random.default_rng(0), cohort.labels()[:, 0]
    score, start = rng.random(len(y)) + y, time.process_time()
    for _ in range(RESAMPLES // 20):
        rows = rng.integers(len(y), size=len(y))
        roc_auc_score(y[rows], score[rows])
    return (time.process_time() - start) * 20 * PAIRS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 test admissions")
    sizes = (5_000, 10_000) if parser.parse_args().quick else (5_000, 12_500, 25_000, 50_000)
    print(f"{'test':>7} {'wall s':>7} {'cpu s':>7} {'page MB':>8} {'peak MB':>8} {'plain AUROCs':>13} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        model, source, page = (Path(folder, name) for name in ("m.safetensors", "c.parquet", "report.html"))
        mlci.MLCI().fit(mlci.build_cohort("synthetic", 10_000)).save(model)
        for size in sizes:
            cohort = mlci.build_cohort("synthetic", 5 * size, seed=1)
            cohort.write(source)
            wall, cpu, peak = timed("report", str(model), str(source), "-o", str(page), "--quiet", "--force")
            test = cohort.split("test")
            beside, megabytes = plain(test), page.stat().st_size / 1e6
            cells = f"{len(test):>7,} {wall:>7.1f} {cpu:>7.1f} {megabytes:>8.2f} {peak:>8.0f}"
            print(f"{cells} {beside:>13.1f} {cpu / beside:>6.2f}", flush=True)
    if size == 50_000:
        print(f"limit {LIMIT:.0f} s by the clock on two idle cores: {'met' if wall <= LIMIT else 'missed'}")


if __name__ == "__main__":
    main()
