"""The constants of a fit, as frozen dataclasses, one for each recipe: `PaperConfig`, `DeepConfig` and `TableConfig`.

A TOML file may change any of them.

Needs the standard library alone; `read_config` checks a file with pydantic, and an unknown key is an error.
"""

import inspect
import json
import re
import reprlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, Self, get_args, get_origin

from mlci.base.complaints import complaint
from mlci.base.errors import InputError
from mlci.base.names import FORMER_RECIPES
from mlci.base.outdated import outdated


def _within(default: Any, low: float, high: float = float("inf")) -> Any:
    """Return a number with a default and the closed range that it must lie in; None is left to the field's type."""
    return field(default=default, metadata={"range": (low, high)})


class Section:
    __pydantic_config__ = {"extra": "forbid", "strict": True}

    def __post_init__(self) -> None:
        for key in fields(self):  # pyright: ignore[reportArgumentType]
            value, choices = getattr(self, key.name), get_args(key.type)
            if get_origin(key.type) is Literal and value not in choices:
                raise InputError(f"{key.name} is {reprlib.repr(value)}; allowed is {', '.join(map(repr, choices))}.")
            low, high = key.metadata.get("range", (None, None))
            numbers = value if isinstance(value, tuple) else (value,)
            if low is not None and not (numbers and all(number is None or low <= number <= high for number in numbers)):
                allowed = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
                raise InputError(f"{key.name} is {reprlib.repr(value)}; allowed is {allowed}.")


@dataclass(frozen=True)
class TokenConfig(Section):
    """How codes become tokens."""

    depths: tuple[int, ...] = _within((4,), 1, 16)  # a code gives its prefix of each depth; the paper's k = 4
    max_codes: int = _within(256, 1, 100_000)  # the paper's D_max: the first so many codes of an admission count
    min_admissions: int = _within(1, 1)  # rarer tokens stay out of the vocabulary (and of the model file)
    without_outcome_codes: bool = False  # ignore codes that tell the outcome, such as cardiac arrest
    primary: bool = False  # the first code is the principal diagnosis and counts as such: its place matters
    number_of_codes: bool = False  # how many codes an admission has counts as a token: it depends on coding habits
    poa: Literal["all", "only"] = "all"  # codes that count: all, or only those present on admission

    def settled(self, admissions: int) -> Self:
        """Return the settings with what depends on the number of training `admissions` decided.

        >>> DeepTokenConfig().settled(1000).min_admissions, DeepTokenConfig().settled(50_000).min_admissions
        (3, 10)
        """
        return self

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.depths)) < len(self.depths):
            raise InputError(f"depths names {len(self.depths)} depths and {len(set(self.depths))} of them differ.")


@dataclass(frozen=True)
class EncoderConfig(Section):
    """Which set encoder; `pooling` and depths are for deepsets, which alone scores without torch."""

    name: Literal["deepsets", "bag_mlp", "attention_mil", "deep_cross", "star_gat", "set_transformer"] = "deepsets"
    width: int = _within(128, 1)
    pooling: str = "mean+max"  # mean, max, sum, attention, gated, or several of them joined by +
    phi_layers: int = _within(2, 1, 16)  # of a token's network
    rho_layers: int = _within(2, 0, 16)  # hidden ones of the score's network; a linear one follows

    POOLINGS: ClassVar = ("mean", "max", "sum", "attention", "gated")

    def __post_init__(self) -> None:
        super().__post_init__()
        said = self.pooling.split("+")
        if not set(said) <= set(self.POOLINGS) or len(set(said)) < len(said):
            allowed = ", ".join(self.POOLINGS)
            raise InputError(f"pooling is {reprlib.repr(self.pooling)}; allowed is {allowed}, each once, joined by +.")
        if self.name == "set_transformer" and self.width % 4:
            raise InputError(f"width is {self.width}; a set_transformer has four heads and needs a multiple of 4.")

    @property
    def usual(self) -> bool:
        """Whether phi and rho are as deep as the paper's, for which the fast ways to train are written out."""
        return (self.phi_layers, self.rho_layers) == (2, 2)


@dataclass(frozen=True)
class ObjectiveConfig(Section):
    """What a fit maximises (alignment) or minimises (bce)."""

    kind: Literal["alignment", "bce"] = "alignment"
    kernel: Literal["rbf", "multi-rbf", "energy"] = "rbf"
    factors: tuple[float, ...] = _within((0.25, 0.5, 1.0, 2.0, 4.0), 1e-3, 1e3)  # widths of multi-rbf, in sigmas
    floor: float = _within(1e-4, 0)  # of the centred score Gram matrix's norm
    least_rows: int = _within(3, 2)  # that must count in a batch, else its value is 0
    validity: Literal["intersection", "outcome"] = "intersection"  # rows with every outcome, or with the one at hand

    @property
    def widths(self) -> tuple[float, ...]:
        """Of the kernel's parts, in sigmas; none where it has no width."""
        return {"rbf": (1.0,), "multi-rbf": self.factors, "energy": ()}[self.kernel]


