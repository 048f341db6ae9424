"""What each step of the `deep` recipe brings: the recipe and its variants, several seeds, on one GPU.

    python benchmarks/recipe.py export cohort.parquet tokens.npz        # where the cohort is
    python benchmarks/recipe.py run tokens.npz recipe.npz               # where the GPU is
    python benchmarks/recipe.py table tokens.npz recipe.npz             # anywhere: mean ± SD over seeds
    python benchmarks/recipe.py spaced tokens.npz recipe.npz --bench DIR  # with the best spacing for everybody

One archive goes to the GPU (tokens, outcomes, splits: no codes, no identifiers), one comes back (scores of the
validation and test splits by variant and seed). There, NumPy, torch, safetensors and scikit-learn suffice. `run` first
times one plain fit, alone; then everything side by side, writing what is finished. Where processes share a GPU, start
MPS first (nvidia-cuda-mps-control -d). DIR is a folder of `mlci benchmark` runs.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from mlci.base.files import atomic
from mlci.config import DeepConfig, ObjectiveConfig, OptimiserConfig, PaperConfig, SpacingConfig
from mlci.tokens import Tokens

SPLITS = ("train", "valid", "test")
KINDS = {  # of tokens
    "deep": {},
    "four": {"depths": (4,)},
    "primary": {"primary": True},
    "blind": {"without_outcome_codes": True},
}
MAIN = "deep"


def variants(config: DeepConfig) -> dict[str, tuple[str, DeepConfig]]:
    """Rows of the table: which tokens, which config."""

    def collapse(**options) -> tuple[str, DeepConfig]:
        return "deep", replace(config, collapse=replace(config.collapse, **options))

    def posterior(**options) -> tuple[str, DeepConfig]:
        return "deep", replace(config, posterior=replace(config.posterior, **options))

    return {
        MAIN: ("deep", config),
        "tokens of 4 characters": ("four", config),
        "tokens of the principal diagnosis": ("primary", config),
        "without outcome codes": ("blind", config),
        "2 members": posterior(members=2),
        "10 members": posterior(members=10),
        "members of 4 epochs": posterior(epochs=4),
        "sum of logits": collapse(method="sum"),
        "RBF kernel": collapse(objective="rbf"),
        "energy preset": collapse(objective="energy"),
        **{f"balance {balance:g}": collapse(balance=balance) for balance in (0.0, 0.2, 0.5)},
        "risks as labels": collapse(observed=0.0),
        "outcomes as labels": collapse(observed=1.0),
        "two-stage weights": collapse(weights="two-stage", balance=0.0),
        "with spacing": ("deep", replace(config, spacing=SpacingConfig(cuts=400))),
        "distilled from out-of-fold risks": (
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
        vocabulary = Vocabulary.fit(
            admissions["train"], **asdict(DeepConfig().tokens.settled(len(admissions["train"]))) | options
        )
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
        from mlci.fitting import Split

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
                    tokens = Tokens(archive[f"{kind}/{name}/ids"].astype(np.int32), offsets)
                    parts[name] = Split(tokens, outcomes[name], tuple(facts["names"]), facts["sizes"][kind])
                data[kind] = parts
        return cls(facts, data)


SOURCE: Source


def begin(path: str) -> None:
    global SOURCE
    import torch

    torch.set_num_threads(1)
    SOURCE = Source.read(path)


def alone(config: DeepConfig, seed: int, device: str) -> dict[str, float]:
    """Seconds of one plain fit, after the device was woken."""
    import torch

    from mlci.fitting import deep as recipe

    start, data = time.perf_counter(), SOURCE.data["deep"]
    (torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).sum().item()
    awake = time.perf_counter()
    fitted = recipe.fit(data["train"], data["valid"], config=config, seed=seed, device=device)
    return {"start": awake - start, "fit": fitted.seconds}


def silent(*_) -> None:
    pass


def member(kind: str, seed: int, number: int, config: DeepConfig, device: str) -> tuple[np.ndarray, float]:
    import torch

    from mlci.fitting import deep as recipe

    start, data = time.perf_counter(), SOURCE.data[kind]
    folds = recipe.folds_by_subject(data["train"], config.posterior.members, seed=seed)
    (logits,) = recipe.members(
        data["train"],
        [data["valid"], data["test"]],
        folds,
        [number],
        config=config,
        seed=seed,
        device=torch.device(device),
        tell=silent,
    )
    return logits, time.perf_counter() - start


def finish(kind: str, seed: int, config: DeepConfig, logits: list[np.ndarray], device: str) -> dict:
    """One row: scores of both splits by the student and by its teacher, R², seconds."""
    import torch

    from mlci.fitting import deep as recipe
    from mlci.fitting.encoders import score

    start, data = time.perf_counter(), SOURCE.data[kind]
    train, valid, test = (data[name] for name in SPLITS)
    folds = recipe.folds_by_subject(train, config.posterior.members, seed=seed)
    posteriors = recipe.Posteriors(np.stack(logits), folds)
    taught = recipe.teach(posteriors, train, valid, config=config, seed=seed)
    collapsed = time.perf_counter()
    state, history = recipe.distil(
        train,
        valid,
        taught,
        config=config,
        seed=seed,
        device=torch.device(device),
        tell=silent,
    )
    cost = {"collapse": collapsed - start, "distil": time.perf_counter() - collapsed, "r2": history[-1].quality}
    scores = {
        "teacher/valid": taught.valid,
        "teacher/test": taught.score(posteriors.ensemble[len(train) + len(valid) :]),
        "student/valid": score(config.encoder, state, valid.tokens, device=device),
        "student/test": score(config.encoder, state, test.tokens, device=device),
    }
    return {"cost": cost, "scores": {name: score.astype(np.float32) for name, score in scores.items()}}


def direct(kernel: str, seeds: list[int], epochs: int, device: str) -> list[dict]:
    """No risks: alignment with the outcomes themselves, the paper's two stages, on tokens of three depths."""
    from mlci.fitting.encoders import score
    from mlci.fitting.paper import fit_seeds

    start, data = time.perf_counter(), SOURCE.data["deep"]
    config = PaperConfig(
        objective=ObjectiveConfig(kernel=kernel),
        optimiser=OptimiserConfig(stage1_epochs=epochs, stage2_epochs=epochs),
    )
    found, facts = [], {"config": config, "seeds": seeds, "device": device, "stack": True}
    for fit in fit_seeds(data["train"], data["valid"], **facts):
        scores = {}
        for name in ("valid", "test"):
            scores[f"student/{name}"] = score(config.encoder, fit.state, data[name].tokens, device=device)
        found.append({"cost": {"fit": (time.perf_counter() - start) / len(seeds)}, "scores": scores})
    return found


