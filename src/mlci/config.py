"""The settings of a fit, as one frozen dataclass per recipe: `PaperConfig`, `DeepConfig` and `TableConfig`.

A TOML file may change any setting: `read_config` reads it and checks it with pydantic; an unknown key is an error. The
module itself needs the standard library alone. The comment behind a setting is part of the output of `toml_of`.
"""

import inspect
import json
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, Self, get_args, get_origin

from mlci.base.complaints import complaint
from mlci.base.errors import InputError
from mlci.base.names import FORMER_RECIPES
from mlci.base.outdated import outdated
from mlci.base.toml import read_toml, toml_line


def _within(default: Any, low: float, high: float = float("inf")) -> Any:
    """Return a dataclass field for a number: its default and the closed range of allowed values; None always passes."""
    return field(default=default, metadata={"range": (low, high)})


class Section:
    """A group of settings; checks choices and ranges when it is made."""

    __pydantic_config__ = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

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
    max_codes: int = _within(256, 1, 100_000)  # only the first so many codes count; the paper's D_max
    min_admissions: int = _within(1, 1)  # tokens in fewer training admissions stay out of the vocabulary and model file
    without_outcome_codes: bool = False  # ignore codes that reveal the outcome, such as cardiac arrest
    primary: bool = False  # the first code is the principal diagnosis and gives tokens of its own
    number_of_codes: bool = False  # the number of codes gives a token too; it depends on coding habits
    poa: Literal["all", "only"] = "all"  # codes that count: all, or only those present on admission

    def settled(self, admissions: int) -> Self:
        """Return the settings, with those decided that depend on the number of training `admissions`.

        >>> DeepTokenConfig().settled(1000).min_admissions, DeepTokenConfig().settled(50_000).min_admissions
        (3, 10)
        """
        return self

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.depths)) < len(self.depths):
            distinct = len(set(self.depths))
            raise InputError(f"depths has {len(self.depths)} values, {distinct} of them distinct; each may occur once.")


@dataclass(frozen=True)
class EncoderConfig(Section):
    """Which set encoder; `pooling` and layers are for deepsets, the only encoder that scores without torch."""

    name: Literal["deepsets", "bag_mlp", "attention_mil", "deep_cross", "star_gat", "set_transformer"] = "deepsets"
    width: int = _within(128, 1)
    pooling: str = "mean+max"  # mean, max, sum, attention, gated, or several of them joined by +
    phi_layers: int = _within(2, 1, 16)  # layers of the network applied to each token
    rho_layers: int = _within(2, 0, 16)  # hidden layers of the network that gives the score; a linear layer follows

    POOLINGS: ClassVar = ("mean", "max", "sum", "attention", "gated")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.pooling.split("+")
        if not set(names) <= set(self.POOLINGS) or len(set(names)) < len(names):
            allowed = ", ".join(self.POOLINGS)
            raise InputError(f"pooling is {reprlib.repr(self.pooling)}; allowed is {allowed}, each once, joined by +.")
        if self.name == "set_transformer" and self.width % 4:
            raise InputError(f"width is {self.width}; a set_transformer has four heads and needs a multiple of 4.")

    @property
    def usual(self) -> bool:
        """Whether phi and rho are as deep as in the paper; only these depths have the fast training engines."""
        return (self.phi_layers, self.rho_layers) == (2, 2)


@dataclass(frozen=True)
class ObjectiveConfig(Section):
    """What a fit maximises (alignment) or minimises (bce)."""

    kind: Literal["alignment", "bce"] = "alignment"
    kernel: Literal["rbf", "multi-rbf", "energy"] = "rbf"
    factors: tuple[float, ...] = _within((0.25, 0.5, 1.0, 2.0, 4.0), 1e-3, 1e3)  # widths of multi-rbf, in sigmas
    floor: float = _within(1e-4, 0)  # least norm of the centred score Gram matrix
    least_rows: int = _within(3, 2)  # a batch with fewer valid rows has the value 0
    validity: Literal["intersection", "outcome"] = "intersection"  # valid rows: all outcomes known, or this one

    @property
    def widths(self) -> tuple[float, ...]:
        """The widths of the kernel's parts, in sigmas; empty for a kernel without a width."""
        return {"rbf": (1.0,), "multi-rbf": self.factors, "energy": ()}[self.kernel]


@dataclass(frozen=True)
class BandwidthConfig(Section):
    """The kernel's sigma: the median absolute difference of the untrained model's scores on the training split."""

    standardise: bool = True
    subsample: int | None = _within(20_000, 10)
    seed: int = _within(12_345, 0)
    floor: float = _within(0.05, 0)


