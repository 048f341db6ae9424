"""The measures compared with other libraries and with their plain definitions: time, ratio, memory, growth with n.

Seconds are processor time on one thread, so that a busy machine does not distort the ratios.

    python benchmarks/measures.py [--quick] [--plot docs/measures.svg]
    python benchmarks/measures.py --busy [--quick]      nHSIC by threads of BLAS, alone and next to busy processes
"""

import argparse
import os
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import dcor
import numpy as np
from sklearn.feature_selection import mutual_info_classif
from threadpoolctl import threadpool_limits

from mlci.measures import alignment, resample
from mlci.measures.alignment import bandwidth, distance_correlation, nhsic
from mlci.measures.information import mutual_information


def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    score = rng.normal(size=n)
    return score, (rng.random(n) < 1 / (1 + np.exp(3 - score))).astype(float)


def gram_nhsic(score: np.ndarray, y: np.ndarray) -> float:
    kernel = np.exp(-(np.subtract.outer(score, score) ** 2) / 2)
    kernel -= kernel.mean(axis=0)
    kernel -= kernel.mean(axis=1, keepdims=True)
    profile = y - y.mean()
    return float(profile @ kernel @ profile / (np.linalg.norm(kernel) * (profile @ profile)))


def dense_bandwidth(score: np.ndarray, y: np.ndarray) -> float:
    score = (score - score.mean()) / score.std()
    distance = np.abs(np.subtract.outer(score, score))
    return float(np.median(distance[distance > 0]))


def peer_mi(score: np.ndarray, y: np.ndarray) -> float:
    z = (score - score.mean()) / (score.std() + 1e-8)
    return float(mutual_info_classif(z[:, None], y.astype(int), n_neighbors=5, random_state=12345)[0])


OURS: dict[str, Callable] = {
    "nHSIC": lambda s, y: nhsic(s, y, sigma=1.0),
    "nHSIC, five bandwidths": lambda s, y: nhsic(s, y, sigma=1.0, kernel="multi-rbf"),
    "dCorr": distance_correlation,
    "MI": mutual_information,
    "bandwidth": lambda s, y: bandwidth(s),
}
# name -> (peer, its function, largest n it is given)
PEERS: dict[str, tuple[str, Callable, int]] = {
    "nHSIC": ("n x n Gram matrix", gram_nhsic, 10_000),
    "dCorr": ("dcor, best 1-D method", dcor.distance_correlation, 1_000_000),
    "MI": ("scikit-learn", peer_mi, 1_000_000),
    "bandwidth": ("n x n differences", dense_bandwidth, 10_000),
}


def timed(function: Callable, score: np.ndarray, y: np.ndarray, repeats: int) -> tuple[float, float]:
    best, value = np.inf, np.nan
    for _ in range(repeats):
        start = time.process_time()
        value = function(score, y)
        best = min(best, time.process_time() - start)
    return best, float(value)