def run(source: str, target: str, *, seeds: list[int], processes: int, device: str, quick: bool) -> None:
    config = DeepConfig()
    if quick:
        config = replace(
            config,
            posterior=replace(config.posterior, epochs=1, members=2),
            collapse=replace(config.collapse, epochs=2),
            distil=replace(config.distil, epochs=3, batch=64),
        )
    start, rows = time.perf_counter(), variants(config)
    arrays, costs = {}, {}

    def log(text: str) -> None:
        print(f"{time.perf_counter() - start:6.1f} s  {text}", flush=True)

    def keep(row: str, seed: int, found: dict) -> None:
        costs[f"{row}/{seed}"] = found["cost"]
        for name, score in found["scores"].items():
            if row == MAIN or name.startswith("student/"):
                arrays[f"{row}/{seed}/{name}"] = score
        log(f"{row}, seed {seed}: " + ", ".join(f"{name} {value:.3f}" for name, value in found["cost"].items()))
        with atomic(target) as temporary, open(temporary, "wb") as file:
            np.savez(file, facts=np.array(json.dumps({"costs": costs})), **arrays)

    with ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=begin, initargs=(source,)
    ) as pool:
        keep("plain fit", seeds[0], {"cost": pool.submit(alone, config, seeds[0], device).result(), "scores": {}})
        needed = dict.fromkeys((kind, options.posterior) for kind, options in rows.values())
        straight: dict[Future, str] = {
            pool.submit(direct, kernel, seeds, 1 if quick else 10, device): kernel for kernel in ("rbf", "energy")
        }
        members: dict[Future, tuple] = {
            pool.submit(member, kind, seed, number, replace(config, posterior=posterior), device): (
                kind,
                posterior,
                seed,
            )
            for kind, posterior in needed
            for seed in seeds
            for number in range(posterior.members)
        }
        waiting, logits = dict.fromkeys(members.values(), 0), {}
        for future, key in members.items():
            waiting[key] += 1
            logits.setdefault(key, []).append(future)
        finishing: dict[Future, tuple[str, int]] = {}
        for future in as_completed(members):
            key = members[future]
            waiting[key] -= 1
            if waiting[key]:
                continue
            kind, posterior, seed = key
            log(f"{posterior.members} members, {kind} tokens, seed {seed}")
            found = [each.result()[0] for each in logits[key]]
            for row, (tokens, options) in rows.items():
                if (tokens, options.posterior) == key[:2]:
                    finishing[pool.submit(finish, kind, seed, options, found, device)] = (row, seed)
        failed = 0
        for future in as_completed([*finishing, *straight]):
            try:
                if future in finishing:
                    keep(*finishing[future], future.result())
                else:
                    for seed, found in zip(seeds, future.result()):
                        keep(f"direct, {straight[future]}", seed, found)
            except Exception:  # one row's trouble is not the others'; told now, and by the exit status in the end
                log(traceback.format_exc())
                failed += 1
    log(f"all; {target}: {Path(target).stat().st_size / 1e6:.1f} MB")
    if failed:
        sys.exit(f"{failed} rows failed; see above.")


