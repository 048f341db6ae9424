"""What each step of the `deep` recipe adds, and what the paper's objective reaches with the same means, on one GPU.

    python benchmarks/recipe.py export cohort.parquet tokens.npz        # where the cohort is
    python benchmarks/recipe.py run tokens.npz recipe.npz               # where the GPU is
    python benchmarks/recipe.py table tokens.npz recipe.npz             # anywhere: mean ± SD over seeds
    python benchmarks/recipe.py spaced tokens.npz recipe.npz --bench DIR  # every score with its best spacing

One archive goes to the GPU (tokens, outcomes, splits: no codes, no identifiers) and one comes back (scores of the
validation and test splits by variant and seed). There, NumPy, SciPy, torch and safetensors suffice. `run` first times
one plain fit alone. Then all variants run side by side, and finished ones are written at once. If processes share a
GPU, start MPS first (nvidia-cuda-mps-control -d). DIR is a folder of `mlci benchmark` runs.

`direct` rows have no risks: the paper's two stages align one score with the outcomes themselves, with the paper's
tokens or those of `deep`, its kernel or the energy kernel, one network or the mean of five of different seeds.
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
from mlci.config import DeepConfig, ObjectiveConfig, OptimiserConfig, PaperConfig, SelectionConfig, SpacingConfig
from mlci.tokens import Tokens

SPLITS = ("train", "valid", "test")
KINDS = {  # of tokens
    "deep": {},
    "paper": asdict(PaperConfig().tokens),
    "four": {"depths": (4,)},
    "primary": {"primary": True},
    "blind": {"without_outcome_codes": True},
}
MAIN = "deep"
ALIGNED = (
    ("paper", "rbf"),
    ("deep", "rbf"),
    ("paper", "energy"),
    ("deep", "energy"),
    ("deep", "bce"),
)  # tokens, objective
PAPER, SAME = "direct, rbf, paper tokens", "direct, energy, deep tokens, mean of 5"
TOGETHER = 5  # networks of an ensemble


def variants(config: DeepConfig) -> dict[str, tuple[str, DeepConfig]]:
    """Rows of the table: kind of tokens and config."""

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
        patients = np.unique(split.column("subject_id"), return_inverse=True)[1]
        arrays[f"{name}/patients"] = patients.astype(np.uint32)  # numbers of their own in each split
    facts = {"names": list(splits["train"].outcomes), "sizes": sizes}
    with atomic(target) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, facts=np.array(json.dumps(facts)), **arrays)
    print(f"{target}: {Path(target).stat().st_size / 1e6:.1f} MB; {sizes} tokens")


@dataclass(frozen=True)
class Source:
    """Read the output of `export`: names, vocabulary sizes, and kind of tokens -> split -> data."""

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
                    known = tuple(facts["names"]), facts["sizes"][kind], archive[f"{name}/patients"]
                    parts[name] = Split(tokens, outcomes[name], *known)
                data[kind] = parts
        return cls(facts, data)


SOURCE: Source


def begin(path: str) -> None:
    global SOURCE
    import torch

    torch.set_num_threads(1)
    SOURCE = Source.read(path)


def alone(config: DeepConfig, seed: int, device: str) -> dict[str, float]:
    """Seconds of one plain fit, after a warm-up of the device."""
    import torch

    from mlci.fitting import deep as recipe

    start, data = time.perf_counter(), SOURCE.data["deep"]
    (torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).sum().item()
    awake = time.perf_counter()
    fitted = recipe.fit(data["train"], data["valid"], config=config, seed=seed, device=device)
    return {"start": awake - start, "fit": fitted.seconds}


def members(kind: str, seed: int, config: DeepConfig, device: str) -> list:
    """All members, side by side."""
    import torch

    from mlci.fitting import deep as recipe

    data = SOURCE.data[kind]
    folds = recipe.folds_by_subject(data["train"], config.posterior.members, seed=seed)
    context = recipe.FitContext(config, seed, torch.device(device))
    others = [data["valid"], data["test"]]
    return list(recipe.train_members(context, data["train"], others, folds, range(config.posterior.members)))


def finish(kind: str, seed: int, config: DeepConfig, said: list, device: str) -> dict:
    """One row: scores of both splits by the student, its teacher and the risks themselves, R², seconds."""
    import torch

    from mlci.fitting import deep as recipe
    from mlci.fitting.encoders import score

    start, data = time.perf_counter(), SOURCE.data[kind]
    train, valid, test = (data[name] for name in SPLITS)
    folds = recipe.folds_by_subject(train, config.posterior.members, seed=seed)
    posteriors = recipe.Posteriors(np.stack([member.logits for member in said]), folds)
    collapsed = recipe.collapse_to_score(recipe.FitContext(config, seed), posteriors, train, valid)
    collapse_end = time.perf_counter()
    context = recipe.FitContext(config, seed, torch.device(device))
    state, history = recipe.distil(context, train, valid, collapsed, said[0].weights)
    cost = {"collapse": collapse_end - start, "distil": time.perf_counter() - collapse_end, "r2": history[-1].quality}
    _, own, others = np.split(posteriors.ensemble, np.cumsum([len(train), len(valid)]))
    scores = {
        "risks/valid": own,
        "risks/test": others,
        "teacher/valid": collapsed.valid,
        "teacher/test": collapsed.score(others),
        "student/valid": score(config.encoder, state, valid.tokens, device=device),
        "student/test": score(config.encoder, state, test.tokens, device=device),
    }
    return {"cost": cost, "scores": {name: score.astype(np.float32) for name, score in scores.items()}}


def direct(kind: str, objective: str, seeds: list[int], epochs: int, device: str) -> dict[tuple[str, int], dict]:
    """Without risks: alignment with the outcomes themselves, or cross-entropy, by the paper's two stages."""
    from mlci.fitting.encoders import score
    from mlci.fitting.paper import fit_seeds

    start, data, bce = time.perf_counter(), SOURCE.data[kind], objective == "bce"
    config = PaperConfig(
        objective=ObjectiveConfig(kind="bce") if bce else ObjectiveConfig(kernel=objective),
        optimiser=OptimiserConfig(stage1_epochs=epochs, stage2_epochs=epochs),
        selection=SelectionConfig(stage1="own" if bce else "anchor"),
    )
    each = [seed + place for seed in seeds for place in range(TOGETHER)]
    fits = fit_seeds(data["train"], data["valid"], config=config, seeds=each, device=device, stack=device == "cuda")
    cost = {"fit": (time.perf_counter() - start) / len(each)}
    scores = {
        name: np.stack([score(config.encoder, fit.state, data[name].tokens, device=device) for fit in fits])
        for name in ("valid", "test")
    }
    middle, scale = scores["valid"].mean(1, keepdims=True), scores["valid"].std(1, keepdims=True)
    found = {}
    for place, seed in enumerate(seeds):
        several = slice(place * TOGETHER, (place + 1) * TOGETHER)
        alone = {f"student/{name}": score[several][0] for name, score in scores.items()}
        mean = {f"student/{name}": ((score - middle) / scale)[several].mean(0) for name, score in scores.items()}
        found[f"direct, {objective}, {kind} tokens", seed] = {"cost": cost, "scores": alone}
        found[f"direct, {objective}, {kind} tokens, mean of {TOGETHER}", seed] = {"cost": cost, "scores": mean}
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
                arrays[f"{row}/{seed}/{name}"] = score.astype(np.float32)
        log(f"{row}, seed {seed}: " + ", ".join(f"{name} {value:.3f}" for name, value in found["cost"].items()))
        with atomic(target) as temporary, open(temporary, "wb") as file:
            np.savez(file, facts=np.array(json.dumps({"costs": costs})), **arrays)

    workers = {"mp_context": multiprocessing.get_context("spawn"), "initializer": begin, "initargs": (source,)}
    # Seventy-five networks at once need some 20 GB on a GPU, so at most two such stacks share it.
    with ProcessPoolExecutor(processes, **workers) as pool, ProcessPoolExecutor(2, **workers) as stacks:
        keep("plain fit", seeds[0], {"cost": pool.submit(alone, config, seeds[0], device).result(), "scores": {}})
        straight = [stacks.submit(direct, *row, seeds, 1 if quick else 10, device) for row in ALIGNED]
        needed = dict.fromkeys((kind, options.posterior) for kind, options in rows.values())
        learning: dict[Future, tuple] = {
            pool.submit(members, kind, seed, replace(config, posterior=posterior), device): (kind, posterior, seed)
            for kind, posterior in needed
            for seed in seeds
        }
        finishing: dict[Future, tuple[str, int]] = {}
        failed = 0
        for future in as_completed(learning):
            kind, posterior, seed = learning[future]
            log(f"{posterior.members} members, {kind} tokens, seed {seed}: {future.exception() or 'learned'}")
            if future.exception():
                failed += 1
                continue
            for row, (tokens, options) in rows.items():
                if (tokens, options.posterior) == (kind, posterior):
                    finishing[pool.submit(finish, kind, seed, options, future.result(), device)] = (row, seed)
        for future in as_completed([*finishing, *straight]):
            try:
                found = {finishing[future]: future.result()} if future in finishing else future.result()
                for key, each in found.items():
                    keep(*key, each)
            except Exception:  # other rows go on; the failure is printed now and sets the exit status
                log(traceback.format_exc())
                failed += 1
    log(f"all; {target}: {Path(target).stat().st_size / 1e6:.1f} MB")
    if failed:
        sys.exit(f"{failed} rows failed; see above.")


