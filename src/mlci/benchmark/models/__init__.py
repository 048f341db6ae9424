"""The models of the benchmark. This folder is the registry: every model in a module's `MODELS` takes part.

A model is a frozen dataclass of hyperparameters with two methods. `fit` turns two splits of a cohort into a state, a
dictionary of arrays. `score` turns a state and admissions into one number per admission. Because a state is nothing but
arrays, one pair of functions saves and loads every model. Only NumPy is imported here, so that the neural models also
run on a bare GPU machine.
"""

import csv
import importlib.util
import json
import pkgutil
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mlci.base.errors import InputError
from mlci.base.plugins import plugins
from mlci.base.tensors import write_tensors
from mlci.config import TokenConfig, config_from
from mlci.fitting import Split
from mlci.measures.design import numbered
from mlci.tokens import Vocabulary

if TYPE_CHECKING:
    from mlci.cohort import Cohort
    from mlci.fitting._result import Fit

State = dict[str, np.ndarray]

FAMILIES = {
    "clinical": "Traditional clinical indices",
    "classical": "Classical machine learning baselines",
    "bce": "Deep learning: BCE-trained baselines",
    "mlci": "Our models",
    "ablation": "nHSIC ablations: MLCI variants",
}


@dataclass(frozen=True, kw_only=True)
class Baseline(ABC):
    """The base class of every model; subclasses add their hyperparameters as fields."""

    name: str  # on the command line, and of the folder
    title: str  # the row in the paper's tables
    family: str  # a key of FAMILIES
    seed: int | None = None  # the fixed seed of models that are deterministic or fitted with one seed only
    needs: str = ""  # an optional library

    @abstractmethod
    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        """Fit the model.

        Args:
            train: the training split.
            valid: the validation split, only for selecting candidates and weighting outcomes.
            seed: of all random numbers.
            device: of torch, for models that use it.

        Returns:
            The state: arrays by name, all that `score` needs.
        """

    @abstractmethod
    def score(self, state: State, part: Split) -> np.ndarray:
        """Return a finite number for each admission of `part`, in order, from a state that `fit` returned."""

    @property
    def tokens(self) -> TokenConfig:
        """The configuration of this model's tokens."""
        return TokenConfig()

    def at_once(self, device: str) -> bool:
        """Return whether several seeds are best fitted at once on this `device`.

        >>> discover()["knn"].at_once("cpu")
        False
        """
        return False

    @property
    def missing(self) -> str:
        """The optional library that is needed but not installed, or an empty string."""
        return self.needs if self.needs and importlib.util.find_spec(self.needs) is None else ""


@dataclass(frozen=True, kw_only=True)
class Learned(Baseline):
    """A model that is fitted by a recipe, so that each fit can be saved as an index."""

    recipe: ClassVar[str]
    constants: str = ""  # changes to the recipe's config, as JSON

    @abstractmethod
    def default_config(self) -> Any:
        """Return the config of the fit, without the changes in `constants`."""

    def config(self) -> Any:
        """Return the config of the fit.

        >>> discover()["table"].config().penalty.folds
        5
        """
        if not self.constants:
            return self.default_config()
        sections = merged(asdict(self.default_config()), json.loads(self.constants))
        return config_from(sections, recipe=self.recipe, where=self.name)

    @abstractmethod
    def fits(self, train: Split, valid: Split, *, seeds: Sequence[int], device: str) -> list["Fit"]:
        """Fit the recipe.

        Args:
            train: the training split.
            valid: the validation split, only for selecting candidates and weighting outcomes.
            seeds: of all random numbers.
            device: of torch, for recipes that use it.

        Returns:
            One fit per seed.
        """

    def fit(self, train: Split, valid: Split, *, seed: int, device: str = "cpu") -> State:
        return self.fits(train, valid, seeds=[seed], device=device)[0].state


