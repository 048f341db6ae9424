"""How `mlci score` and `mlci indices` grow: 1, 5 and 20 million admissions, Parquet to Parquet, each in its own run.

The input is written in parts, so that neither this script nor the measured commands ever hold all of it. Figures:
admissions a second, the share of the machine's cores that worked, and the peak memory, which should not grow.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from score import DISTINCT, codes_in_use, paper_file, timed, tokens_of

MEAN = 13  # codes of an admission
PART = 250_000  # admissions written at once


def admissions_file(path: Path, names: np.ndarray, n: int, rng: np.random.Generator) -> None:
    dictionary = pa.array(names)
    schema = pa.schema([("admission_id", pa.int64()), ("icd_version", pa.int8()), ("codes", pa.list_(pa.string()))])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, n, PART):
            many = min(PART, n - start)
            counts = np.clip(rng.poisson(rng.gamma(3, MEAN / 3, many)), 1, 256)
            offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
            drawn = (DISTINCT * rng.random(offsets[-1]) ** 3).astype(np.int32)  # a few codes are common
            codes = pa.ListArray.from_arrays(offsets, dictionary.take(pa.array(drawn)))
            ids, version = np.arange(start, start + many), np.full(many, 10, np.int8)
            file.write_table(pa.table([ids, version, codes], schema=schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the admissions")
    shrink = 100 if parser.parse_args().quick else 1
    rng, cores = np.random.default_rng(0), os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = codes_in_use(rng)
        model, source, target = (str(folder / file) for file in ("model.safetensors", "in.parquet", "out.parquet"))
        paper_file(Path(model), tokens_of(names, (4,)))
        heads = ("admissions", "input MB", "wall s", "cpu s", "per second", "per cpu s", "cores", "peak MB")
        print(f"{'what':13}" + "".join(f"{head:>12}" for head in heads))
        for n in (1_000_000 // shrink, 5_000_000 // shrink, 20_000_000 // shrink):
            admissions_file(Path(source), names, n, rng)
            size = Path(source).stat().st_size / 2**20
            for words in (("score", model, source), ("indices", source)):
                wall, cpu, peak = timed(*words, "-o", target, "--quiet")
                share = f"{cpu / wall / cores:.0%}"
                row = (f"{n:,}", f"{size:,.0f}", f"{wall:.1f}", f"{cpu:.1f}", f"{n / wall:,.0f}", f"{n / cpu:,.0f}")
                print(
                    f"mlci {words[0]:8}" + "".join(f"{cell:>12}" for cell in (*row, share, f"{peak:.0f}")), flush=True
                )


if __name__ == "__main__":
    main()