@dataclass(frozen=True)
class OptimiserConfig(Section):
    """AdamW and the number of epochs."""

    learning_rate: float = _within(1e-3, 0)
    weight_decay: float = _within(0.0, 0)
    betas: tuple[float, float] = _within((0.9, 0.999), 0, 0.999999)  # decay of the gradient's mean and mean square
    batch: int = _within(256, 3)
    stage1_epochs: int = _within(10, 1)
    stage2_epochs: int = _within(10, 1)


@dataclass(frozen=True)
class SelectionConfig(Section):
    """Which epoch of a fit is kept, judged on the validation split."""

    anchor: str = "mortality"
    stage1: Literal["anchor", "own"] = "anchor"  # the outcome that a Stage-1 fit is judged by
    subsample: int | None = _within(20_000, 10)  # judge by at most so many admissions, as the paper does; None: all
    seed: int = _within(12_345, 0)
    improvement: float = _within(1e-12, 0)


@dataclass(frozen=True)
class WeightConfig(Section):
    """Stage-2 weights: outcomes with a weak alignment count more."""

    epsilon: float = _within(0.02, 1e-12)
    gamma: float = _within(0.25, 0)
    clip: float = _within(3.0, 1)
    inactive: Literal["refuse", "omit"] = "refuse"  # an outcome with one class only in the training split


@dataclass(frozen=True)
class PaperConfig(Section):
    """All settings of a fit of the `paper` recipe; with data and seed they determine it."""

    tokens: TokenConfig = TokenConfig()
    encoder: EncoderConfig = EncoderConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    bandwidth: BandwidthConfig = BandwidthConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    selection: SelectionConfig = SelectionConfig()
    weights: WeightConfig = WeightConfig()

    extra: ClassVar = "deep"  # the optional dependencies that the recipe needs

    def anchored(self, name: str) -> Self:
        """Return the config with the outcome `name` as the anchor, the outcome that orients the score.

        >>> PaperConfig().anchored("long_stay").selection.anchor
        'long_stay'
        """
        return replace(self, selection=replace(self.selection, anchor=name))


@dataclass(frozen=True)
class DeepTokenConfig(TokenConfig):
    """How codes become tokens: category, prefix and full code, so that an unseen code keeps its known prefixes."""

    depths: tuple[int, ...] = _within((3, 4, 8), 1, 16)
    min_admissions: int | None = _within(None, 1)  # None: 10, or 3 with under 20,000 training admissions

    MANY: ClassVar = 20_000  # with fewer training admissions, a minimum of 10 would drop most codes

    def settled(self, admissions: int) -> Self:
        if self.min_admissions is not None:
            return self
        return replace(self, min_admissions=10 if admissions >= self.MANY else 3)


@dataclass(frozen=True)
class LearningConfig(Section):
    """How a set encoder is learned: AdamW with a one-cycle learning rate; the last epoch is kept."""

    epochs: int = _within(5, 1)
    batch: int = _within(512, 1)
    steps: int = _within(64, 1)  # least number of steps per epoch: with few admissions, batches are smaller
    learning_rate: float = _within(2e-3, 0)  # the peak of the cycle
    weight_decay: float = _within(0.01, 0)
    dropout: float = _within(0.2, 0, 0.9)  # share of hidden units
    token_dropout: float = _within(0.1, 0, 0.9)  # share of an admission's tokens
    spread: float = _within(0.3, 1e-6)  # SD of the initial embeddings


@dataclass(frozen=True)
class PosteriorConfig(LearningConfig):
    """The ensemble that learns the risk of each outcome; each member trains without one fold of the training split."""

    members: int = _within(5, 2)


@dataclass(frozen=True)
class CollapseConfig(Section):
    """How the risks of all outcomes become one score."""

    method: Literal["alignment", "sum"] = "alignment"  # sum: the weighted sum of the logits; nothing is learned
    objective: Literal["balanced", "energy", "rbf"] = "balanced"  # the kernel (balanced: energy) and PRESETS
    observed: float | None = _within(None, 0, 1)  # what the score aligns with: 0 the risk, 1 the outcome, or a mixture
    balance: float | None = _within(None, 0, 1)  # outcomes are weighted by their variance to this power; 0: equally
    weights: Literal["equal", "two-stage"] = "equal"
    importance: dict[str, float] = field(default_factory=dict)  # outcome -> factor on its weight, e.g. mortality = 2.0
    width: int = _within(64, 1)
    epochs: int = _within(25, 1)
    batch: int = _within(8192, 64)
    learning_rate: float = _within(5e-3, 0)

    PRESETS: ClassVar = {  # values for settings that are None
        "balanced": {"observed": 0.3, "balance": 0.4},
        "energy": {"observed": 1.0, "balance": 0.0},
        "rbf": {"observed": 0.3, "balance": 0.0},
    }

    def preset(self, name: Literal["observed", "balance"]) -> float:
        """Return the setting `name`; if it is None, the preset of the objective.

        >>> CollapseConfig(objective="energy").preset("observed")
        1.0
        """
        value = getattr(self, name)
        return self.PRESETS[self.objective][name] if value is None else value