def merged(whole: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested dictionaries with some of their values replaced.

    Args:
        whole: the dictionaries.
        changed: the values to replace, nested in the same way.

    >>> merged({"encoder": {"width": 128, "pooling": "sum"}}, {"encoder": {"width": 64}})
    {'encoder': {'width': 64, 'pooling': 'sum'}}
    """
    return dict(whole) | {
        name: merged(whole[name], value) if isinstance(value, dict) and isinstance(whole.get(name), dict) else value
        for name, value in changed.items()
    }


@dataclass(frozen=True)
class Parts(Mapping[str, Split]):
    """The three splits of a cohort by name, and the vocabulary of its training split."""

    splits: Mapping[str, Split]
    vocabulary: Vocabulary

    def __getitem__(self, name: str) -> Split:
        return self.splits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)


@dataclass(frozen=True)
class Result:
    """The result of one model with one seed."""

    state: State
    scores: dict[str, np.ndarray]  # of valid and test
    cost: dict[str, float | str]
    fit: "Fit | None" = None  # of a recipe, for an index


@cache
def paper_scores() -> tuple[dict[str, str], ...]:
    """Return the cells of the paper's tables of dCorr and MI, as printed (scaled by 10 to the `power`).

    >>> cell = paper_scores()[0]
    >>> cell["model"], cell["outcome"], cell["value"], cell["power"]
    ('Charlson (CCI)', 'mortality', '12.59', '2')
    """
    with (Path(__file__).parent / "data" / "paper_scores.csv").open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@cache
def paper_rows() -> dict[str, tuple[int, list[str]]]:
    """Return where the paper reports each model, by title: its row in the widest tables, and the tables' numbers.

    >>> paper_rows()["Charlson (CCI)"][1]  # the tables that report it
    ['1', '2', '6', '7']
    """
    rows: dict[str, tuple[int, list[str]]] = {}
    for cell in paper_scores():
        tables = rows.setdefault(cell["model"], (int(cell["row"]), []))[1]
        tables.extend(table for table in cell["tables"].split() if table not in tables)
    return {title: (row, sorted(tables)) for title, (row, tables) in rows.items()}


@cache
def discover() -> dict[str, Baseline]:
    """Return every model of this folder and of plug-in packages by name, in the order of the paper's tables.

    >>> discover()["knn"].family
    'classical'
    """
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    modules += plugins("mlci.models").values()
    found = [model for module in modules for model in getattr(module, "MODELS", ())]
    order, rows = list(FAMILIES), paper_rows()
    found.sort(key=lambda model: (order.index(model.family), rows.get(model.title, (len(rows) + 1,)), model.name))
    models = {model.name: model for model in found}
    assert len(models) == len(found), "two models share a name"
    return models


def choose(names: Sequence[str] = ()) -> list[Baseline]:
    """Return the models with these names or of these families, in the paper's order; by default all.

    >>> [model.name for model in choose(["clinical"])]
    ['charlson', 'elixhauser', 'cci_eci']
    """
    models = discover()
    unknown = [name for name in names if name not in models and name not in FAMILIES]
    if unknown:
        known = f"families {', '.join(FAMILIES)}; models {', '.join(models)}"
        raise InputError(f"models: {unknown[0]!r} is not known; allowed are {known}.")
    return [model for model in models.values() if not names or model.name in names or model.family in names]


def parts(cohort: "Cohort", tokens: TokenConfig | None = None) -> Parts:
    """Encode the three splits of a cohort, with the vocabulary of its training split.

    Args:
        cohort: with at least one admission in each of train, valid and test.
        tokens: the configuration of tokens; models with the same tokens can share the result.

    Returns:
        The splits by name, and the vocabulary.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["C78.0"], ["E11.9"]] * 30, "died": [1, 0] * 30})
    >>> from mlci.cohort import Cohort
    >>> {name: len(part) for name, part in parts(Cohort.from_frame(visits, icd_version=10)).items()}
    {'train': 38, 'valid': 6, 'test': 16}
    """
    splits = {name: cohort.split(name) for name in ("train", "valid", "test")}
    for name, split in splits.items():
        if not len(split):
            raise InputError(f"the cohort has no admission in the split {name}; train, valid and test are all needed.")
    admissions = {name: split.admissions() for name, split in splits.items()}
    vocabulary = Vocabulary.fit(
        admissions["train"], **asdict((tokens or TokenConfig()).settled(len(admissions["train"])))
    )
    found = {
        name: Split(
            tokens=vocabulary.encode(admissions[name]),
            outcomes=split.labels().astype(np.float32),
            names=tuple(cohort.outcomes),
            vocabulary_size=len(vocabulary),
            subjects=numbered(split.column("subject_id")),
            admissions=admissions[name],
        )
        for name, split in splits.items()
    }
    return Parts(found, vocabulary)


def at_once(jobs: Iterable[tuple[Baseline, int]], device: str) -> list[tuple[Baseline, list[int]]]:
    """Return jobs (a model and a seed each) in groups that are best fitted at once on this device.

    >>> [knn] = choose(["knn"])
    >>> [seeds for _, seeds in at_once([(knn, 1), (knn, 2)], "cpu")]  # one by one
    [[1], [2]]
    """
    groups: dict[Hashable, tuple[Baseline, list[int]]] = {}
    for model, seed in jobs:
        groups.setdefault((model, None if model.at_once(device) else seed), (model, []))[1].append(seed)
    return list(groups.values())


def run(model: Baseline, seeds: Sequence[int], parts: Mapping[str, Split], *, device: str = "cpu") -> Iterator[Result]:
    """Fit a model with some seeds, and score the splits valid and test.

    Args:
        model: to fit.
        seeds: one fit for each.
        parts: the splits of a cohort.
        device: of torch, for models that use it.

    Yields:
        One result per seed. The time of a joint fit is divided equally among its seeds. Processor time does not depend
        on the load of the machine.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"visit_id": range(60), "codes": [["C78.0"], ["E11.9"]] * 30, "died": [1, 0] * 30})
    >>> from mlci.cohort import Cohort
    >>> [charlson], splits = choose(["charlson"]), parts(Cohort.from_frame(visits, icd_version=10))
    >>> [result] = run(charlson, [0], splits)
    >>> sorted(set(result.scores["test"].tolist()))  # points of diabetes, and of a metastasis
    [1.0, 6.0]
    """
    start = _clocks()
    splits, fits = (parts["train"], parts["valid"]), [None] * len(seeds)
    if isinstance(model, Learned):
        fits = model.fits(*splits, seeds=seeds, device=device)
        states = [fit.state for fit in fits]
    else:
        states = [model.fit(*splits, seed=seed, device=device) for seed in seeds]
    fitting = (_clocks() - start) / len(seeds)
    for state, fit in zip(states, fits):
        start = _clocks()
        scores = {name: model.score(state, parts[name]) for name in ("valid", "test")}
        wall, processor = (fitting + _clocks() - start).tolist()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
        cost = {"fit_seconds": float(fitting[0]), "seconds": wall, "cpu_seconds": processor}
        yield Result(state, scores, {**cost, "device": device, "process_peak_mb": peak}, fit)


def _clocks() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


def save(path: str | Path, model: Baseline, state: State) -> None:
    """Write a fitted model: its arrays and, in the header, its name and hyperparameters.

    Args:
        path: the file.
        model: the model.
        state: the result of its `fit`.

    >>> from tempfile import TemporaryDirectory
    >>> [model] = choose(["charlson"])
    >>> with TemporaryDirectory() as folder:
    ...     save(Path(folder, "model.safetensors"), model, {"mean": np.zeros(2), "scale": np.ones(2)})
    ...     load(Path(folder, "model.safetensors"))[0].name
    'charlson'
    """
    write_tensors(path, state, key="model", facts=asdict(model))


def _tuples(values: dict) -> dict:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def load(path: str | Path) -> tuple[Baseline, State]:
    """Read a fitted model that `mlci benchmark` wrote, either as an index or as plain arrays.

    Args:
        path: `model.safetensors` of a run.

    Returns:
        The model with the hyperparameters of its fit, and its state.

    >>> from tempfile import TemporaryDirectory
    >>> [model] = choose(["knn"])
    >>> with TemporaryDirectory() as folder:
    ...     save(Path(folder, "model.safetensors"), model, {"scale": np.ones(2)})
    ...     load(Path(folder, "model.safetensors"))[1]
    {'scale': array([1., 1.])}
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            kept = (
                json.loads(facts["mlci"])["facts"]["card"]["baseline"]
                if "mlci" in facts
                else json.loads(facts["model"])
            )
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: is not a model file written by `mlci benchmark`.") from error
    return type(choose([kept["name"]])[0])(**_tuples(kept)), state