def memory(name: str, n: int) -> float:
    """Peak memory of the measure beyond the data, in MB."""
    score, y = drawn(n)
    tracemalloc.start()
    OURS[name](score, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def busy(n: int) -> None:
    """nHSIC of five bandwidths with the threads of BLAS chosen by size, with one, and with one for each core."""
    (score, y), cores, shared = drawn(n), len(os.sched_getaffinity(0)), alignment.SHARED
    print(f"{cores} cores, {n:,} admissions\n\n| | threads | seconds by the clock | of processor |\n|---|---|---|---|")
    for others in (0, cores):
        crowd = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
        try:
            for way, threads, least in (
                ("chosen by size", cores, shared),
                ("one", 1, shared),
                ("one for each core", cores, 0),
            ):
                alignment.SHARED = least
                with threadpool_limits(threads, user_api="blas"):
                    start, used = time.perf_counter(), time.process_time()
                    nhsic(score, y, kernel="multi-rbf")
                    took = f"{time.perf_counter() - start:.1f} | {time.process_time() - used:.1f}"
                print(f"| {f'beside {others} busy processes' if others else 'alone'} | {way} | {took} |", flush=True)
        finally:
            for process in crowd:
                process.kill()
    alignment.SHARED = shared


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--busy", action="store_true", help="only threads of BLAS on a busy machine")
    parser.add_argument("--quick", action="store_true", help="up to 100,000 admissions")
    parser.add_argument("--plot", help="SVG file for the log-log plot of time against n")
    options = parser.parse_args()
    if options.busy:
        busy(100_000 if options.quick else 1_000_000)
        return
    sizes = [10_000, 30_000, 100_000] + ([] if options.quick else [300_000, 1_000_000])
    for function in [*OURS.values(), *(peer[1] for peer in PEERS.values())]:
        function(*drawn(2000))  # imports, and dcor's compilation
    times: dict[str, list[float]] = {name: [] for name in OURS}
    print("| measure | n | seconds | peer | seconds | ratio | relative difference |\n|---|---|---|---|---|---|---|")
    for n in sizes:
        score, y = drawn(n)
        for name, function in OURS.items():
            ours, value = timed(function, score, y, 3 if n <= 100_000 else 2)
            times[name].append(ours)
            line = f"| {name} | {n:,} | {ours:.3f} |"
            if name in PEERS and n <= PEERS[name][2]:
                peer, other, _ = PEERS[name]
                theirs, truth = timed(other, score, y, 1 if n > 100_000 or n * n > 1e9 else 2)
                line += f" {peer} | {theirs:.3f} | {theirs / ours:.1f} | {abs(value / truth - 1):.0e} |"
            else:
                line += " | | | |"
            print(line, flush=True)
    print("\n| measure | n | peak memory beyond the data, MB | n x n matrix, MB | growth of time, exponent |")
    print("|---|---|---|---|---|")
    for name in OURS:
        exponent = np.polyfit(np.log(sizes), np.log(times[name]), 1)[0]
        n = sizes[-1]
        print(f"| {name} | {n:,} | {memory(name, n):,.0f} | {n * n * 8 / 2**20:,.0f} | {exponent:.2f} |", flush=True)

    n, patients = (10_000, 6_000) if options.quick else (50_000, 30_000)
    rng = np.random.default_rng(1)
    score, subject = rng.normal(size=n), rng.integers(patients, size=n)
    outcomes = [(rng.random(n) < 1 / (1 + np.exp(shift - score))).astype(float) for shift in (3, 2, 1, 2.5)]
    for y in outcomes:
        y[rng.random(n) < 0.03] = np.nan
    start, used = time.perf_counter(), time.process_time()
    resample.bootstrap([resample.ranking(score, y, sigma=1.0) for y in outcomes], subject, resamples=1000)
    ours, used = time.perf_counter() - start, time.process_time() - used
    start = time.process_time()
    for y in outcomes:
        rows = ~np.isnan(y)
        dcor.distance_correlation(score[rows], y[rows])
    plain = (time.process_time() - start) * 1000
    print(
        f"\n1,000 resamples by patient of {n:,} admissions, 4 outcomes: dCorr, nHSIC, AUROC, average precision and "
        f"rank dCorr in {ours:.1f} s, {used:.1f} s of processor time "
        f"(dcor alone, 1,000 times over: about {plain:.0f} s)."
    )
    if options.plot:
        plot(sizes, times, options.plot)


def plot(sizes: list[int], times: dict[str, list[float]], path: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "mlci"
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name, seconds in times.items():
        axis.loglog(sizes, seconds, marker="o", markersize=4, label=name)
    guide = np.array(sizes) * (times["dCorr"][0] / sizes[0] / 2)
    axis.loglog(sizes, guide, color="grey", linestyle=":", label="linear")
    axis.set(xlabel="admissions", ylabel="seconds", title="Time of each measure on one core")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