METRICS = {
    "auroc": "AUROC",
    "deviance": "deviance",
    "nagelkerke": "Nagelkerke",
    "brier_skill": "Brier skill",
    "dcorr": "dCorr",
    "mi": "MI",
}


def risks(known: np.ndarray, outcomes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The risk of each outcome: that of the smooth curve over a score of validation admissions, or by own log-odds."""
    from scipy.special import expit

    from mlci.judging.smooth import smooth

    if scores.ndim == 2:
        return expit(scores)
    return np.column_stack([smooth(known, y)(scores) for y in outcomes.T])


def figures(run: dict[str, np.ndarray], outcomes: dict[str, np.ndarray], split: str) -> np.ndarray:
    """A row for each of METRICS, a column for each outcome, times 100."""
    from mlci.measures.registry import METRICS as ALL
    from mlci.measures.registry import Pair

    known, scores = (run[name].astype(np.float64) for name in ("valid", split))
    columns = scores if scores.ndim == 2 else np.tile(scores[:, None], outcomes[split].shape[1])
    told = risks(known, outcomes["valid"], scores)
    pairs = [Pair(*each) for each in zip(columns.T, outcomes[split].T, told.T)]
    return 100 * np.array([[ALL[name].value(pair) for pair in pairs] for name in METRICS])


def read_rows(target: str, bench: str | None, valid: int) -> dict[str, list[dict[str, np.ndarray]]]:
    """Row -> a dictionary of split and score for each seed."""
    rows: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    with np.load(target, allow_pickle=False) as archive:
        for name in archive.files:
            if name != "facts":
                row, seed, who, split = name.split("/")
                row += {"student": "", "teacher": ", not distilled", "risks": ", own risks"}[who]
                rows.setdefault(row, {}).setdefault(seed, {})[split] = archive[name]
    if bench:
        import pyarrow.parquet as pq

        for path in sorted(Path(bench).glob("*/*/scores.parquet")):  # validation split first
            name, seed = path.parts[-3:-1]
            score = pq.read_table(path)[name].to_numpy()
            rows.setdefault(name, {})[seed] = {"valid": score[:valid], "test": score[valid:]}
    order = [*variants(DeepConfig()), *rows]
    return {row: list(rows[row].values()) for row in sorted(rows, key=order.index)}


def table(source: str, target: str, split: str, bench: str | None, resamples: int) -> None:
    """A Markdown row for each variant: means over outcomes, then outcome by outcome, x 100, mean ± SD over seeds."""
    data = Source.read(source)
    outcomes = {name: data.data["deep"][name].outcomes.astype(np.float64) for name in ("valid", "test")}
    rows = read_rows(target, bench, len(outcomes["valid"]))
    names = ", ".join(data.facts["names"])
    print(f"{split} split, {len(outcomes[split]):,} admissions; outcomes in order: {names}; all figures x 100\n")
    heads = [*(f"mean {name}" for name in METRICS.values()), "sum of squared dCorr", "AUROC", "deviance", "dCorr"]
    print(f"| recipe | {' | '.join(heads)} |\n|---{'|---:' * (len(heads) - 3)}|---|---|---|")
    for row, runs in rows.items():
        found = np.stack([figures(run, outcomes, split) for run in runs])  # seeds x metrics x outcomes
        by_name = dict(zip(METRICS, found.transpose(1, 0, 2)))
        cells = [with_spread(each.mean(1), 2) for each in by_name.values()]
        cells.append(with_spread((by_name["dcorr"] ** 2).sum(1) / 1e4, 3))
        cells += [" ".join(f"{x:.1f}" for x in by_name[name].mean(0)) for name in ("auroc", "deviance", "dcorr")]
        print(f"| {row} | {' | '.join(cells)} |", flush=True)
    if resamples:
        kept = {row: rows[row][0] for row in (MAIN, PAPER, SAME) if row in rows}
        intervals(kept, outcomes, split, data, resamples)


def with_spread(values: np.ndarray, digits: int) -> str:
    """The mean over seeds, with their SD where there are several."""
    mean = f"{values.mean():.{digits}f}"
    return f"{mean}±{values.std(ddof=1):.{digits}f}" if len(values) > 1 else mean


def intervals(rows: dict[str, dict], outcomes: dict[str, np.ndarray], split: str, data: Source, resamples: int) -> None:
    """95 % intervals of the first seed's figures and of their differences from the first row, as `mlci evaluate`."""
    from mlci.judging.evaluate import judge

    names, patients = data.facts["names"], data.data["deep"][split].subjects
    told = {
        row: risks(run["valid"].astype(float), outcomes["valid"], run[split].astype(float)) for row, run in rows.items()
    }
    found = judge(
        {row: run[split].astype(float) for row, run in rows.items()},
        dict(zip(names, outcomes[split].T)),
        groups=patients,
        risks={row: dict(zip(names, each.T)) for row, each in told.items()},
        kernel="energy",
        resamples=resamples,
    )
    for title, frame in (("95 % intervals, first seed", found.table), (f"less {MAIN}", found.differences)):
        print(f"\n{title}\n")
        for (row, metric), part in frame[frame["metric"].isin(METRICS)].groupby(["model", "metric"], sort=False):
            cells = (
                f"{100 * each.value:.1f} ({100 * each.low:.1f} to {100 * each.high:.1f})" for each in part.itertuples()
            )
            print(f"| {row} | {METRICS[metric]} | {' | '.join(cells)} |")


def dependence(score: np.ndarray, outcomes: np.ndarray) -> list[float]:
    """The distance correlation with each outcome, times 100."""
    from mlci.measures.alignment import distance_correlation

    known = [~np.isnan(y) for y in outcomes.T]
    return [100 * float(distance_correlation(score[k], y[k])) for k, y in zip(known, outcomes.T)]


def spaced(source: str, target: str, split: str, bench: str | None) -> None:
    """Every score as it is and with its best spacing for the sum of squared dCorr.

    The spacing is fitted on the validation split and judged on the test split; for the validation split, on halves.
    """
    from mlci.judging.theory import best_spacing

    data = Source.read(source).data["deep"]
    valid = len(data["valid"])
    half = np.arange(valid) % 2 == 0
    print("| | dCorr | with the best spacing | sum of squares | with the best spacing |\n|---|---|---|---:|---:|")
    for row, runs in read_rows(target, bench, valid).items():
        if runs[0]["valid"].ndim == 2:  # risks are not spaced
            continue
        found = []
        for run in runs:
            score, y = run["valid"].astype(np.float64), data["valid"].outcomes.astype(np.float64)
            fitted, judged = (score[half], y[half]), (score[~half], y[~half])
            if split == "test":
                fitted = score, y
                judged = run["test"].astype(np.float64), data["test"].outcomes.astype(np.float64)
            better = best_spacing(*fitted).apply(judged[0])
            found.append([dependence(each, judged[1]) for each in (judged[0], better)])
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
    here.add_argument("--quick", action="store_true", help="almost no epochs, as a test")
    for action in ("table", "spaced"):
        back = actions.add_parser(action)
        back.add_argument("source")
        back.add_argument("target")
        back.add_argument("--split", default="valid", choices=["valid", "test"])
        back.add_argument("--bench", help="folder of `mlci benchmark` runs to compare with")
        if action == "table":
            more = "for intervals of the recipe and of the paper's objective"
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
