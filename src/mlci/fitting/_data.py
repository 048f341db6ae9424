"""The data of a fit: tokens and outcomes of the training and the validation split, in memory or on disk.

All recipes use the same `Splits`. `in_memory` makes them from admissions; `_mapped.map_cohort` does so for a cohort
that is larger than memory. Needs NumPy, not torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import mlci
from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.config import TokenConfig
from mlci.fitting._numbers import Numbers
from mlci.tokens import Tokens, Vocabulary

MIN_ADMISSIONS = 100  # risk curves need at least so many admissions,
MIN_EVENTS = 10  # and so many in each class of every outcome


@dataclass(frozen=True)
class Split:
    """One split of a cohort. Its arrays may be memory maps and are never written to."""

    tokens: Tokens
    outcomes: np.ndarray  # binary outcomes, float32, admissions x outcomes: 0, 1, NaN where not known
    names: tuple[str, ...]  # of the outcomes
    vocabulary_size: int
    subjects: np.ndarray | None = None  # the patient of each admission
    admissions: Admissions | None = None  # the codes as recorded
    people: np.ndarray | None = None  # age and sex of each admission, as `_people.rows_of` encodes them
    weight: np.ndarray | None = None  # sampling weight of each admission, with mean 1
    clusters: np.ndarray | None = None  # sampling cluster of each admission, where it is not the patient
    numbers: Numbers | None = None  # numeric outcomes

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def fold_groups(self) -> np.ndarray | None:
        """The cluster of each admission, or its patient: a group is never divided between folds."""
        return self.subjects if self.clusters is None else self.clusters

    @property
    def fold_unit(self) -> str:
        """What a fold leaves out, as a word: clusters, patients, or admissions where no patient has several."""
        if self.clusters is not None:
            return "clusters"
        known = self.subjects is not None and len(np.unique(self.subjects)) < len(self)
        return "patients" if known else "admissions"

    @property
    def supports_risk_curves(self) -> bool:
        """Whether there are enough admissions and events to fit risk curves of all outcomes."""
        fewest = min(np.min((self.outcomes == kind).sum(axis=0), initial=MIN_EVENTS) for kind in (0, 1))
        return len(self) >= MIN_ADMISSIONS and fewest >= MIN_EVENTS

    def take(self, rows: np.ndarray) -> "Split":
        """Return the admissions at the given rows, in their order (without the recorded codes)."""
        known = {name: getattr(self, name) for name in ("outcomes", "subjects", "people", "weight", "clusters")}
        taken = {name: None if values is None else values[rows] for name, values in known.items()}
        numbers = None if self.numbers is None else self.numbers.take(rows)
        return replace(self, tokens=self.tokens.take(rows), admissions=None, numbers=numbers, **taken)

    def only(self, names: Sequence[str]) -> "Split":
        """Return the split with these outcomes alone."""
        columns = [self.names.index(name) for name in names]
        return replace(self, outcomes=self.outcomes[:, columns], names=tuple(names))


@dataclass(frozen=True)
class Splits:
    """The data that an index learns from, and the facts about it that the model file records."""

    vocabulary: Vocabulary
    icd_versions: tuple[int, ...]  # of the training codes
    outcomes: dict[str, str]  # name -> rule in words
    source: str
    train: Split
    valid: Split
    weightless: int = 0  # admissions of these splits that were left out because their weight is 0


def chosen_outcomes(rules: Mapping[str, str], chosen: Sequence[str] | None, where: str) -> dict[str, str]:
    """Return the outcomes to learn from with their rules, each once; without `chosen` names these are all.

    >>> chosen_outcomes({"died": "expired", "stayed": "los > 7"}, ["stayed"], "cohort.parquet")
    {'stayed': 'los > 7'}
    >>> chosen_outcomes({"died": "expired"}, "died", "cohort.parquet")  # a single name
    {'died': 'expired'}
    """
    chosen = [chosen] if isinstance(chosen, str) else chosen
    for name in chosen or ():
        if name not in rules:
            raise InputError(f"{where}: has no outcome {name}; it has {', '.join(rules) or 'none'}.")
    names = rules if chosen is None else chosen
    if not names:
        raise InputError(f"{where}: no outcome is given to learn from; at least one is needed.")
    return {name: rules[name] for name in names}


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
    """Learn the vocabulary from the training admissions and encode both splits.

    Args:
        admissions: the recorded codes.
        labels: one row per admission, one column per outcome: 0, 1, NaN where not known.
        outcomes: the name of each column and its rule in words.
        split: `train` or `valid` for each admission; others are not used.
        subjects: the patient of each admission.
        source: where the data come from, in words.
        tokens: how codes become tokens.
        columns: `people`, `weight`, `clusters` and `numbers` of each admission, as in `Split`. Admissions of weight 0
            are left out.
    """
    weight = columns.get("weight")
    counts = np.True_ if weight is None else weight > 0
    rows = {part: np.flatnonzero((split == part) & counts) for part in ("train", "valid")}
    train = admissions.take(rows["train"])
    vocabulary = Vocabulary.fit(train, **asdict(tokens.settled(len(train))))
    encoded = vocabulary.encode(admissions)
    labels = labels.astype(np.float32)
    if weight is not None and len(rows["train"]):
        columns["weight"] = weight / weight[rows["train"]].mean()
    whole = Split(encoded, labels, tuple(outcomes), len(vocabulary), np.asarray(subjects), **columns)
    return Splits(
        vocabulary=vocabulary,
        icd_versions=tuple(np.unique(train.versions[train.indices]).tolist()),
        outcomes=dict(outcomes),
        source=source,
        train=whole.take(rows["train"]),
        valid=whole.take(rows["valid"]),
        weightless=int(np.isin(split, [*rows]).sum()) - sum(map(len, rows.values())),
    )


def folds_by_subject(split: Split, folds: int, *, seed: int) -> np.ndarray:
    """Assign each admission to a fold, from 0, at random; all admissions of a patient (or cluster) are in one fold.

    The folds have equally many patients, up to one.
    """
    groups = np.arange(len(split))
    if split.fold_groups is not None:
        groups = np.unique(split.fold_groups, return_inverse=True)[1]
    order = np.random.default_rng([seed, 1]).permutation(int(groups.max()) + 1)
    return (order % folds)[groups]


def fingerprint(train: Split, valid: Split, *facts: object) -> str:
    """Return a hash of everything that a fit depends on: the data, and `facts` such as its config, seed and folds."""
    numeric = None if train.numbers is None else train.numbers.by_kind
    named = [mlci.__version__, train.names, train.vocabulary_size, numeric, *facts]
    text = json.dumps(named, sort_keys=True, default=lambda array: hashlib.sha256(array.tobytes()).hexdigest())
    digest = hashlib.sha256(text.encode())
    for split in (train, valid):
        numbers = None if split.numbers is None else split.numbers.values
        for array in (split.tokens.ids, split.tokens.offsets, split.outcomes, split.people, split.weight, numbers):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
