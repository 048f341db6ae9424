"""Small synthetic cohorts and models with random weights, for tests of something else."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_info

from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.streams import stream_rows
from mlci.cohort import Cohort
from mlci.config import EncoderConfig, PaperConfig
from mlci.index.estimator import MLCI
from mlci.index.model import Model
from mlci.judging.curves import isotonic
from mlci.judging.kept import Cutoff, Isotonic
from mlci.tokens import Vocabulary

CODES = [f"{letter}{number:02d}{last}" for letter in "ABCDEIJKN" for number in range(8) for last in range(3)]

HOSPITAL_SIZES = {"A": 900, "B": 700, "C": 800, "D": 60, "E": 1000, "F": 600}  # admissions of each hospital


def as_tuples(batches) -> list[tuple]:
    """Return (id, (code, version), ...) of each admission, by the slow and obvious way."""
    batches = [batches] if isinstance(batches, Admissions) else batches
    return [
        (
            part.ids[i],
            *((part.values[k], int(part.versions[k])) for k in part.indices[part.offsets[i] : part.offsets[i + 1]]),
        )
        for part in batches
        for i in range(len(part))
    ]


def streamed(path: str | Path, **options: object) -> Iterator[Admissions]:
    """Yield the admissions of a file in batches, without the other columns."""
    return (admissions for admissions, _ in stream_rows(path, **options))


def random_state(
    vocabulary_size: int, *, width: int = 16, pools: int = 2, seed: int = 0, pooling: str = "mean+max"
) -> dict[str, np.ndarray]:
    """Return the weights of an untrained encoder, scaled so that scores differ."""
    rng = np.random.default_rng(seed)
    shapes = {
        "embedding.weight": (vocabulary_size, width),
        **{
            f"phi.{layer}.{part}": (width, width)[: 2 - (part == "bias")]
            for layer in (0, 2)
            for part in ("weight", "bias")
        },
        "norm.weight": (pools * width,),
        "norm.bias": (pools * width,),
        "rho.0.weight": (width, pools * width),
        "rho.0.bias": (width,),
        "rho.2.weight": (width, width),
        "rho.2.bias": (width,),
        "rho.4.weight": (1, width),
        "rho.4.bias": (1,),
    }
    if "attention" in pooling:
        shapes |= {"query": (width,)}
    if "gated" in pooling:
        shapes |= {"gate.0.weight": (width, width), "gate.0.bias": (width,), "gate.2.weight": (1, width)}
        shapes |= {"gate.2.bias": (1,)}
    return {name: rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def random_model(*, seed: int = 0, version: int = 10, max_codes: int = 256, width: int = 16) -> Model:
    config = asdict(PaperConfig(encoder=EncoderConfig(width=width)))
    knots = np.linspace(-1, 1, 40)
    return Model(
        state=random_state(len(CODES) + 2, width=width, seed=seed),
        vocabulary=Vocabulary(tuple(CODES), (version,) * len(CODES), (4,), max_codes),
        icd_versions=(version,),
        outcomes={"mortality": "died", "long stay": "more than 7 days"},
        quantiles=np.linspace(-1, 1, 1001),
        curves={"mortality": Isotonic(knots, knots**2 * (knots > 0)), "long stay": Isotonic(knots, (knots + 1) / 2)},
        cutoff=Cutoff(0.1, 0.5, 20, 100, ()),
        card={"recipe": "paper", "seed": seed, "config": config},
    )


def random_index(cohort: Cohort, *, seed: int = 0, table: bool = False) -> MLCI:
    """Return an index with random weights for the codes of the cohort's training split.

    Its quantiles, risk curves and cutoff are computed from the scores of that split.
    """
    train = cohort.split("train")
    admissions, outcomes = train.admissions(), list(cohort.outcomes)
    vocabulary = Vocabulary.fit(admissions, depths=(3, 4) if table else (4,))
    state, config = random_state(len(vocabulary), seed=seed), asdict(PaperConfig(encoder=EncoderConfig(width=16)))
    if table:
        rng, n = np.random.default_rng(seed), len(outcomes)
        weights = rng.gamma(1, 0.4, (len(vocabulary), 1)) + rng.normal(0, 0.2, (len(vocabulary), n))
        config, knots = {}, np.tile(np.linspace(-3, 6, 12), (n, 1))
        state = {"weights": weights, "intercepts": np.full(n, -4.0), "calibration": np.tile([0.0, 0.5], (n, 1))}
        state |= {"knots": knots, "heights": 0.2 * knots + 0.05 * np.maximum(knots, 0)}
    card = {"recipe": "table" if table else "paper", "seed": seed, "config": config, "source": cohort.source}
    card |= {"weights": dict(zip(outcomes, np.linspace(0.5, 1.5, len(outcomes)).tolist()))}
    card |= {"admissions": {part: len(cohort.split(part)) for part in ("train", "valid")}}
    index = MLCI()
    index.model_ = Model(
        state=state,
        vocabulary=vocabulary,
        icd_versions=tuple(np.unique(admissions.versions[admissions.indices]).tolist()),
        outcomes=dict(cohort.outcomes),
        quantiles=np.linspace(-1, 1, 1001),
        curves={},
        cutoff=Cutoff(0.1, 0.5, 20, 100, ()),
        card=card,
    )
    score, labels = index.model_.score(admissions), train.labels()
    known = {name: ~np.isnan(y) for name, y in zip(outcomes, labels.T)}
    index.model_ = replace(
        index.model_,
        quantiles=np.quantile(score, np.linspace(0, 1, 1001)),
        curves={name: isotonic(score[known[name]], y[known[name]]) for name, y in zip(outcomes, labels.T)},
        cutoff=replace(index.model_.cutoff, score=float(np.quantile(score, 0.8))),
    )
    return index


NESTED_CODES = sorted(
    {code[:3] for code in CODES} | set(CODES) | {code + more for code in CODES[::2] for more in ("1", "2X4A")}
)


def random_table(
    *, seed: int = 0, version: int = 10, max_codes: int = 256, primary: bool = False, ignored: tuple[str, ...] = ()
) -> Model:
    """Return a table model with random weights; the number of training admissions of some tokens is below 10."""
    rng, outcomes = np.random.default_rng(seed), {"mortality": "died", "long stay": "more than 7 days"}
    tokens = sorted(NESTED_CODES + ([f">{code}" for code in NESTED_CODES[::3]] if primary else []))
    support = rng.choice([0, 10, 50, 1000], len(tokens), p=[0.3, 0.3, 0.3, 0.1])
    for i, token in enumerate(tokens):  # a prefix has at least the admissions of its codes, which follow it in order
        support[i] = support[i : bisect_left(tokens, f"{token}~")].max()
    points, knots = np.linspace(-1, 1, 40), np.sort(rng.normal(0, 2, (2, 12)), axis=1)
    table = Model(
        state={
            "weights": np.concatenate([np.zeros((2, 2)), rng.normal(0, 0.5, (len(tokens), 2))]),
            "intercepts": rng.normal(-2, 0.3, 2),
            "calibration": np.array([[0.1, 0.9], [-0.2, 1.1]]),
            "knots": knots,
            "heights": np.cumsum(rng.gamma(1, 0.1, (2, 12)), axis=1) - 0.5,
        },
        vocabulary=Vocabulary(
            tuple(tokens), (version,) * len(tokens), (3, 4, 8), max_codes, ignored, primary, tuple(support.tolist())
        ),
        icd_versions=(version,),
        outcomes=outcomes,
        quantiles=np.linspace(-1, 1, 1001),
        curves={name: Isotonic(points, (points + 1) / 2) for name in outcomes},
        cutoff=Cutoff(0.1, 0.5, 20, 100, ()),
        card={"recipe": "table", "seed": seed, "config": {}},
    )
    scores = table.score(as_admissions(nested_code_lists(400, seed=seed), icd_version=version))
    return replace(
        table, quantiles=np.quantile(scores, np.linspace(0, 1, 1001)), cutoff=replace(table.cutoff, score=0.2)
    )


def nested_code_lists(n: int, *, seed: int = 0, longest: int = 12) -> list[list[str]]:
    """Return code lists with shared prefixes; some codes, or all but their prefix, are not in the vocabulary."""
    rng = np.random.default_rng(seed)
    pool = np.array([*NESTED_CODES, "A019", "B0123", "C99", "ZZZ", "ZZZ1"], dtype=object)
    return [pool[(len(pool) * rng.random(rng.integers(0, longest + 1)) ** 2).astype(int)].tolist() for _ in range(n)]


def code_lists(n: int, *, seed: int = 0, longest: int = 12) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [rng.choice(CODES, rng.integers(0, longest + 1)).tolist() for _ in range(n)]


def toy_outcomes(codes: list[list[str]], *, seed: int = 0, names=("mortality", "long_stay")) -> dict[str, list]:
    """Return outcomes that are more likely with more, and with more severe, codes; a few are missing."""
    rng = np.random.default_rng(seed)
    weights = dict(zip(CODES, np.random.default_rng(7).gamma(1, 1, len(CODES))))
    severity = np.array([sum(weights[code] for code in each) for each in codes]) / 4
    result = {}
    for number, name in enumerate(names):
        happened = rng.random(len(codes)) < 1 / (1 + np.exp(2.5 - number % 3 - severity))
        missing = rng.random(len(codes)) < 0.03
        result[name] = [None if lost else bool(event) for event, lost in zip(happened, missing)]
    return result


def toy_cohort(n: int, *, seed: int = 0, names=("mortality", "long_stay")) -> Cohort:
    codes = code_lists(n, seed=seed)
    table = pa.table(
        {
            "admission_id": np.arange(n),
            "subject_id": np.arange(n) // 2,
            "icd_version": np.full(n, 10, dtype=np.int8),
            "codes": pa.array(codes, pa.list_(pa.string())),
            **{
                name: pa.array(values, pa.bool_())
                for name, values in toy_outcomes(codes, seed=seed, names=names).items()
            },
            "split": np.where(np.arange(n) % 10 < 7, "train", np.where(np.arange(n) % 10 < 8, "valid", "test")),
        }
    )
    return Cohort(table, "a made-up hospital", {name: f"rule of {name}" for name in names})


def six_hospitals(*, effect: float = 0.0, seed: int = 0, patients: int = 1) -> Cohort:
    """Return a cohort of six hospitals; B adds `effect` to the log-odds of death, and D is small."""
    rng = np.random.default_rng(seed)
    name = np.repeat([*HOSPITAL_SIZES], [*HOSPITAL_SIZES.values()])
    n = len(name)
    severity = rng.normal(0, 1, n) + 0.5 * (name == "C")
    died = rng.random(n) < 1 / (1 + np.exp(2.2 - severity - effect * (name == "B")))
    frame = pd.DataFrame({"visit_id": np.arange(n), "subject_id": np.arange(n) // patients, "died": died * 1})
    frame["codes"] = [["I50.9"]] * n
    options = {"icd_version": 10, "outcomes": {"mortality": "died"}, "subject": "subject_id"}
    keep = {"hospital": name, "severity": severity, "age": rng.uniform(20, 90, n), "weight": rng.uniform(1, 5, n)}
    return Cohort.from_frame(frame.assign(**keep), keep=list(keep), **options)


def record_blas_threads(monkeypatch, module, name: str) -> list[int]:
    """Return a list to which each call of a module's function adds the number of threads that BLAS may use."""
    seen, function = [], getattr(module, name)

    def spy(*arguments, **options):
        seen.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, spy)
    return seen