@dataclass(frozen=True)
class SpacingConfig(Section):
    """The monotone transformation of the collapsed score with the best alignment, in about `cuts` steps; 0: none."""

    cuts: int = _within(0, 0)


@dataclass(frozen=True)
class DistilConfig(LearningConfig):
    """How the single encoder of the model file learns the score from codes, by regression."""

    epochs: int = _within(4, 1)
    steps: int = _within(128, 1)
    dropout: float = _within(0.0, 0, 0.9)
    token_dropout: float = _within(0.0, 0, 0.9)
    source: Literal["ensemble", "out-of-fold"] = "ensemble"  # the risks behind the training scores to learn


@dataclass(frozen=True)
class HeadsConfig(Section):
    """How a head for each outcome's risk is learned from the ensemble's risks; the encoder stays as it is."""

    epochs: int = _within(2, 1)
    batch: int = _within(512, 1)
    steps: int = _within(64, 1)  # least number of steps per epoch
    learning_rate: float = _within(2e-2, 0)  # the peak of the cycle
    weight_decay: float = _within(0.01, 0)


@dataclass(frozen=True)
class AnchorConfig(Section):
    """The outcome that orients the score: a larger score means that it is more likely."""

    anchor: str = "mortality"


@dataclass(frozen=True)
class DeepConfig(Section):
    """All settings of a fit of the `deep` recipe; with data and seed they determine it."""

    tokens: DeepTokenConfig = DeepTokenConfig()
    encoder: EncoderConfig = EncoderConfig()
    posterior: PosteriorConfig = PosteriorConfig()
    collapse: CollapseConfig = CollapseConfig()
    spacing: SpacingConfig = SpacingConfig()
    distil: DistilConfig = DistilConfig()
    heads: HeadsConfig = HeadsConfig()
    selection: AnchorConfig = AnchorConfig()

    extra: ClassVar = "deep"  # the optional dependencies that the recipe needs

    def anchored(self, name: str) -> Self:
        """Return the config with the outcome `name` as the anchor, the outcome that orients the score.

        >>> DeepConfig().anchored("long_stay").selection.anchor
        'long_stay'
        """
        return replace(self, selection=replace(self.selection, anchor=name))


@dataclass(frozen=True)
class TableTokenConfig(TokenConfig):
    """How codes become tokens: category, prefix and full code; rare tokens are kept, because weights are shrunk."""

    depths: tuple[int, ...] = _within((3, 4, 8), 1, 40)


