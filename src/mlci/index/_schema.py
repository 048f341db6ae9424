"""What the facts of a model file must be before anything is made of them: types, lengths, ranges, order.

In comes JSON that anybody may have written; out comes `Facts`, or an error that names the first place that is wrong.
A recipe that keeps more in its card is not asked about it here; what this file names has the type that it says.
"""

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mlci.base.complaints import complaint
from mlci.config import FORMER_RECIPES, RECIPES

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=20_000)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Score = Annotated[float, Field(ge=-1e9, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Version = Literal[0, 9, 10]  # 0: nobody said
TOLERANCE = 1e-9  # a rate of 1 may come out a rounding above it


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class VocabularyFacts(_Checked):
    tokens: list[Annotated[str, Field(min_length=1, max_length=40)]] = Field(max_length=1_000_000)
    versions: list[Version]
    depths: list[Annotated[int, Field(ge=1, le=40)]] = Field(min_length=1, max_length=16)
    max_codes: int = Field(ge=1, le=100_000)
    ignored: list[Name] = Field(default=[], max_length=100_000)
    primary: bool = False
    number_of_codes: bool = False
    poa: Literal["all", "only"] = "all"
    support: list[Count] = []

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.versions) != len(self.tokens) or len(self.support) not in (0, len(self.tokens)):
            raise ValueError("as many versions (and numbers of admissions) as tokens are needed")
        if len(set(zip(self.versions, self.tokens))) != len(self.tokens) or len(set(self.depths)) != len(self.depths):
            raise ValueError("a token or a depth comes twice")
        return self


class CurveFacts(_Checked):
    score: list[Score] = Field(min_length=1, max_length=20_000)
    risk: list[Share]

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if len(self.score) != len(self.risk):
            raise ValueError("as many risks as scores are needed")
        if not (_rising(self.score) and _rising(self.risk)):
            raise ValueError("scores and risks must not fall")
        return self


class SmoothFacts(_Checked):
    score: list[Score] = Field(min_length=2, max_length=1000)
    logit: list[Annotated[float, Field(ge=-1e3, le=1e3)]]
    error: list[Annotated[float, Field(ge=0, le=1e3)]]

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not len(self.score) == len(self.logit) == len(self.error):
            raise ValueError("as many log-odds and errors as scores are needed")
        if len(set(self.score)) != len(self.score) or not (_rising(self.score) and _rising(self.logit)):
            raise ValueError("scores must rise and log-odds must not fall")
        return self


class HeldOutFacts(_Checked):
    n: Count
    positives: Count
    auroc: Share
    auroc_low: Share
    auroc_high: Share
    expected: Share
    observed: Share
    observed_low: float = Field(ge=-TOLERANCE, le=1 + TOLERANCE)
    observed_high: float = Field(ge=-TOLERANCE, le=1 + TOLERANCE)
    slope: float | None = None


class RateFacts(_Checked):
    positives: Count
    n: Count
    low: float | None = Field(ge=-TOLERANCE, le=1 + TOLERANCE)
    high: float | None = Field(ge=-TOLERANCE, le=1 + TOLERANCE)
    weighted: float | None = Field(default=None, ge=-TOLERANCE, le=1 + TOLERANCE)

    @model_validator(mode="after")
    def _counts(self) -> Self:
        if self.positives > self.n:
            raise ValueError("more events than admissions")
        return self


class ContrastFacts(_Checked):
    outcome: Name
    above: RateFacts
    below: RateFacts


class CutoffFacts(_Checked):
    score: Score
    certificate: float = Field(ge=-TOLERANCE, le=1 + TOLERANCE)
    tail: Count
    n: int = Field(ge=1, le=10**12)
    contrasts: list[ContrastFacts] = Field(max_length=1000)
    held_out: float | None = Field(default=None, ge=-TOLERANCE, le=1 + TOLERANCE)
    left_out: dict[Name, Text] = {}
    weighted: float | None = Field(default=None, ge=-TOLERANCE, le=1 + TOLERANCE)

    @model_validator(mode="after")
    def _counts(self) -> Self:
        if self.tail > self.n:
            raise ValueError("more admissions above the cutoff than there are")
        return self


class TableFacts(_Checked):
    title: Text
    columns: list[Text] = Field(max_length=100)
    rows: list[list[str | int | float | None]] = Field(max_length=10_000)


class LinesFacts(_Checked):
    title: Text
    unit: Text
    lines: dict[Name, list[float]]
    kept: Count


class RecordFacts(_Checked):
    summary: Text
    tables: list[TableFacts] = Field(max_length=100)
    curves: list[LinesFacts] = Field(max_length=100)


class MakeupFacts(_Checked):
    """Codes of the training admissions of one ICD version."""

    admissions: Count
    codes: Count
    squares: Count
    categories: dict[Name, Count] = Field(max_length=100_000)


class AboutFacts(_Checked):
    """What the fit knew of its data beside the counts."""

    data: Text
    dates: Text
    licence: Text
    limits: list[Text] = Field(max_length=100)


class SurveyFacts(_Checked):
    weights: Name = ""
    worth: Count = 0
    cluster: Name = ""


class CardFacts(_Checked):
    """The part of the card that every recipe has."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True, extra="allow")

    recipe: Literal[*RECIPES, *FORMER_RECIPES]  # pyright: ignore[reportInvalidTypeForm]
    seed: int = Field(ge=-(2**63), lt=2**64)
    config: dict[Name, Any]
    source: Text = ""
    record: RecordFacts | None = None
    weights: dict[Name, float] = {}
    bandwidth: float | None = Field(default=None, gt=0, lt=1e9)
    admissions: dict[Name, Count] = {}
    positives: dict[Name, Count | None] = {}
    validation: dict[Name, HeldOutFacts] = {}
    about: AboutFacts | None = None
    makeup: dict[Literal["0", "9", "10"], MakeupFacts] = {}
    tokens_of_one_patient: Count = 0
    survey: SurveyFacts | None = None
    numbers: dict[Name, Literal["poisson", "gaussian"]] = {}


class Facts(_Checked):
    version: Name
    vocabulary: VocabularyFacts
    icd_versions: list[Version] = Field(max_length=3)
    outcomes: dict[Name, Text] = Field(min_length=1, max_length=1000)
    quantiles: list[Score] = Field(min_length=2, max_length=20_000)
    curves: dict[Name, SmoothFacts | CurveFacts]
    bands: dict[Name, SmoothFacts] = {}
    cutoff: CutoffFacts
    card: CardFacts

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not _rising(self.quantiles):
            raise ValueError("quantiles must not fall")
        named = {
            *self.curves,
            *self.bands,
            *self.card.validation,
            *(contrast.outcome for contrast in self.cutoff.contrasts),
        }
        if not named <= set(self.outcomes):
            raise ValueError("a curve or a contrast belongs to no outcome")
        return self


def check_facts(facts: Any) -> Facts:
    """Check the facts of a model file; ValueError says which place is wrong and what it should be."""
    try:
        return Facts.model_validate(facts)
    except ValidationError as error:
        raise ValueError(
            complaint(error.errors(include_url=False, include_input=False, include_context=False))
        ) from None


def _rising(values: list[float]) -> bool:
    return all(low <= high for low, high in pairwise(values))
