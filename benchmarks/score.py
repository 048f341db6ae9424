"""How fast admissions are scored, Parquet to Parquet, compared with the straightforward way.

`mlci score` runs in a process of its own, on files of growing length, with three models: a network of the paper's size,
one of the recipe `deep` (three depths of a code, four risks, as many tokens as a fit of NHDS keeps), and a table. The
comparisons are `mlci indices`, the same table as SQL in DuckDB (two threads, table to table), and a padded torch
forward pass over lists of codes, timed on fewer admissions. `--codes 8` (the default) is NHDS, 13 MIMIC-IV. Figures:
admissions a second by the clock and for each processor second, peak memory.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlci.codes.icd import DATA
from mlci.config import DeepConfig, PaperConfig
from mlci.index.export import export
from mlci.index.model import Model, load_model
from mlci.judging.kept import Cutoff, Isotonic
from mlci.tokens import Vocabulary

OUTCOMES = ("mortality", "mortality_30d", "long_stay", "icu_transfer")
DEPTHS = (3, 4, 8)  # of tokens in a code
COMMON = 3_000  # codes whose tokens the recipe deep has: 4,941 of them, and 4,614 in a fit of NHDS
DISTINCT = 20_000  # codes in use, as in MIMIC-IV
NETWORK, DEEP = "mlci score, a network", "mlci score, deep, with heads"
AIM = 600_000  # admissions of 8 codes a second, by either network, of the longest file


def codes_in_use(rng: np.random.Generator) -> np.ndarray:
    titles = pq.read_table(DATA / "titles.parquet", filters=[("version", "=", 10)])
    return rng.permutation(titles["code"].to_numpy(zero_copy_only=False))[:DISTINCT]


def admissions_file(path: Path, names: np.ndarray, n: int, rng: np.random.Generator, mean: float) -> None:
    counts = np.clip(rng.poisson(rng.gamma(3, mean / 3, n)), 1, 256)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    drawn = (DISTINCT * rng.random(offsets[-1]) ** 3).astype(np.int32)  # a few codes are common
    codes = pa.ListArray.from_arrays(offsets, pa.DictionaryArray.from_arrays(drawn, names).dictionary_decode())
    pq.write_table(pa.table({"admission_id": np.arange(n), "icd_version": np.full(n, 10), "codes": codes}), path)


def model_file(
    path: Path, state: dict, tokens: list[str], depths: tuple, ends: tuple[float, float], recipe: str, config: dict
) -> None:
    """A model of random weights: speed does not depend on what was learned. Few scores lie at the ends."""
    knots, rng = np.linspace(*ends, 300), np.random.default_rng(0)
    Model(
        state=state,
        vocabulary=Vocabulary(tuple(tokens), (10,) * len(tokens), depths),
        icd_versions=(10,),
        outcomes=dict.fromkeys(OUTCOMES, ""),
        quantiles=np.linspace(*ends, 1001),
        curves={name: Isotonic(knots, np.sort(rng.random(300))) for name in OUTCOMES},
        cutoff=Cutoff(0.1, 0.5, 1, 10, ()),
        card={"recipe": recipe, "seed": 0, "config": config},
    ).save(path)


def tokens_of(names: np.ndarray, depths: tuple) -> list[str]:
    return sorted({code[:depth] for code in names for depth in depths})


def paper_file(path: Path, tokens: list[str]):
    """A network of the paper's size."""
    from mlci.fitting.encoders import DeepSets

    encoder = DeepSets(len(tokens) + 2)
    state = {name: tensor.numpy() for name, tensor in encoder.state_dict().items()}
    model_file(path, state, tokens, (4,), (-0.3, 0.3), "paper", asdict(PaperConfig()))
    return encoder


def deep_file(path: Path, tokens: list[str], rng: np.random.Generator) -> None:
    """A network of the recipe deep, with heads for the outcomes' risks."""
    from mlci.fitting.encoders import DeepSets

    size, many = len(tokens) + 2, len(OUTCOMES)
    state = {name: tensor.numpy() for name, tensor in DeepSets(size).state_dict().items()}
    shapes = {"weight": (many, state["rho.4.weight"].shape[1]), "bias": (many,), "tokens": (size, many)}
    state |= {f"heads.{name}": rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    state |= {"calibration": np.tile([0.0, 1.0], (many, 1))}
    model_file(path, state, tokens, DEPTHS, (-0.3, 0.3), "deep", asdict(DeepConfig()))


def table_file(path: Path, tokens: list[str], rng: np.random.Generator) -> None:
    many = len(OUTCOMES)
    state = {
        "weights": np.vstack([np.zeros((2, many)), rng.normal(0, 0.2, (len(tokens), many))]),
        "intercepts": np.full(many, -3.0),
        "calibration": np.tile([0.0, 1.0], (many, 1)),
        "knots": np.sort(rng.normal(-3, 2, (many, 12)), axis=1),
        "heights": np.cumsum(rng.gamma(1, 0.1, (many, 12)), axis=1),
    }
    model_file(path, state, tokens, DEPTHS, (0, 4), "table", {})


def timed(*words: str) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and peak MB of `mlci ...` in a process of its own."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "mlci", *words])
    ended, peak = 0, 0.0
    while not ended:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        time.sleep(0.005)
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text()) if not ended else None
        peak = int(found[1]) / 1024 if found else peak  # of this program, not of the one that started it
    process.returncode = status
    assert status == 0, words
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, peak


