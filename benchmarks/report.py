"""The report of a test split of 50,000 admissions: seconds, megabytes of page, peak memory, and growth with n.

    python benchmarks/report.py [--quick]

A quick fit on a synthetic hospital stands in for the model; its size does not depend on how long it was trained.
"""

import argparse
import resource
import time

import mlci
from mlci.config import OptimiserConfig, PaperConfig
from mlci.showing.report import build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 test admissions")
    sizes = (5_000, 10_000) if parser.parse_args().quick else (5_000, 10_000, 25_000, 50_000)
    quick = PaperConfig(optimiser=OptimiserConfig(stage1_epochs=1, stage2_epochs=2))
    index = mlci.MLCI(config=quick).fit(mlci.build_cohort("synthetic", 10_000))
    print(f"{'test':>7} {'seconds':>8} {'page MB':>8} {'peak MB':>8}")
    for size in sizes:
        cohort = mlci.build_cohort("synthetic", 5 * size, seed=1)
        start = time.perf_counter()
        page = build(index, cohort, command="benchmark")
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{len(cohort.split('test')):>7,} {seconds:>8.1f} {len(page.encode()) / 1e6:>8.2f} {peak:>8.0f}")


if __name__ == "__main__":
    main()
