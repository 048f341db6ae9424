"""The whole three-seed protocol on one GPU: 12 Stage-1 and 3 Stage-2 fits, stacked. Needs NumPy, torch, safetensors.

python benchmarks/gpu_fit.py                    synthetic admissions of MIMIC-IV's size
python benchmarks/gpu_fit.py --objective bce    the cross-entropy twin (or multi-rbf, energy)
python benchmarks/gpu_fit.py --eager            also one fit of one seed, a kernel launch at a time
python benchmarks/gpu_fit.py --profile          where a step's time goes
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from mlci.config import EncoderConfig, ObjectiveConfig, OptimiserConfig, PaperConfig, SelectionConfig
from mlci.fitting import Split
from mlci.fitting.paper import fit, fit_seeds
from mlci.tokens import Tokens

OUTCOMES = ("mortality", "mortality_30d", "long_stay", "icu_transfer")
RATES = (0.019, 0.03, 0.22, 0.16)
VOCABULARY = 9_000  # four-character ICD-10 prefixes of MIMIC-IV's training split, about


def made(admissions: int, rng: np.random.Generator) -> Split:
    """Admissions like MIMIC-IV's: 13 codes on average, few common and many rare, which determine the outcomes."""
    counts = np.clip(rng.negative_binomial(3, 3 / 16, admissions) + 1, 1, 39)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    share = 1 / (np.arange(1, VOCABULARY - 1) + 20.0)
    ids = (2 + rng.choice(VOCABULARY - 2, offsets[-1], p=share / share.sum())).astype(np.int32)
    effect = np.random.default_rng(0).normal(0, 1, VOCABULARY)
    severity = np.add.reduceat(effect[ids], offsets[:-1]) / np.sqrt(counts) + rng.normal(0, 1, admissions)
    outcomes = np.column_stack([severity > np.quantile(severity, 1 - rate) for rate in RATES]).astype(np.float32)
    return Split(Tokens(ids, offsets), outcomes, OUTCOMES, VOCABULARY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--admissions", type=int, default=178_178)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--objective", default="rbf", choices=("rbf", "multi-rbf", "energy", "bce"))
    parser.add_argument("--pooling", default="mean+max")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    train, valid = made(options.admissions, rng), made(options.admissions * 25_228 // 178_178, rng)
    seeds = (11, 101, 1001)[: options.seeds]
    facts = {"seeds": seeds, "device": options.device, "stack": True}
    bce = options.objective == "bce"

    def config(epochs: int) -> PaperConfig:
        return PaperConfig(
            encoder=EncoderConfig(pooling=options.pooling),
            objective=ObjectiveConfig(kind="bce") if bce else ObjectiveConfig(kernel=options.objective),
            optimiser=OptimiserConfig(stage1_epochs=epochs, stage2_epochs=epochs),
            selection=SelectionConfig(stage1="own" if bce else "anchor"),
        )

    fit_seeds(made(4_096, rng), made(2_048, rng), config=config(1), **facts)  # start-up: libraries, allocator

    def tell(event):
        reached = event.figures["validation"]
        print(f"  {event.step} epoch {event.epoch}: {event.seconds:.2f} s, quality {reached:.3f}", flush=True)

    if options.profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            fit_seeds(train, valid, config=config(1), **facts)
        print(profile.key_averages().table(sort_by="cuda_time_total", row_limit=40, max_name_column_width=90))
        return
    start = time.perf_counter()
    fit_seeds(train, valid, config=config(options.epochs), on_event=tell, **facts)
    seconds = time.perf_counter() - start
    steps = -(-options.admissions // 256) * options.epochs * len(seeds) * (len(OUTCOMES) + 1)
    print(f"stacked: {seconds:.2f} s for {len(seeds)} seeds, {steps / seconds:,.0f} model-steps/s")
    if options.device == "cuda":
        print(f"peak device memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    if options.eager:
        start = time.perf_counter()
        fit(train, valid, config=config(1), seed=11, device=options.device, stack=False)
        seconds = (time.perf_counter() - start) * options.epochs
        print(f"one by one, eager: {seconds * len(seeds):.0f} s for {len(seeds)} seeds (one epoch of each fit, scaled)")


if __name__ == "__main__":
    main()