@dataclass(frozen=True)
class PenaltyConfig(Section):
    """The prior variances of a token's weights: of the part common to all outcomes and of each outcome's own part.

    None: chosen by cross-validation within the training split. `folds` is also the number of regressions, each without
    one fold, whose log-odds the curves and risks are fitted on. With `firm`, among the variances within one standard
    error (over the folds) of the best, the least variance of an outcome's own part is chosen; this mostly transfers
    better to hospitals unlike those of training.
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
            raise InputError("firm chooses the variances, and common and own give them; leave out one or the other.")


@dataclass(frozen=True)
class CurveConfig(Section):
    """How the log-odds of all outcomes become one score: the sum of a rising curve of each."""

    points: int = _within(12, 3)
    observed: float = _within(0.3, 0, 1)  # what the score aligns with: 0 the risk, 1 the outcome, or a mixture
    balance: float = _within(0.3, 0, 1)  # outcomes are weighted by their variance to this power; 0: equally
    importance: dict[str, float] = field(default_factory=dict)  # outcome -> factor on its weight, e.g. mortality = 2.0
    straight: float = _within(0.0, 0, 1)  # share of the plain mean of log-odds in the score; it rises everywhere


@dataclass(frozen=True)
class PeopleConfig(Section):
    """What the risks depend on in addition to codes; the score depends on codes alone."""

    age: bool = False  # in bands of ten years
    sex: bool = False


@dataclass(frozen=True)
class TableConfig(Section):
    """All settings of a fit of the `table` recipe; with data and seed they determine it."""

    tokens: TableTokenConfig = TableTokenConfig()
    penalty: PenaltyConfig = PenaltyConfig()
    curve: CurveConfig = CurveConfig()
    people: PeopleConfig = PeopleConfig()
    copies: bool = False  # also learn from shortened copies of each admission, for data with fewer or shorter codes

    extra: ClassVar = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.copies and (self.tokens.primary or self.tokens.number_of_codes):
            raise InputError(
                "copies cannot be combined with tokens.primary or tokens.number_of_codes: a copy has other codes."
            )

    def anchored(self, name: str) -> NoReturn:
        """Raise an `InputError` for any `name`: this recipe has no anchor.

        >>> TableConfig().anchored("long_stay")
        Traceback (most recent call last):
        mlci.base.errors.InputError: the recipe table needs no anchor: its score rises with the risk of every outcome.
        """
        raise InputError("the recipe table needs no anchor: its score rises with the risk of every outcome.")


# Each recipe has an entry here and a module of the same name in `mlci.fitting`, with a function `fit_splits`.
RECIPES = {"table": TableConfig, "deep": DeepConfig, "paper": PaperConfig}


def current_recipe(name: str) -> str:
    """Return the present name of a recipe; warn if `name` is a former one.

    >>> current_recipe("table")
    'table'
    """
    if name in FORMER_RECIPES:
        outdated(f"the recipe name {name}", f"it is now called {FORMER_RECIPES[name]}", stacklevel=3)
    return FORMER_RECIPES.get(name, name)


def config_from(values: dict[str, Any], *, recipe: str = "paper", where: str = "config") -> Any:
    """Make the config of a recipe.

    Args:
        values: the sections by name, each with its settings by name; others keep their defaults.
        recipe: table, deep or paper.
        where: the name of the source of the values in messages.

    Returns:
        The config. An unknown key or a value out of range raises an `InputError`.

    >>> config_from({"encoder": {"width": 64}}, recipe="paper").encoder.width
    64
    """
    from pydantic import TypeAdapter, ValidationError

    kind = RECIPES[recipe]
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values, default=_plain))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        reason = complaint(errors, whole="the file", allowed=partial(_keys, kind()), repeat=True)
        raise InputError(f"{where}: {reason}.") from None


def _plain(value: Any) -> Any:
    """Return what JSON has no form for: NumPy numbers and arrays as plain ones, anything else (a date) as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _keys(section: Any, path: Sequence[str]) -> list[str]:
    """Return the keys of a config's section, which `path` leads to."""
    for part in path:
        section = getattr(section, part)
    return [key.name for key in fields(section)]


def read_config(path: str | Path, *, recipe: str = "paper") -> Any:
    """Read a recipe's config from a TOML file.

    Args:
        path: the file.
        recipe: table, deep or paper.

    Returns:
        The config; settings that the file does not name keep their defaults.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "own.toml").write_text("[penalty]\\nfolds = 3")
    ...     read_config(Path(folder, "own.toml"), recipe="table").penalty.folds
    3
    """
    return config_from(read_toml(path), recipe=recipe, where=str(path))


def toml_of(config: Any) -> str:
    """Return a recipe's `config` as TOML with comments, to be edited and read with `read_config`.

    >>> print(toml_of(PaperConfig()).split("[encoder]")[0].splitlines()[1])
    depths = [4]  # a code gives its prefix of each depth; the paper's k = 4
    """
    plain = [key for key in fields(config) if not isinstance(getattr(config, key.name), Section)]
    lines = ["", *_lines(config, plain)]
    for section in fields(config):
        content = getattr(config, section.name)
        if isinstance(content, Section):
            title = f"[{section.name}]  # {str(type(content).__doc__).splitlines()[0]}"
            lines += ["", title, *_lines(content, fields(content))]  # pyright: ignore[reportArgumentType]
    return "\n".join(lines).strip()


def _lines(content: Any, keys: Any) -> list[str]:
    """Return a line for each setting with its comment; None has no form in TOML, so such a line is commented out."""
    notes, lines = _notes(type(content)), []
    for key in keys:
        value = getattr(content, key.name)
        note = f"  # {notes[key.name]}" if key.name in notes else ""
        lines.append(f"{f'# {key.name} = ...' if value is None else toml_line(key.name, value)}{note}")
    return lines


def _notes(kind: type) -> dict[str, str]:
    """Return the comment behind each setting, in the source of the class and its base classes."""
    found: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if issubclass(base, Section)]):
        for line in inspect.getsource(base).splitlines():
            if match := re.match(r"    (\w+): [^#]*#\s*(.+)", line):
                found[match[1]] = match[2]
    return found
