"""What each step of the `mlci` recipe brings: the recipe and its variants, several seeds, on one GPU.

    python benchmarks/recipe.py export cohort.parquet tokens.npz        # where the cohort is
    python benchmarks/recipe.py run tokens.npz recipe.npz               # where the GPU is: NumPy, torch, safetensors
    python benchmarks/recipe.py table tokens.npz recipe.npz             # where mlci is installed

One archive goes there (tokens, outcomes, splits: no codes, no identifiers), one comes back (scores of the validation
and test splits by variant and seed). `table` prints mean ± SD over seeds. Where processes share a GPU, start MPS
first (nvidia-cuda-mps-control -d).
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from mlci.config import Config, ObjectiveConfig, OptimiserConfig, RecipeConfig, SpacingConfig
from mlci.files import atomic
from mlci.tokens import Tokens

SPLITS = ("train", "valid", "test")
KINDS = {"deep": {}, "four": {"depths": (4,)}, "blind": {"without_outcome_codes": True}}  # of tokens


def variants(config: RecipeConfig) -> dict[str, tuple[str, RecipeConfig]]:
    """Rows of the table: which tokens, which config."""

    def collapse(**options) -> RecipeConfig:
        return replace(config, collapse=replace(config.collapse, **options))

    return {
        "mlci": ("deep", config),
        "4-character tokens": ("four", config),
        "without outcome codes": ("blind", config),
        "sum of logits": ("deep", collapse(method="sum")),
        "RBF alone": ("deep", collapse(objective="rbf")),
        "energy alone": ("deep", collapse(objective="energy", observed=0.3)),
        "energy preset": ("deep", collapse(objective="energy")),
        "risks as labels": ("deep", collapse(observed=0.0)),
        "outcomes as labels": ("deep", collapse(observed=1.0)),
        "two-stage weights": ("deep", collapse(weights="two-stage")),
        "with spacing": ("deep", replace(config, spacing=SpacingConfig(cuts=400))),
        "out-of-fold distilled": (
            "deep",
            replace(config, distil=replace(config.distil, source="out-of-fold")),
        ),
    }


def export(cohort: str, target: str) -> None:
    from mlci.cohort import read_cohort
    from mlci.tokens import Vocabulary

    splits = {name: read_cohort(cohort).split(name) for name in SPLITS}
    admissions = {name: split.admissions() for name, split in splits.items()}
    arrays, sizes = {}, {}
    for kind, options in KINDS.items():
        vocabulary = Vocabulary.fit(admissions["train"], **asdict(RecipeConfig().tokens) | options)
        sizes[kind] = len(vocabulary)
        for name in SPLITS:
            tokens = vocabulary.encode(admissions[name])
            arrays[f"{kind}/{name}/ids"] = tokens.ids.astype(np.uint16 if len(vocabulary) <= 2**16 else np.uint32)
            arrays[f"{kind}/{name}/counts"] = tokens.counts.astype(np.uint16)
    for name, split in splits.items():
        arrays[f"{name}/outcomes"] = np.nan_to_num(split.labels(), nan=2).astype(np.int8)
    facts = {"names": list(splits["train"].outcomes), "sizes": sizes}
    with atomic(target) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, facts=np.array(json.dumps(facts)), **arrays)
    print(f"{target}: {Path(target).stat().st_size / 1e6:.1f} MB; {sizes} tokens")


@dataclass(frozen=True)
class Source:
    """What `export` wrote: names and vocabulary sizes, and kind of tokens -> split -> data."""

    facts: dict
    data: dict

    @classmethod
    def read(cls, path: str) -> "Source":
        from mlci.training import Data

        with np.load(path, allow_pickle=False) as archive:
            facts = json.loads(str(archive["facts"]))
            outcomes = {name: archive[f"{name}/outcomes"].astype(np.float32) for name in SPLITS}
            for each in outcomes.values():
                each[each == 2] = np.nan
            data = {}
            for kind in KINDS:
                parts = {}
                for name in SPLITS:
                    offsets = np.concatenate([[0], np.cumsum(archive[f"{kind}/{name}/counts"], dtype=np.int64)])
                    parts[name] = Data(Tokens(archive[f"{kind}/{name}/ids"].astype(np.int32), offsets), outcomes[name])
                data[kind] = parts
        return cls(facts, data)


SOURCE: Source


def begin(path: str) -> None:
    global SOURCE
    import torch

    torch.set_num_threads(1)
    try:
        import sklearn.isotonic  # noqa: F401
    except ImportError:  # a bare machine
        from importlib.util import module_from_spec, spec_from_loader

        for name in ("sklearn", "sklearn.isotonic"):  # torch looks for the specs of what is loaded
            spec = spec_from_loader(name, loader=None)
            assert spec is not None
            sys.modules[name] = module_from_spec(spec)
        sys.modules["sklearn.isotonic"].isotonic_regression = pooled  # pyright: ignore
    SOURCE = Source.read(path)


def pooled(y, *, sample_weight, y_min: float, increasing: bool) -> np.ndarray:
    """Nonincreasing least squares by pooling neighbours, for the few hundred steps of a spacing."""
    assert not increasing
    blocks: list[list[float]] = []
    for value, weight in zip(y, sample_weight):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (a, v, n), (b, w, m) = blocks[-2:]
            blocks[-2:] = [[(a * v + b * w) / (v + w), v + w, n + m]]
    return np.maximum(np.repeat([block[0] for block in blocks], [int(block[2]) for block in blocks]), y_min)


def silent(_: str) -> None:
    pass


def member(kind: str, seed: int, number: int, config: RecipeConfig, device: str) -> tuple[np.ndarray, float]:
    import torch

    from mlci import recipe

    start, data = time.perf_counter(), SOURCE.data[kind]
    folds = recipe.draw_folds(len(data["train"]), config.posterior.members, seed=seed)
    logits = recipe.member(
        data["train"],
        [data["valid"], data["test"]],
        folds,
        number,
        config=config,
        size=SOURCE.facts["sizes"][kind],
        seed=seed,
        device=torch.device(device),
        tell=silent,
    )
    return logits, time.perf_counter() - start


def finish(kind: str, seed: int, config: RecipeConfig, logits: list[np.ndarray], device: str) -> dict:
    """Teacher and student of one row: scores of both splits, R², seconds."""
    import torch

    from mlci import recipe
    from mlci.training import predict

    start, data = time.perf_counter(), SOURCE.data[kind]
    train, valid, test = (data[name] for name in SPLITS)
    folds = recipe.draw_folds(len(train), config.posterior.members, seed=seed)
    posteriors = recipe.Posteriors(np.stack(logits), folds)
    taught = recipe.teach(posteriors, train, valid, config=config, outcomes=SOURCE.facts["names"], seed=seed)
    collapsed = time.perf_counter()
    model, history = recipe.distil(
        train,
        valid,
        taught,
        config=config,
        size=SOURCE.facts["sizes"][kind],
        seed=seed,
        device=torch.device(device),
        tell=silent,
    )
    cost = {"collapse": collapsed - start, "distil": time.perf_counter() - collapsed, "r2": history[-1].quality}
    scores = {
        "teacher/valid": taught.valid,
        "teacher/test": taught.score(posteriors.ensemble[len(train) + len(valid) :]),
        "student/valid": predict(model, valid.tokens),
        "student/test": predict(model, test.tokens),
    }
    return {"cost": cost, "scores": {name: score.astype(np.float32) for name, score in scores.items()}}


def direct(kernel: str, seeds: list[int], epochs: int, device: str) -> list[dict]:
    """No risks: alignment with the outcomes themselves, the paper's two stages, on tokens of three depths."""
    import torch

    from mlci import encoders
    from mlci.stacked import fit_many
    from mlci.training import predict

    start, data = time.perf_counter(), SOURCE.data["deep"]
    size, names = SOURCE.facts["sizes"]["deep"], SOURCE.facts["names"]
    config = Config(
        objective=ObjectiveConfig(kernel=kernel),
        optimiser=OptimiserConfig(stage1_epochs=epochs, stage2_epochs=epochs),
    )
    facts = {"config": config, "outcomes": names, "vocabulary_size": size, "seeds": seeds, "device": device}
    found = []
    for fit in fit_many(data["train"], data["valid"], **facts):
        model = encoders.build(config.encoder, size)
        model.load_state_dict({name: torch.from_numpy(array) for name, array in fit.state.items()})
        scores = {f"student/{name}": predict(model.to(device), data[name].tokens) for name in ("valid", "test")}
        found.append({"cost": {"fit": (time.perf_counter() - start) / len(seeds)}, "scores": scores})
    return found


