"""Compare the counts of source, cohort and splits with the paper's, to see whether the data are the same."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from mlci.base.grids import Grid, grid
from mlci.cohort import Cohort

SPLITS = ("train", "valid", "test")
WORDS = {
    "source_admissions": "admissions in the source",
    "source_patients": "their patients",
    "source_icu_any": "with an ICU stay (icu_any)",
    "source_icu_share": "share with an ICU stay",
    "cohort_admissions": "admissions in the cohort",
    "cohort_patients": "their patients",
    **{name: f"admissions, {name}" for name in SPLITS},
    **{f"patients_{name}": f"patients, {name}" for name in SPLITS},
}


def counts_of(cohort: Cohort, source: Mapping[str, int]) -> dict[str, float]:
    """Return our counts for the quantities in `WORDS`; `source` holds the totals of the source, if known."""
    split, patients = cohort.column("split"), cohort.column("subject_id")
    found: dict[str, float] = {f"source_{name}": number for name, number in source.items()}
    if source:
        found["source_icu_share"] = source["icu_any"] / source["admissions"]
    found |= {"cohort_admissions": len(cohort), "cohort_patients": len(np.unique(patients))}
    found |= {name: int((split == name).sum()) for name in SPLITS}
    return found | {f"patients_{name}": len(np.unique(patients[split == name])) for name in SPLITS}


def beside(ours: Mapping[str, float], paper: Mapping[str, float]) -> pd.DataFrame:
    """Return our counts next to the paper's, which does not print every figure.

    >>> beside({"train": 700}, {"train": 800})["difference"].tolist()
    [-100.0]
    """
    rows = [(name, words, ours.get(name), paper.get(name)) for name, words in WORDS.items() if name in ours]
    frame = pd.DataFrame(rows, columns=["quantity", "words", "ours", "paper"]).astype({"ours": float, "paper": float})
    return frame.assign(difference=frame["ours"] - frame["paper"])


def as_grid(frame: pd.DataFrame) -> Grid:
    """Return the comparison as a formatted table."""
    rows = [[row.words, _text(row.ours), _text(row.paper), _text(row.difference)] for row in frame.itertuples()]
    return grid("data", "The data, compared with the paper's", ["figure", "ours", "paper", "difference"], rows)


def remark(ours: Mapping[str, float], paper: Mapping[str, float]) -> str:
    """Return a sentence on whether this is the paper's cohort, and what follows if it is not.

    >>> remark({"train": 700, "valid": 100, "test": 200}, {"train": 700, "valid": 100, "test": 200})
    "The cohort has the paper's size in every split: 700, 100, 200."
    """
    sizes = {name: int(ours[name]) for name in SPLITS}
    if all(sizes[name] == paper[name] for name in SPLITS):
        return f"The cohort has the paper's size in every split: {', '.join(f'{n:,}' for n in sizes.values())}."
    listed = "; ".join(f"{name} {sizes[name]:,} (paper {int(paper[name]):,})" for name in SPLITS)
    sentences = f"The cohort is not the paper's: {listed}."
    if sizes["test"] < paper["test"] / 2:
        sentences += (
            f" Its test split has {sizes['test'] / paper['test']:.2%} of the paper's admissions: this shows only that "
            "everything runs, and the differences below mean nothing."
        )
    return sentences


def _text(value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:,.0f}" if value == round(value) else f"{value:.3f}"
