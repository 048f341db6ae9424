"""What own admissions add: an index as shipped, recalibrated, with moved weights, and fitted from scratch.

    python benchmarks/moving.py NHDS10.PU.txt.bz2 -o FOLDER [--sizes 500,2000] [--draws 5] [--synthetic 90000]

For each of the survey's four regions an index is learned from the other three and moved to this one with more and more
of its admissions. `us2010` is moved to the synthetic hospital in the same way. All are judged on the test splits. With
2,000 admissions there are several draws. Output: `moving.csv` (a row per hospital, size, draw and way), `moving.svg`,
and the tables of docs/us2010-evidence.md.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa

import mlci
from mlci.cohort import Cohort
from mlci.index.model import Model
from mlci.index.recalibrate import recalibrate
from mlci.measures.alignment import distance_correlation
from mlci.measures.discrimination import auroc

REGIONS = {"1": "Northeast", "2": "Midwest", "3": "South", "4": "West"}
SIZES = (500, 1000, 2000, 5000, 10_000, 50_000)
FIGURES = {
    "auroc": "AUROC x 100 of the risks",
    "explained": "deviance explained, %",
    "dcorr": "dCorr x 100 of the score",
}
WAYS = ("as shipped", "recalibrated", "weights moved", "from scratch")
SEED = 11
REPEATED = 2000  # own admissions of which several draws are judged


def judged(model: Model, test: Cohort) -> dict[str, float]:
    """Means over outcomes; for an outcome that the model does not know, its score is used and the deviance is 0."""
    reading = model.read(test.admissions())
    risks, found = model.risks(reading), []
    for name in test.outcomes:
        label = test.labels(name)[:, 0]
        known = ~np.isnan(label)
        rate, y = label[known].mean(), label[known]
        risk = np.clip(risks.get(name, np.full(len(label), rate)), 1e-9, 1 - 1e-9)[known]
        null = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
        loss = -np.mean(np.where(y == 1, np.log(risk), np.log1p(-risk)))
        area = auroc(risk if name in risks else reading.score[known], y)
        found.append((100 * area, 100 * (1 - loss / null), 100 * distance_correlation(reading.score[known], y)))
    return dict(zip(FIGURES, np.mean(found, axis=0)))


def ways(model: Model, own: Cohort, sizes: list[int], draws: int) -> Iterator[tuple[int, int, str, dict[str, float]]]:
    """Each size, draw and way, judged on the hospital's test split; larger sizes than available mean all."""
    test, split = own.split("test"), np.asarray(own.column("split"))
    learn, shipped = np.flatnonzero(split != "test"), judged(model, test)
    for size in sizes:
        for draw in range(draws if size == REPEATED else 1):
            some = split == "test"
            some[np.random.default_rng(SEED + draw).permutation(learn)[:size]] = True
            part = own.where(some)
            yield size, draw, "as shipped", shipped
            yield size, draw, "recalibrated", judged(recalibrate(model, part).model, test)
            yield size, draw, "weights moved", judged(recalibrate(model, part, update="weights").model, test)
            yield size, draw, "from scratch", judged(mlci.MLCI(seed=SEED).fit(as_training(part)).model_, test)
        if size >= len(learn):
            return


def as_training(cohort: Cohort) -> Cohort:
    """Join train and valid to one training split, because a table chooses by its folds."""
    known = cohort.split("train", "valid")
    place = known.table.column_names.index("split")
    return replace(known, table=known.table.set_column(place, "split", pa.array(["train"] * len(known))))


def hospitals(survey: str, synthetic: int) -> Iterator[tuple[str, Model, Cohort]]:
    yield "synthetic hospital", mlci.load("us2010").model_, mlci.build_cohort("synthetic", synthetic)
    whole = mlci.build_cohort("nhds", survey, not_stated="null")
    region = np.asarray(whole.column("region"))
    for code, name in REGIONS.items():
        base = mlci.MLCI(seed=SEED).fit(as_training(whole.where(region != code)))
        yield name, base.model_, whole.where(region == code)


def show(table: pd.DataFrame, title: str) -> None:
    print(f"\n{title}\n\n| own admissions | figure | " + " | ".join(WAYS) + " |\n|---|---" + "|---" * len(WAYS) + "|")
    for size, rows in table.groupby("size"):
        for figure, words in FIGURES.items():
            cells = rows.groupby("way")[figure].mean()
            print(f"| {size:,} | {words} | " + " | ".join(f"{cells[way]:.1f}" for way in WAYS) + " |")


def differences(table: pd.DataFrame, title: str) -> None:
    """Moved weights less the others at `REPEATED` own admissions: mean and SD over hospitals and draws."""
    some = table[table["size"] == REPEATED].set_index(["hospital", "draw", "way"])[[*FIGURES]].unstack("way")
    print(f"\n{title}, moved weights less\n\n| {REPEATED:,} own admissions | " + " | ".join(FIGURES.values()) + " |")
    print("|---" * (1 + len(FIGURES)) + "|")
    for way in ("as shipped", "recalibrated", "from scratch"):
        cells = []
        for figure in FIGURES:
            less = some[figure]["weights moved"] - some[figure][way]
            cells.append(f"{less.mean():+.2f} (SD {less.std():.2f}), ahead in {(less > 0).sum()} of {len(less)}")
        print(f"| {way} | " + " | ".join(cells) + " |")


def draw(table: pd.DataFrame, path: Path) -> None:
    groups = {"NHDS: the mean of regions": table[table["hospital"] != "synthetic hospital"]}
    groups["us2010 to the synthetic hospital"] = table[table["hospital"] == "synthetic hospital"]
    figure, axes = plt.subplots(2, 3, figsize=(11, 6), sharex=True, constrained_layout=True)
    for row, (title, part) in zip(axes, groups.items()):
        for axis, (name, words) in zip(row, FIGURES.items()):
            means = part.groupby(["way", "size"])[name].mean()
            for way, style in zip(WAYS, ("k--", "C7-o", "C0-o", "C1-s")):
                axis.plot(means[way].index, means[way].to_numpy(), style, label=way, markersize=4)
            low = means[["recalibrated", "weights moved", "from scratch"]].min()
            axis.set(xscale="log", title=f"{title}\n{words}")
            axis.set_ylim(bottom=low - 0.1 * (means.max() - low))
            axis.title.set_fontsize(9)
    axes[0, 0].legend(fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("own admissions")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("survey")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--draws", type=int, default=5, help=f"of {REPEATED:,} own admissions")
    parser.add_argument("--synthetic", type=int, default=90_000, help="admissions of the synthetic hospital")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    words.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for hospital, model, own in hospitals(words.survey, words.synthetic):
        for size, number, way, figures in ways(model, own, [int(size) for size in words.sizes.split(",")], words.draws):
            rows.append({"hospital": hospital, "size": size, "draw": number, "way": way, **figures})
            print(*rows[-1].values(), flush=True)
            pd.DataFrame(rows).to_csv(words.output / "moving.csv", index=False, float_format="%.3f")
    table = pd.DataFrame(rows)
    alone = table["hospital"] == "synthetic hospital"
    for title, part in {
        "NHDS, the mean of regions": table[~alone],
        "us2010 to the synthetic hospital": table[alone],
    }.items():
        show(part, title)
        differences(part, title)
    draw(table, words.output / "moving.svg")


if __name__ == "__main__":
    main()