def run(source: str, target: str, *, seeds: list[int], processes: int, device: str, quick: bool) -> None:
    config = RecipeConfig()
    if quick:
        config = replace(
            config,
            posterior=replace(config.posterior, epochs=1, members=2),
            collapse=replace(config.collapse, epochs=3),
            distil=replace(config.distil, epochs=1),
        )
    rows = variants(config)
    start = time.perf_counter()
    arrays, costs = {}, {}

    def keep(row: str, seed: int, found: dict) -> None:
        costs[f"{row}/{seed}"] = found["cost"]
        arrays.update({f"{row}/{seed}/{name}": score for name, score in found["scores"].items()})
        print(f"{time.perf_counter() - start:6.1f} s  {row}, seed {seed}: {found['cost']}", flush=True)

    def store() -> None:
        with atomic(target) as temporary, open(temporary, "wb") as file:
            np.savez(file, facts=np.array(json.dumps({"costs": costs})), **arrays)

    with ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=begin, initargs=(source,)
    ) as pool:
        straight = {
            kernel: pool.submit(direct, kernel, seeds, 1 if quick else 10, device) for kernel in ("rbf", "energy")
        }
        members = {
            (kind, seed): [
                pool.submit(member, kind, seed, number, config, device) for number in range(config.posterior.members)
            ]
            for kind in KINDS
            for seed in seeds
        }
        logits, pending = {}, {}
        for (kind, seed), futures in members.items():
            found = [future.result() for future in futures]
            logits[kind, seed] = [each for each, _ in found]
            costs[f"{kind} members/{seed}"] = {"seconds": sum(seconds for _, seconds in found)}
            print(f"{time.perf_counter() - start:6.1f} s  members, {kind} tokens, seed {seed}", flush=True)
            n = len(logits[kind, seed][0])
            risks = np.mean(logits[kind, seed], axis=0, dtype=np.float32)[n - sum(sizes(source)[1:]) :]
            arrays[f"{kind} risks/{seed}"] = risks.astype(np.float16)
            for row, (tokens, options) in rows.items():
                if tokens == kind:
                    pending[row, seed] = pool.submit(finish, kind, seed, options, logits[kind, seed], device)
        for (row, seed), future in pending.items():
            keep(row, seed, future.result())
        store()
        for kernel, future in straight.items():
            for seed, found in zip(seeds, future.result()):
                keep(f"direct, {kernel}", seed, found)
        store()
    print(f"{time.perf_counter() - start:.1f} s in all; {target}: {Path(target).stat().st_size / 1e6:.1f} MB")