def in_duckdb(model: Path, source: Path) -> tuple[float, float]:
    """Wall and processor seconds of the exported view over a table of (admission_id, icd_version, code)."""
    import duckdb

    with duckdb.connect(config={"threads": 2}) as db:
        db.execute(
            "CREATE TABLE diagnoses AS SELECT admission_id, CAST(icd_version AS INTEGER) AS icd_version, "
            f"UNNEST(codes) AS code FROM '{source}'"
        )
        export(load_model(model), model.with_suffix(".sql"), all_rows=True)
        db.execute(model.with_suffix(".sql").read_text())
        start, used = time.perf_counter(), time.process_time()
        db.execute("CREATE TABLE scores AS FROM mlci_scores")
        return time.perf_counter() - start, time.process_time() - used


def padded(source: Path, encoder, prefixes: list[str], n: int) -> float:
    """Seconds for n admissions: Python lists, a dictionary, batches padded to their longest."""
    import torch

    start = time.perf_counter()
    ids = {prefix: number for number, prefix in enumerate(prefixes, start=2)}
    lists = pq.read_table(source, columns=["codes"])["codes"][:n].to_pylist()
    scores = []
    with torch.no_grad():
        for at in range(0, n, 256):
            batch = [[ids.get(code[:4], 1) for code in codes] for codes in lists[at : at + 256]]
            longest = max(map(len, batch))
            tokens = torch.tensor([codes + [0] * (longest - len(codes)) for codes in batch])
            real = (tokens != 0).unsqueeze(2)
            hidden = encoder.phi(encoder.embedding(tokens))
            mean = (hidden * real).sum(1) / real.sum(1)
            largest = hidden.masked_fill(~real, -1e9).amax(1)
            scores.append(encoder.rho(encoder.norm(torch.cat([mean, largest], 1))))
    torch.cat(scores)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the admissions")
    parser.add_argument("--codes", type=float, default=8, help="codes of an admission, on average")
    words = parser.parse_args()
    shrink = 10 if words.quick else 1
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = codes_in_use(rng)
        prefixes = tokens_of(names, (4,))
        encoder = paper_file(folder / "model.safetensors", prefixes)
        deep_file(folder / "deep.safetensors", tokens_of(names[:COMMON], DEPTHS), rng)
        table_file(folder / "table.safetensors", tokens_of(names, DEPTHS), rng)
        print(
            f"{'what':34} {'admissions':>12} {'wall s':>8} {'cpu s':>8} {'per second':>12} {'per cpu s':>12} {'MB':>6}"
        )
        reached = {}
        for n in (1, 250_000 // shrink, 1_000_000 // shrink, 4_000_000 // shrink):
            source = folder / f"{n}.parquet"
            admissions_file(source, names, n, rng, words.codes)
            end = (str(source), "-o", str(folder / "s.parquet"), "--quiet")
            for what, command in (
                (NETWORK, ("score", str(folder / "model.safetensors"))),
                (DEEP, ("score", str(folder / "deep.safetensors"))),
                ("mlci score, a table", ("score", str(folder / "table.safetensors"))),
                ("mlci indices", ("indices",)),
            ):
                wall, cpu, peak = timed(*command, *end)
                reached[what] = n / wall
                rates = f"{n / wall:12,.0f} {n / cpu:12,.0f}"
                print(f"{what:34} {n:12,} {wall:8.2f} {cpu:8.2f} {rates} {peak:6.0f}", flush=True)
            wall, cpu = in_duckdb(folder / "table.safetensors", source)
            print(
                f"{'the table as SQL in DuckDB':34} {n:12,} {wall:8.2f} {cpu:8.2f} {n / wall:12,.0f} {n / cpu:12,.0f}"
            )
        n = 50_000 // shrink
        wall = padded(folder / f"{1_000_000 // shrink}.parquet", encoder, prefixes, n)
        print(f"{'padded torch forward (no output)':34} {n:12,} {wall:8.2f} {'':8} {n / wall:12,.0f}")
    if words.quick or words.codes != 8:
        print("The aim applies to the whole size and 8 codes.")
        return
    for what in (NETWORK, DEEP):
        verdict = "met" if reached[what] >= AIM else "missed"
        print(f"{what}, admissions a second: {reached[what]:,.0f}; at least {AIM:,}: {verdict}")


if __name__ == "__main__":
    main()