METRICS = {"dcorr": "dCorr", "auroc": "AUROC", "mi": "MI", "rank_dcorr": "dCorr of ranks"}


def figures(score: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """A row for each of METRICS, a column for each outcome, times 100."""
    from mlci.measures import discrimination
    from mlci.measures.alignment import distance_correlation
    from mlci.measures.information import mutual_information

    score = score.astype(np.float64)
    ranks = np.unique(score, return_inverse=True)[1].astype(np.float64)
    found = []
    for column in outcomes.T.astype(np.float64):
        known = ~np.isnan(column)
        s, y = score[known], column[known]
        own = distance_correlation(s, y), discrimination.auroc(s, y), mutual_information(s, y)
        found.append([*own, distance_correlation(ranks[known], y)])
    return 100 * np.array(found, dtype=float).T


def read_rows(target: str, bench: str | None, valid: int) -> dict[str, list[dict[str, np.ndarray]]]:
    """Row -> a dictionary of split and score for each seed."""
    rows: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    with np.load(target, allow_pickle=False) as archive:
        for name in archive.files:
            if name != "facts":
                row, seed, who, split = name.split("/")
                row = row if who == "student" else f"{row}, not distilled"
                rows.setdefault(row, {}).setdefault(seed, {})[split] = archive[name]
    if bench:
        import pyarrow.parquet as pq

        for path in sorted(Path(bench).glob("*/*/scores.parquet")):  # validation split first
            name, seed = path.parts[-3:-1]
            score = pq.read_table(path)[name].to_numpy()
            name = "recipe paper" if name == "paper" else name
            rows.setdefault(name, {})[seed] = {"valid": score[:valid], "test": score[valid:]}
    order = [*variants(DeepConfig()), *rows]
    return {row: list(rows[row].values()) for row in sorted(rows, key=order.index)}


def table(source: str, target: str, split: str, bench: str | None, resamples: int) -> None:
    """A Markdown row for each variant: a figure per outcome of each metric, times 100, mean ± SD over seeds."""
    everything = Source.read(source)
    outcomes = everything.data["deep"][split].outcomes
    rows = read_rows(target, bench, len(everything.data["deep"]["valid"]))
    names = ", ".join(everything.facts["names"])
    print(f"{split} split, {len(outcomes):,} admissions; outcomes in order: {names}; all figures x 100\n")
    print(f"| recipe | {' | '.join(METRICS.values())} | sum of squared dCorr |")
    print("|---|---|---|---|---|---:|")
    for row, runs in rows.items():
        found = np.stack([figures(run[split], outcomes) for run in runs])
        several = len(found) > 1

        def words(values: np.ndarray, digits: int, several: bool = several) -> str:
            mean = f"{values.mean():.{digits}f}"
            return f"{mean}±{values.std(ddof=1):.{digits}f}" if several else mean

        cells = [" ".join(words(column, 1) for column in metric.T) for metric in found.transpose(1, 0, 2)]
        print(f"| {row} | {' | '.join(cells)} | {words((found[:, 0] ** 2).sum(1) / 1e4, 3)} |", flush=True)
    if resamples and "recipe paper" in rows:
        intervals({row: [run[split] for run in rows[row]] for row in (MAIN, "recipe paper")}, outcomes, resamples)


def intervals(rows: dict[str, list[np.ndarray]], outcomes: np.ndarray, resamples: int) -> None:
    """95 % intervals of the mean over seeds, and of the difference of the first two rows, admissions resampled."""
    from mlci.measures import resample

    outcomes, one = outcomes.astype(np.float64), [(row, run) for row, runs in rows.items() for run in runs]
    statistics = [resample.ranking(run.astype(np.float64), y, kernel="energy") for _, run in one for y in outcomes.T]
    drawn = resample.bootstrap(statistics, np.arange(len(outcomes)), resamples=resamples)
    draws = np.stack(drawn).reshape(len(one), outcomes.shape[1], resamples, -1)
    means = {row: draws[[name == row for name, _ in one]].mean(0) for row in rows}
    first, second = means
    means[f"{first} less {second}"] = means[first] - means[second]
    print(f"\n95 % intervals, {resamples} resamples\n\n| | dCorr | AUROC | sum of squared dCorr |\n|---|---|---|---|")
    sums = {row: (each[..., 0] ** 2).sum(0) for row, each in means.items()}
    sums[f"{first} less {second}"] = sums[first] - sums[second]
    for row, each in means.items():
        cells = []
        for place in (resample.RANKING.index("dcorr"), resample.RANKING.index("auroc")):
            low, high = 100 * np.quantile(each[..., place], [0.025, 0.975], axis=1)
            cells.append(", ".join(f"{a:.1f} to {b:.1f}" for a, b in zip(low, high)))
        low, high = np.quantile(sums[row], [0.025, 0.975])
        print(f"| {row} | {' | '.join(cells)} | {low:.3f} to {high:.3f} |")


def spaced(source: str, target: str, split: str, bench: str | None) -> None:
    """Every score as it is and with the spacing that is best for the sum of squared dCorr in its order.

    The spacing is fitted on the validation split and judged on the test split; for the validation split, on halves.
    """
    from mlci.judging.theory import best_spacing

    data = Source.read(source).data["deep"]
    valid = len(data["valid"])
    half = np.arange(valid) % 2 == 0
    print("| | dCorr | with the best spacing | sum of squares | with the best spacing |\n|---|---|---|---:|---:|")
    for row, runs in read_rows(target, bench, valid).items():
        found = []
        for run in runs:
            score, y = run["valid"].astype(np.float64), data["valid"].outcomes.astype(np.float64)
            fitted, judged = (score[half], y[half]), (score[~half], y[~half])
            if split == "test":
                fitted = score, y
                judged = run["test"].astype(np.float64), data["test"].outcomes.astype(np.float64)
            better = best_spacing(*fitted).apply(judged[0])
            found.append([figures(each, judged[1])[0] for each in (judged[0], better)])
        mean = np.mean(found, axis=0)
        cells = [" ".join(f"{value:.1f}" for value in each) for each in mean]
        sums = [f"{value:.3f}" for value in (np.square(found).sum(2) / 1e4).mean(0)]
        print(f"| {row} | {' | '.join([*cells, *sums])} |", flush=True)


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
    here.add_argument("--quick", action="store_true", help="next to no epochs: does it run?")
    for action in ("table", "spaced"):
        back = actions.add_parser(action)
        back.add_argument("source")
        back.add_argument("target")
        back.add_argument("--split", default="valid", choices=["valid", "test"])
        back.add_argument("--bench", help="folder of `mlci benchmark` runs, to stand beside")
        if action == "table":
            more = "for intervals of the recipe and of recipe paper"
            back.add_argument("--resamples", type=int, default=0, help=more)
    words = parser.parse_args()
    if words.action == "export":
        export(words.cohort, words.target)
    elif words.action == "table":
        table(words.source, words.target, words.split, words.bench, words.resamples)
    elif words.action == "spaced":
        spaced(words.source, words.target, words.split, words.bench)
    else:
        run(
            words.source,
            words.target,
            seeds=[int(seed) for seed in words.seeds.split(",")],
            processes=words.processes,
            device=words.device,
            quick=words.quick,
        )


if __name__ == "__main__":
    main()
