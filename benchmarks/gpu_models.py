"""Train every neural model with several seeds on one GPU. Needs torch, NumPy, SciPy, safetensors, threadpoolctl.

All seeds of a model are one stack of weights where possible. Stacks and other models share the GPU as processes.

    python benchmarks/gpu_models.py export cohort.parquet tokens.npz       # where the cohort is
    python benchmarks/gpu_models.py run tokens.npz runs.npz --processes 15 # where the GPU is
    mlci benchmark cohort.parquet -o DIR --import runs.npz                 # where the cohort is: they count as done

One archive goes to the GPU (tokens, outcomes, splits: no codes, no identifiers) and one comes back (scores). Runs that
the output already holds are kept, so an interrupted job continues where it stopped. If processes share a GPU, start MPS
first (nvidia-cuda-mps-control -d).
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from mlci.base.files import atomic
from mlci.benchmark import models as baselines
from mlci.benchmark.models.neural import MODELS, Neural
from mlci.config import TokenConfig
from mlci.fitting import Split
from mlci.tokens import Tokens

SPLITS = ("train", "valid", "test")
KINDS = sorted({model.tokens for model in MODELS}, key=lambda tokens: tokens != TokenConfig())  # the paper's first
SLOW = ("set_transformer", "star_gat", "deepsets_attention", "attention_mil")  # begin with these


def export(cohort: str, target: str) -> None:
    from mlci.benchmark.runs import fingerprint
    from mlci.cohort import read_cohort

    table = read_cohort(cohort)
    views = {tokens: baselines.parts(table, tokens) for tokens in KINDS}
    parts = views[TokenConfig()]
    sizes = [each["train"].vocabulary_size for each in views.values()]
    facts = {"digest": fingerprint(parts), "names": parts["train"].names, "vocabulary_sizes": sizes}
    arrays = {"facts": np.array(json.dumps(facts))}
    subjects = np.unique(np.concatenate([np.asarray(part.subjects) for part in parts.values()]), return_inverse=True)[1]
    for name, own in zip(SPLITS, np.split(subjects, np.cumsum([len(parts[name]) for name in SPLITS])[:-1])):
        arrays[f"{name}/outcomes"] = np.nan_to_num(parts[name].outcomes, nan=2).astype(np.int8)
        arrays[f"{name}/subjects"] = own.astype(np.uint32)
        for kind, (view, size) in enumerate(zip(views.values(), sizes)):
            tokens = view[name].tokens
            arrays[f"{kind}/{name}/ids"] = tokens.ids.astype(np.uint16 if size <= 2**16 else np.uint32)
            arrays[f"{kind}/{name}/counts"] = tokens.counts.astype(np.uint16)
    with atomic(target) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)
    print(f"{target}: {Path(target).stat().st_size / 1e6:.1f} MB")


def read(path: str) -> tuple[dict, dict[TokenConfig, dict[str, Split]]]:
    with np.load(path, allow_pickle=False) as archive:
        facts = json.loads(str(archive["facts"]))
        views = {}
        for kind, (config, size) in enumerate(zip(KINDS, facts["vocabulary_sizes"])):
            views[config] = {}
            for name in SPLITS:
                outcomes = archive[f"{name}/outcomes"].astype(np.float32)
                outcomes[outcomes == 2] = np.nan
                offsets = np.concatenate([[0], np.cumsum(archive[f"{kind}/{name}/counts"], dtype=np.int64)])
                tokens = Tokens(archive[f"{kind}/{name}/ids"].astype(np.int32), offsets)
                subjects = archive[f"{name}/subjects"]
                views[config][name] = Split(tokens, outcomes, tuple(facts["names"]), size, subjects)
    return facts, views


DATA: dict[TokenConfig, dict[str, Split]] = {}


def begin(path: str) -> None:
    import torch

    torch.set_num_threads(1)
    DATA.update(read(path)[1])


def work(model: baselines.Baseline, seeds: list[int], device: str) -> tuple[dict[str, dict], dict[str, np.ndarray]]:
    about, arrays = {}, {}
    for seed, result in zip(seeds, baselines.run(model, seeds, DATA[model.tokens], device=device)):
        key = f"{model.name}/{seed}"
        about[key] = {"model": asdict(model), "seed": seed, "cost": result.cost}
        arrays |= {f"{key}/{name}": score.astype(np.float32) for name, score in result.scores.items()}
    return about, arrays


def store(target: str, digest: str, about: dict, arrays: dict[str, np.ndarray]) -> None:
    with atomic(target) as temporary, open(temporary, "wb") as file:
        np.savez(file, facts=np.array(json.dumps({"digest": digest, "runs": about})), **arrays)


def run(source: str, target: str, *, models: list[str], seeds: list[int], processes: int, device: str, epochs: int):
    digest = read(source)[0]["digest"]
    about, arrays = {}, {}
    if Path(target).exists():
        with np.load(target, allow_pickle=False) as archive:
            facts = json.loads(str(archive["facts"]))
            if facts["digest"] != digest:
                sys.exit(f"{target}: holds the scores of another cohort")
            about = facts["runs"]
            arrays = {name: archive[name] for name in archive.files if name != "facts"}
    chosen = [model for model in MODELS if not models or model.name in models]
    chosen = [replace(model, epochs=epochs) if isinstance(model, Neural) else model for model in chosen]
    chosen.sort(key=lambda model: not model.name.startswith(SLOW))
    # Seeds are the outer loop: if time runs out, some seeds are complete for all models.
    left = [(model, seed) for seed in seeds for model in chosen if f"{model.name}/{seed}" not in about]
    start, failed = time.perf_counter(), []
    with ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=begin, initargs=(source,)
    ) as pool:
        jobs = baselines.at_once(left, device)
        pending = {pool.submit(work, *job, device): job for job in jobs}
        for number, future in enumerate(as_completed(pending), start=1):
            if error := future.exception():  # one model's trouble is not the others'
                failed.append(pending[future][0].name)
                print(f"{number}/{len(pending)} {failed[-1]}: {type(error).__name__}: {error}", flush=True)
                continue
            done, scores = future.result()
            about |= done
            arrays |= scores
            store(target, digest, about, arrays)
            took, spent = sum(each["cost"]["seconds"] for each in done.values()), time.perf_counter() - start
            print(f"{number}/{len(pending)} {' '.join(done)}: {took:.0f} s; {spent:.0f} s since the start", flush=True)
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    there = actions.add_parser("export")
    there.add_argument("cohort")
    there.add_argument("target")
    here = actions.add_parser("run")
    here.add_argument("source")
    here.add_argument("target")
    here.add_argument("--models", default="", help="names, separated by commas; all neural ones by default")
    here.add_argument("--seeds", default="11,101,1001")
    here.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    here.add_argument("--device", default="cuda")
    here.add_argument("--epochs", type=int, default=10)
    words = parser.parse_args()
    if words.action == "export":
        export(words.cohort, words.target)
        return
    models = [name for name in words.models.split(",") if name]
    unknown = set(models) - {model.name for model in MODELS}
    if unknown:
        sys.exit(f"unknown model {unknown.pop()}; known are {', '.join(model.name for model in MODELS)}")
    seeds = [int(seed) for seed in words.seeds.split(",")]
    run(
        words.source,
        words.target,
        models=models,
        seeds=seeds,
        processes=words.processes,
        device=words.device,
        epochs=words.epochs,
    )


if __name__ == "__main__":
    main()