@dataclass(frozen=True)
class BandwidthConfig(Section):
    """The kernel's sigma: median absolute difference of the fresh model's training scores."""

    standardise: bool = True
    subsample: int | None = _within(20_000, 10)
    seed: int = _within(12_345, 0)
    floor: float = _within(0.05, 0)


@dataclass(frozen=True)
class OptimiserConfig(Section):
    """AdamW, and how long."""

    learning_rate: float = _within(1e-3, 0)
    weight_decay: float = _within(0.0, 0)
    betas: tuple[float, float] = _within((0.9, 0.999), 0, 0.999999)  # of the mean and of the square
    batch: int = _within(256, 3)
    stage1_epochs: int = _within(10, 1)
    stage2_epochs: int = _within(10, 1)


@dataclass(frozen=True)
class SelectionConfig(Section):
    """Which epoch of a fit is kept, judged on the validation split."""

    anchor: str = "mortality"
    stage1: Literal["anchor", "own"] = "anchor"  # which outcome judges a Stage-1 fit
    subsample: int | None = _within(20_000, 10)  # validation admissions that judge, at most, as in the paper; None: all
    seed: int = _within(12_345, 0)
    improvement: float = _within(1e-12, 0)


@dataclass(frozen=True)
class WeightConfig(Section):
    """Stage-2 weights: weak outcomes count more."""

    epsilon: float = _within(0.02, 1e-12)
    gamma: float = _within(0.25, 0)
    clip: float = _within(3.0, 1)
    inactive: Literal["refuse", "omit"] = "refuse"  # an outcome without both classes in the training split


@dataclass(frozen=True)
class PaperConfig(Section):
    """Everything that a fit depends on besides data and seed."""

    tokens: TokenConfig = TokenConfig()
    encoder: EncoderConfig = EncoderConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    bandwidth: BandwidthConfig = BandwidthConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    selection: SelectionConfig = SelectionConfig()
    weights: WeightConfig = WeightConfig()

    extra: ClassVar = "deep"  # the optional libraries that it needs

    def anchored(self, name: str) -> Self:
        """Return the config with the outcome `name` in place of the one that orients the score.

        >>> PaperConfig().anchored("long_stay").selection.anchor
        'long_stay'
        """
        return replace(self, selection=replace(self.selection, anchor=name))


@dataclass(frozen=True)
class DeepTokenConfig(TokenConfig):
    """Category, prefix and full code are a token each, so that an unseen code keeps its known ancestors."""

    depths: tuple[int, ...] = _within((3, 4, 8), 1, 16)
    min_admissions: int | None = _within(None, 1)  # None: 10 where many train, 3 where few, who would lose most codes

    MANY: ClassVar = 20_000

    def settled(self, admissions: int) -> Self:
        if self.min_admissions is not None:
            return self
        return replace(self, min_admissions=10 if admissions >= self.MANY else 3)


@dataclass(frozen=True)
class LearningConfig(Section):
    """How a set encoder is learned: AdamW with a one-cycle learning rate, every epoch used."""

    epochs: int = _within(5, 1)
    batch: int = _within(512, 1)
    steps: int = _within(64, 1)  # of an epoch at least: few admissions come in smaller batches
    learning_rate: float = _within(2e-3, 0)  # at the cycle's top
    weight_decay: float = _within(0.01, 0)
    dropout: float = _within(0.2, 0, 0.9)  # of hidden units
    token_dropout: float = _within(0.1, 0, 0.9)  # of an admission's tokens
    spread: float = _within(0.3, 1e-6)  # SD of the initial embeddings


@dataclass(frozen=True)
class PosteriorConfig(LearningConfig):
    """The ensemble that learns each outcome's risk; each member sees the training split without its own fold."""

    members: int = _within(5, 2)


@dataclass(frozen=True)
class CollapseConfig(Section):
    """How the risks of all outcomes become one score."""

    method: Literal["alignment", "sum"] = "alignment"  # sum: the weighted sum of the logits, nothing learned
    objective: Literal["balanced", "energy", "rbf"] = "balanced"  # the kernel (balanced: energy) and PRESETS
    observed: float | None = _within(None, 0, 1)  # share of the outcome itself beside its risk
    balance: float | None = _within(None, 0, 1)  # outcomes count by their variance to this power: the common ones more
    weights: Literal["equal", "two-stage"] = "equal"
    importance: dict[str, float] = field(default_factory=dict)  # outcome -> factor on its weight, e.g. mortality = 2.0
    width: int = _within(64, 1)
    epochs: int = _within(25, 1)
    batch: int = _within(8192, 64)
    learning_rate: float = _within(5e-3, 0)

    PRESETS: ClassVar = {  # what is None
        "balanced": {"observed": 0.3, "balance": 0.4},
        "energy": {"observed": 1.0, "balance": 0.0},
        "rbf": {"observed": 0.3, "balance": 0.0},
    }

    def preset(self, name: Literal["observed", "balance"]) -> float:
        """Return the setting `name`; where it is None, that of the objective.

        >>> CollapseConfig(objective="energy").preset("observed")
        1.0
        """
        value = getattr(self, name)
        return self.PRESETS[self.objective][name] if value is None else value


