"""What a fit learns from: admissions as tokens and outcomes, in memory or on disk, for every recipe the same.

In come admissions with outcomes, out come a vocabulary and two splits of token ids. Needs NumPy alone, no torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import mlci
from mlci.codes.admissions import Admissions
from mlci.config import TokenConfig
from mlci.fitting._numbers import Numbers
from mlci.tokens import Tokens, Vocabulary

ENOUGH, EVENTS = 100, 10  # admissions, and of each class of an outcome, that risk curves can be drawn on


@dataclass(frozen=True)
class Split:
    """One split of a cohort. Its arrays may be memory maps: nobody writes to them."""

    tokens: Tokens
    outcomes: np.ndarray  # float32, admissions x outcomes: 0, 1, NaN where not known
    names: tuple[str, ...]  # of the outcomes
    vocabulary_size: int
    subjects: np.ndarray | None = None  # the patient of each admission
    admissions: Admissions | None = None  # the codes as they were recorded
    people: np.ndarray | None = None  # rows of age and sex, as `_people.rows_of` gives them
    weight: np.ndarray | None = None  # how much each admission counts, with mean 1
    clusters: np.ndarray | None = None  # what belongs together, where it is not the patient
    numbers: Numbers | None = None  # outcomes that are numbers

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def together(self) -> np.ndarray | None:
        """What is never parted by a fold: the cluster of each admission, or its patient."""
        return self.subjects if self.clusters is None else self.clusters

    @property
    def words(self) -> str:
        """What a fold leaves out: clusters, patients, or admissions where each stands for itself."""
        if self.clusters is not None:
            return "clusters"
        known = self.subjects is not None and len(np.unique(self.subjects)) < len(self)
        return "patients" if known else "admissions"

    @property
    def tells_risks(self) -> bool:
        """Whether risk curves of all outcomes can be drawn on these admissions alone."""
        fewest = min(np.min((self.outcomes == kind).sum(axis=0), initial=EVENTS) for kind in (0, 1))
        return len(self) >= ENOUGH and fewest >= EVENTS

    def take(self, rows: np.ndarray) -> "Split":
        """Keep the admissions at the given positions, in their order (without the recorded codes)."""
        known = {name: getattr(self, name) for name in ("outcomes", "subjects", "people", "weight", "clusters")}
        taken = {name: None if values is None else values[rows] for name, values in known.items()}
        numbers = None if self.numbers is None else self.numbers.take(rows)
        return replace(self, tokens=self.tokens.take(rows), admissions=None, numbers=numbers, **taken)

    def only(self, names: Sequence[str]) -> "Split":
        """Keep the outcomes of these names."""
        columns = [self.names.index(name) for name in names]
        return replace(self, outcomes=self.outcomes[:, columns], names=tuple(names))


@dataclass(frozen=True)
class Splits:
    """What an index learns from, and what its model file says about it."""

    vocabulary: Vocabulary
    icd_versions: tuple[int, ...]  # of the training codes
    outcomes: dict[str, str]  # name -> rule in words
    source: str
    train: Split
    valid: Split


def in_memory(
    admissions: Admissions,
    labels: np.ndarray,
    *,
    outcomes: Mapping[str, str],
    split: np.ndarray,
    subjects: np.ndarray,
    source: str,
    tokens: TokenConfig,
    **columns: Any,
) -> Splits:
    """Learn the vocabulary of the training admissions and encode both splits.

    Args:
        admissions: the recorded codes.
        labels: a row per admission, a column per outcome: 0, 1, NaN where not known.
        outcomes: the name of each column and its rule in words.
        split: `train` or `valid` for each admission; others take no part.
        subjects: the patient of each admission.
        source: where the data come from, in words.
        tokens: how codes become tokens.
        columns: `people`, `weight`, `clusters` and `numbers` of each admission, as `Split` has them.
    """
    rows = {part: np.flatnonzero(split == part) for part in ("train", "valid")}
    train = admissions.take(rows["train"])
    vocabulary = Vocabulary.fit(train, **asdict(tokens.settled(len(train))))
    encoded = vocabulary.encode(admissions)
    labels = labels.astype(np.float32)
    if (weight := columns.get("weight")) is not None:
        columns["weight"] = weight / weight[rows["train"]].mean()
    whole = Split(encoded, labels, tuple(outcomes), len(vocabulary), np.asarray(subjects), **columns)
    return Splits(
        vocabulary=vocabulary,
        icd_versions=tuple(np.unique(train.versions[train.indices]).tolist()),
        outcomes=dict(outcomes),
        source=source,
        train=whole.take(rows["train"]),
        valid=whole.take(rows["valid"]),
    )


def folds_by_subject(split: Split, folds: int, *, seed: int) -> np.ndarray:
    """Draw the fold of each admission, from 0; a patient is in one fold, and folds have as many patients as can be.

    Where clusters are named they take the place of patients.
    """
    groups = np.arange(len(split))
    if split.together is not None:
        groups = np.unique(split.together, return_inverse=True)[1]
    order = np.random.default_rng([seed, 1]).permutation(int(groups.max()) + 1)
    return (order % folds)[groups]


def fingerprint(train: Split, valid: Split, *facts: object) -> str:
    """Give one number for all that a fit depends on: the data, and `facts` such as its config and seed."""
    names = (train.names, train.vocabulary_size)
    digest = hashlib.sha256(json.dumps([mlci.__version__, *names, *facts], sort_keys=True).encode())
    for split in (train, valid):
        numbers = None if split.numbers is None else split.numbers.values
        for array in (split.tokens.ids, split.tokens.offsets, split.outcomes, split.people, split.weight, numbers):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
