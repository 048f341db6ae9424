"""An epoch of the paper's recipe at MIMIC-IV size, compared with a plain padded torch implementation of the same step.

    python benchmarks/fit.py [--quick] [--whole] [--no-growth]

- Data: synthetic admissions, 178,178 to train on and 25,228 for validation, with 13 codes on average (a negative
  binomial) from a vocabulary of 9,000 whose frequencies fall like those of real codes.
- The reference pads each batch (to its longest admission, or to 256), runs phi on every position, forms both Gram
  matrices for each outcome and centres them by matrix products, and uses torch's default AdamW. It is timed over some
  steps and multiplied. So are the matrix products of our own steps alone, which are the lower bound.
- Threads: all get the same number. The reference shares a step among them. Ours fits the models of Stage 1 side by
  side, one thread each, so its time for an epoch is divided by the epochs that run at once. Stage 2 is one fit on one
  thread and has a row of its own.
- Our time includes validation, the reference's does not. Each row runs in a process of its own for its peak memory.
- The whole two-stage fit is the sum of its parts (10 + 10 epochs, four outcomes); `--whole` runs it (minutes).
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import chain, pairwise
from statistics import fmean

TRAIN, VALID, MEAN, VOCABULARY, BATCH = 178_178, 25_228, 13, 9_000, 256
NAMES = ("mortality", "mortality_30d", "long_stay", "icu_transfer")


def hospital(n: int, seed: int):
    import numpy as np

    from mlci.fitting import Split
    from mlci.tokens import Tokens

    rng = np.random.default_rng(seed)
    frequency = 1 / (np.arange(1, VOCABULARY - 1) + 8) ** 1.25
    counts = 1 + rng.negative_binomial(2.2, 2.2 / (2.2 + MEAN - 1), n)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = (2 + rng.choice(VOCABULARY - 2, offsets[-1], p=frequency / frequency.sum())).astype(np.int32)
    weight = np.random.default_rng(0).gamma(0.3, size=VOCABULARY)
    severity = np.add.reduceat(weight[ids], offsets[:-1]) + rng.normal(scale=1.5, size=(4, n))
    outcomes = [np.quantile(row, 1 - rate) for row, rate in zip(severity, (0.02, 0.03, 0.18, 0.1))] < severity.T
    return Split(Tokens(ids, offsets), outcomes.astype(np.float32), NAMES, VOCABULARY)


def ours(threads: int, share: float, whole: bool) -> dict:
    from mlci.config import OptimiserConfig, PaperConfig
    from mlci.fitting.paper import fit

    train, valid = hospital(int(TRAIN * share), 1), hospital(int(VALID * share), 2)
    config = PaperConfig() if whole else PaperConfig(optimiser=OptimiserConfig(stage1_epochs=2, stage2_epochs=2))
    marks: dict[str, list[float]] = {}  # when each epoch of a fit was over

    def mark(event) -> None:
        marks.setdefault(event.step, []).append(event.seconds)

    result = fit(
        train,
        valid,
        config=config,
        seed=11,
        threads=threads,
        on_event=mark,
    )
    taken = {name: [b - a for a, b in pairwise(seconds)] for name, seconds in marks.items()}
    second = fmean(taken.pop("stage 2"))
    first = fmean(chain.from_iterable(taken.values()))
    begin = min(seconds[0] for seconds in marks.values()) - first  # data, initial model, bandwidth
    turns = -(-len(NAMES) // threads)
    total = result.seconds if whole else turns * (begin + 10 * first) + begin + 10 * second
    return {"epoch": first / min(threads, len(NAMES)), "fit": total, "second": second}


def padded(threads: int, share: float, width: int | None, steps: int) -> dict:
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    train = hospital(int(TRAIN * share), 1)
    torch.manual_seed(11)

    class Plain(nn.Module):
        def __init__(self, d: int = 128) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, d, padding_idx=0)
            self.phi = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU())
            self.norm = nn.LayerNorm(2 * d)
            self.rho = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))

        def forward(self, ids):
            mask = (ids != 0).unsqueeze(-1)
            h = self.phi(self.embedding(ids))
            mean = (h * mask).sum(1) / mask.sum(1).clamp(min=1)
            high = h.masked_fill(~mask, -1e9).max(1).values
            return self.rho(self.norm(torch.cat([mean, high], dim=1))).squeeze(-1)

    def nhsic(scores, outcome):
        n = len(scores)
        centre = torch.eye(n) - 1 / n
        gram = centre @ torch.exp(-((scores[:, None] - scores[None, :]) ** 2) / (2 * 0.93**2)) @ centre
        labels = centre @ (outcome[:, None] == outcome[None, :]).float() @ centre
        return (gram * labels).sum() / (gram.norm().clamp(min=1e-4) * labels.norm().clamp(min=1e-4))

    model = Plain()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    order = np.random.default_rng(11).permutation(len(train))
    start = 0.0
    for step in range(steps + 3):
        if step == 3:  # after warming up
            start = time.perf_counter()
        rows = order[step * BATCH : (step + 1) * BATCH]
        lists = [train.tokens.ids[train.tokens.offsets[i] : train.tokens.offsets[i + 1]][:256] for i in rows]
        places = width or max(map(len, lists))
        ids = torch.zeros(len(rows), places, dtype=torch.long)
        for place, codes in enumerate(lists):
            ids[place, : len(codes)] = torch.from_numpy(codes)
        y = torch.from_numpy(train.outcomes[rows])
        scores = model(ids)
        loss = -torch.stack([nhsic(scores, outcome) for outcome in y.T]).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    seconds = (time.perf_counter() - start) / steps * -(-len(train) // BATCH)
    return {"epoch": seconds, "fit": 50 * seconds}


def products(threads: int, share: float, steps: int = 200) -> dict:
    """The matrix products of our step alone, forward and backward: the lower bound."""
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    train = hospital(int(TRAIN * share), 1)
    rows = np.random.default_rng(11).permutation(len(train))[:BATCH]
    distinct, d = len(np.unique(train.tokens.take(rows).ids)), 128
    shapes = [(distinct, d, d), (distinct, d, d), (BATCH, 2 * d, d), (BATCH, d, d)]
    layers = [(torch.randn(n, i), torch.randn(o, i), torch.randn(n, o)) for n, i, o in shapes]
    for step in range(steps + 20):
        if step == 20:  # after warming up
            start = time.perf_counter()
        for x, weight, back in layers:
            x @ weight.T, back @ weight, back.T @ x  # pyright: ignore[reportUnusedExpression]
    seconds = (time.perf_counter() - start) / steps * -(-len(train) // BATCH)  # pyright: ignore
    return {"epoch": seconds, "fit": 50 * seconds}


def in_a_process(work: str) -> dict:
    done = subprocess.run([sys.executable, __file__, "--work", work], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the admissions, one thread")
    parser.add_argument("--whole", action="store_true", help="run the two-stage fit to its end")
    parser.add_argument("--no-growth", action="store_true", help="skip a quarter and half of the admissions")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        result = eval(options.work)  # our own words, from the lines below
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({**result, "gib": peak}))
        return
    share = 0.1 if options.quick else 1.0
    steps = 5 if options.quick else 20
    header = f"{'':42s} {'epoch, s':>9s} {'ratio':>7s} {'two-stage fit, min':>19s} {'peak GiB':>9s}"
    for threads in [1] if options.quick else options.threads:
        print(f"\n{int(TRAIN * share):,} admissions, batch {BATCH}, {threads} thread(s)\n{header}")
        base = in_a_process(f"ours({threads}, {share}, {options.whole})")
        rows = {
            "mlci, Stage 1 (validation included)": base,
            "mlci, Stage 2 (validation included)": {**base, "epoch": base["second"]},
            "the matrix products of its steps alone": in_a_process(f"products({threads}, {share})"),
            "padded to the batch's longest": in_a_process(f"padded({threads}, {share}, None, {steps})"),
            "padded to 256": in_a_process(f"padded({threads}, {share}, 256, {max(3, steps // 4)})"),
        }
        for name, row in rows.items():
            ratio = row["epoch"] / base["epoch"]
            print(f"{name:42s} {row['epoch']:9.2f} {ratio:7.1f} {row['fit'] / 60:19.1f} {row['gib']:9.2f}")
    if options.no_growth:
        return
    print("\nGrowth (1 thread)")
    for part in (0.25, 0.5, 1.0):
        row = in_a_process(f"ours(1, {share * part}, False)")
        print(f"{int(TRAIN * share * part):>12,} admissions {row['epoch']:21.2f} s {row['gib']:9.2f} GiB")


if __name__ == "__main__":
    main()