@dataclass(frozen=True)
class SpacingConfig(Section):
    """The best monotone spacing of the collapsed score, with about so many steps; 0: as it is."""

    cuts: int = _within(0, 0)


@dataclass(frozen=True)
class DistilConfig(LearningConfig):
    """How the one encoder of the model file learns the score from codes, by regression."""

    epochs: int = _within(4, 1)
    steps: int = _within(128, 1)
    dropout: float = _within(0.0, 0, 0.9)
    token_dropout: float = _within(0.0, 0, 0.9)
    source: Literal["ensemble", "out-of-fold"] = "ensemble"  # which risks of the training admissions it regresses on


@dataclass(frozen=True)
class HeadsConfig(Section):
    """How the encoder of the model file, which stays as it is, learns to tell the ensemble's risk of each outcome."""

    epochs: int = _within(2, 1)
    batch: int = _within(512, 1)
    steps: int = _within(64, 1)  # of an epoch at least
    learning_rate: float = _within(2e-2, 0)  # at the cycle's top
    weight_decay: float = _within(0.01, 0)


@dataclass(frozen=True)
class AnchorConfig(Section):
    """The outcome that a larger score must mean more of."""

    anchor: str = "mortality"


@dataclass(frozen=True)
class DeepConfig(Section):
    """Everything that a fit of the `deep` recipe depends on besides data and seed."""

    tokens: DeepTokenConfig = DeepTokenConfig()
    encoder: EncoderConfig = EncoderConfig()
    posterior: PosteriorConfig = PosteriorConfig()
    collapse: CollapseConfig = CollapseConfig()
    spacing: SpacingConfig = SpacingConfig()
    distil: DistilConfig = DistilConfig()
    heads: HeadsConfig = HeadsConfig()
    selection: AnchorConfig = AnchorConfig()

    extra: ClassVar = "deep"  # the optional libraries that it needs

    def anchored(self, name: str) -> Self:
        """Return the config with the outcome `name` in place of the one that orients the score.

        >>> DeepConfig().anchored("long_stay").selection.anchor
        'long_stay'
        """
        return replace(self, selection=replace(self.selection, anchor=name))


@dataclass(frozen=True)
class TableTokenConfig(TokenConfig):
    """Category, prefix and full code; every token of the training split, as shrinkage takes care of rare ones."""

    depths: tuple[int, ...] = _within((3, 4, 8), 1)


@dataclass(frozen=True)
class PenaltyConfig(Section):
    """How far a token's weights may spread: the variance of their common part and of each outcome's own part.

    None: chosen by cross-validation within the training split. `folds` also says how many regressions, each without
    one fold, give the log-odds that curves and risks are fitted on. `firm` takes, of what lies within a standard error
    (from fold to fold) of the best, the least variance of an outcome's own part, which mostly travels better to
    hospitals unlike those of training.
    """

    common: float | None = _within(None, 0)
    own: float | None = _within(None, 1e-9)
    folds: int = _within(5, 2)
    firm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.common is None) != (self.own is None):
            raise InputError("common and own are given both, or neither; one of them is missing.")
        if self.firm and self.common is not None:
            raise InputError("firm chooses among variances, and common and own give them; leave either out.")


@dataclass(frozen=True)
class CurveConfig(Section):
    """How the log-odds of all outcomes become one score: a rising curve of each, summed."""

    points: int = _within(12, 3)
    observed: float = _within(0.3, 0, 1)  # share of the outcome itself, beside its risk, in what the score aligns with
    balance: float = _within(0.3, 0, 1)  # outcomes count by their variance to this power: the common ones more
    importance: dict[str, float] = field(default_factory=dict)  # outcome -> factor on its weight, e.g. mortality = 2.0
    straight: float = _within(0.0, 0, 1)  # share of the score that is the plain mean of log-odds, rising everywhere


@dataclass(frozen=True)
class PeopleConfig(Section):
    """What counts in the risks beside codes; the score stays codes alone."""

    age: bool = False  # in bands of ten years
    sex: bool = False


