"""Where the time of scoring on Spark goes: one million admissions on two local cores, Parquet to Parquet.

    python benchmarks/spark.py [--quick]

Processor seconds of the Java side (reading, rows to Arrow and back, writing) and of the Python workers, for jobs of a
warm session: Java compiles what runs often, and the first job takes twice as long. The comparison is `mlci score` of
the same file in a process of its own, start-up included. `ids` sends the same columns to Python, which returns only
identifiers: this is what Spark itself costs. In `files` no row passes through Java (`mlci.spark.score_files`). Ratios
of processor and wall time are relative to the local command.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import mlci.spark
from mlci.index.model import load_model
from score import DEPTHS, admissions_file, codes_in_use, paper_file, table_file, timed, tokens_of

AIM = 1.5  # of the local command's seconds by the clock, its start-up included, for files


def used() -> dict[str, float]:
    """Processor seconds of this process's children so far."""
    found = {"java": 0.0, "python": 0.0}
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        found["java" if "java" in child.name() else "python"] += times.user + times.system
    return found


def job(what: str, work: Callable[[], object], beside: tuple[float, float] | None = None) -> float:
    """Print the cost of a job compared with the local command (wall and processor seconds); return the wall seconds."""
    before, start = used(), time.perf_counter()
    work()
    wall, after = time.perf_counter() - start, used()
    java, python = (after[side] - before[side] for side in ("java", "python"))
    ratio = f"{(java + python) / beside[1]:8.2f} {wall / beside[0]:8.2f}" if beside else ""
    print(f"{what:24} {wall:8.1f} {java:8.1f} {python:8.1f} {ratio}", flush=True)
    return wall


def written(frame: DataFrame, target: Path) -> None:
    frame.write.mode("overwrite").parquet(str(target))


def ids(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.select(["admission_id"]) for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the admissions")
    n = 100_000 if parser.parse_args().quick else 1_000_000
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = codes_in_use(rng)
        paper_file(folder / "network.safetensors", tokens_of(names, (4,)))
        table_file(folder / "table.safetensors", tokens_of(names, DEPTHS), rng)
        source, target = folder / "in.parquet", folder / "out"
        admissions_file(source, names, n, rng, 13)
        alone, slower = {}, {}
        print(f"{'what':24} {'wall s':>8} {'java s':>8} {'python s':>8} {'ratio':>8} {'by clock':>8}")
        for kind in ("network", "table"):
            words = ("score", str(folder / f"{kind}.safetensors"), str(source), "-o", str(folder / "s.parquet"))
            wall, processor, _ = timed(*words, "--quiet", "--force")
            alone[kind] = wall, processor
            print(f"{f'mlci score, a {kind}':24} {wall:8.1f} {'':8} {processor:8.1f}", flush=True)
        os.environ["PYSPARK_PYTHON"] = sys.executable  # its workers would take the first python3 of the path
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        with builder.config("spark.log.level", "ERROR").getOrCreate() as spark:
            frame = spark.read.parquet(str(source))
            for _ in range(3):
                job("warming up", partial(written, mlci.spark.score(frame, folder / "table.safetensors"), target))
            job("ids", partial(written, frame.mapInArrow(ids, "admission_id long"), target))
            for kind, beside in alone.items():
                model = load_model(folder / f"{kind}.safetensors")
                job(f"score, a {kind}", partial(written, mlci.spark.score(frame, model), target), beside)
                files = (spark, model, str(source), str(folder / kind))
                wall = job(f"files, a {kind}", partial(mlci.spark.score_files, *files), beside)
                slower[kind] = wall / beside[0]
            job("indices", partial(written, mlci.spark.indices(frame), target))
        for kind, ratio in slower.items() if n == 1_000_000 else ():
            verdict = "met" if ratio <= AIM else "missed"
            print(f"files, a {kind}: {ratio:.2f} times the local command by the clock; at most {AIM}: {verdict}")


if __name__ == "__main__":
    main()