def sizes(source: str) -> list[int]:
    with np.load(source, allow_pickle=False) as archive:
        return [len(archive[f"{name}/outcomes"]) for name in SPLITS]


METRICS = {"dcorr": "dCorr", "auroc": "AUROC", "mi": "MI", "rank_dcorr": "dCorr of ranks"}


def table(source: str, target: str, split: str, extra: list[str]) -> None:
    """A Markdown row for each variant: a figure per outcome of each metric, times 100, mean ± SD over seeds."""
    from mlci.measures import discrimination
    from mlci.measures.alignment import distance_correlation
    from mlci.measures.information import mutual_information

    everything = Source.read(source)
    outcomes = everything.data["deep"][split].outcomes
    names = everything.facts["names"]

    def figures(score: np.ndarray) -> np.ndarray:
        score = score.astype(np.float64)
        ranks = np.unique(score, return_inverse=True)[1].astype(np.float64)
        found = []
        for column in outcomes.T.astype(np.float64):
            known = ~np.isnan(column)
            s, y = score[known], column[known]
            found.append(
                [
                    distance_correlation(s, y),
                    discrimination.auroc(s, y),
                    mutual_information(s, y),
                    distance_correlation(ranks[known], y),
                ]
            )
        return 100 * np.array(found, dtype=float).T

    scores: dict[str, list[np.ndarray]] = {}
    with np.load(target, allow_pickle=False) as archive:
        for name in archive.files:
            parts = name.split("/")
            if parts[-1] == split:
                scores.setdefault("/".join([parts[0], *parts[2:-1]]), []).append(archive[name])
    for path in extra:  # scores of gpu_models.py: the benchmark's models
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                if name.split("/")[0] in ("mlci", "deepsets_mean_max") and name.endswith(f"/{split}"):
                    scores.setdefault(f"recipe paper: {name.split('/')[0]}", []).append(archive[name])
    print(f"{split} split, {len(outcomes):,} admissions; outcomes in order: {', '.join(names)}; all figures x 100\n")
    print(f"| recipe | {' | '.join(METRICS.values())} | sum of squared dCorr |")
    print("|---|---|---|---|---|---:|")
    for row, runs in scores.items():
        found = np.stack([figures(score) for score in runs])
        cells = [
            " ".join(f"{a:.1f}±{b:.1f}" for a, b in zip(mean, sd))
            for mean, sd in zip(found.mean(0), found.std(0, ddof=1 if len(found) > 1 else 0))
        ]
        squares = (found[:, 0] ** 2).sum(1) / 1e4
        print(
            f"| {row} | {' | '.join(cells)} | {squares.mean():.3f}±{squares.std(ddof=1 if len(found) > 1 else 0):.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    there = actions.add_parser("export")
    there.add_argument("cohort")
    there.add_argument("target")
    here = actions.add_parser("run")
    here.add_argument("source")
    here.add_argument("target")
    here.add_argument("--seeds", default="11,101,1001")
    here.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    here.add_argument("--device", default="cuda")
    here.add_argument("--quick", action="store_true", help="one epoch of everything: does it run?")
    back = actions.add_parser("table")
    back.add_argument("source")
    back.add_argument("target")
    back.add_argument("--split", default="valid", choices=["valid", "test"])
    back.add_argument("--runs", action="append", default=[], help="scores written by gpu_models.py, to stand beside")
    words = parser.parse_args()
    if words.action == "export":
        export(words.cohort, words.target)
    elif words.action == "table":
        table(words.source, words.target, words.split, words.runs)
    else:
        seeds = [int(seed) for seed in words.seeds.split(",")]
        run(
            words.source,
            words.target,
            seeds=seeds,
            processes=words.processes,
            device=words.device,
            quick=words.quick,
        )


if __name__ == "__main__":
    main()