@dataclass(frozen=True)
class TableConfig(Section):
    """Everything that a fit of the `table` recipe depends on besides data and seed."""

    tokens: TableTokenConfig = TableTokenConfig()
    penalty: PenaltyConfig = PenaltyConfig()
    curve: CurveConfig = CurveConfig()
    people: PeopleConfig = PeopleConfig()
    copies: bool = False  # learn from shortened forms of each admission too, for short lists and cut codes elsewhere

    extra: ClassVar = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.copies and (self.tokens.primary or self.tokens.number_of_codes):
            raise InputError(
                "copies do not go together with tokens.primary or tokens.number_of_codes: a copy has other codes."
            )

    def anchored(self, name: str) -> NoReturn:
        """Raise an `InputError`, whatever the `name`: this recipe has no anchor.

        >>> TableConfig().anchored("long_stay")
        Traceback (most recent call last):
        mlci.base.errors.InputError: the recipe table needs no anchor: its score rises with the risk of every outcome.
        """
        raise InputError("the recipe table needs no anchor: its score rises with the risk of every outcome.")


# A recipe is a row here and the module of its name in `mlci.fitting`, whose `fit_splits` makes a fit.
RECIPES = {"table": TableConfig, "deep": DeepConfig, "paper": PaperConfig}


def current_recipe(name: str) -> str:
    """Return the name that a recipe has today, with a warning where `name` is a former one.

    >>> current_recipe("table")
    'table'
    """
    if name in FORMER_RECIPES:
        outdated(f"the recipe name {name}", f"it is now called {FORMER_RECIPES[name]}", stacklevel=3)
    return FORMER_RECIPES.get(name, name)


def config_from(values: dict[str, Any], *, recipe: str = "paper", where: str = "config") -> Any:
    """Make the config of a recipe.

    Args:
        values: sections by name, each its settings by name; what is absent keeps its default.
        recipe: table, deep or paper.
        where: what a message calls the values.

    Returns:
        The config; a value that is unknown or out of range is an `InputError`.

    >>> config_from({"encoder": {"width": 64}}, recipe="paper").encoder.width
    64
    """
    from pydantic import TypeAdapter, ValidationError

    kind = RECIPES[recipe]
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values))
    except ValidationError as error:
        said = complaint(error.errors(include_url=False), whole="the file", allowed=partial(_keys, kind()), repeat=True)
        raise InputError(f"{where}: {said}.") from None


def _keys(section: Any, path: Sequence[str]) -> list[str]:
    """Return the keys of the section of a config that this path leads to."""
    for part in path:
        section = getattr(section, part)
    return [key.name for key in fields(section)]


def read_config(path: str | Path, *, recipe: str = "paper") -> Any:
    """Read a TOML file whose sections are those of a recipe's config.

    Args:
        path: the file.
        recipe: table, deep or paper.

    Returns:
        The config; what the file does not name keeps its default.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "own.toml").write_text("[penalty]\\nfolds = 3")
    ...     read_config(Path(folder, "own.toml"), recipe="table").penalty.folds
    3
    """
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}.") from None
    return config_from(values, recipe=recipe, where=str(path))


def toml_of(config: Any) -> str:
    """Return a recipe's `config` as TOML with comments, to be edited and given back to `read_config`.

    >>> print(toml_of(PaperConfig()).split("[encoder]")[0].splitlines()[1])
    depths = [4]  # a code gives its prefix of each depth; the paper's k = 4
    """
    plain = [key for key in fields(config) if not isinstance(getattr(config, key.name), Section)]
    lines = ["", *_lines(config, plain)]
    for section in fields(config):
        content = getattr(config, section.name)
        if isinstance(content, Section):
            said = (type(content).__doc__ or "").strip().splitlines()
            lines += ["", f"[{section.name}]" + (f"  # {said[0]}" if said else ""), *_lines(content, fields(content))]  # pyright: ignore
    return "\n".join(lines).strip()


def _lines(content: Any, keys: Any) -> list[str]:
    """Return each constant with its comment; one that is None has no way to be written and is commented out."""
    notes, lines = _notes(type(content)), []
    for key in keys:
        value = _toml(getattr(content, key.name))
        note = f"  # {notes[key.name]}" if key.name in notes else ""
        lines.append(f"# {key.name} = ...{note}" if value is None else f"{key.name} = {value}{note}")
    return lines


def _notes(kind: type) -> dict[str, str]:
    """Return the comment behind each constant, in the class that says it and those above it."""
    found: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if issubclass(base, Section)]):
        for line in inspect.getsource(base).splitlines():
            if match := re.match(r"    (\w+): [^#]*#\s*(.+)", line):
                found[match[1]] = match[2]
    return found


def _toml(value: Any) -> str | None:
    """Return a value as TOML writes it; None has no way to be written."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(str(_toml(item)) for item in value)}]"
    return None if value is None else json.dumps(value)
