"""The JSON API: score and explain admissions, describe the model, and find codes."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictBool

import mlci
from mlci.base.errors import InputError
from mlci.codes import icd
from mlci.codes.search import search
from mlci.index._people import of_persons
from mlci.index.estimator import MLCI
from mlci.index.modelcard import facts, limits
from mlci.web._answers import Answer, answers, model_version
from mlci.web._case import MOST_CODES
from mlci.web._turns import Turns

MOST_ADMISSIONS = 1_000  # in one request; upload a file for more
FEW, FEW_CODES = 10, 200  # admissions, and codes in total, that take only a few milliseconds
MOST_LEFT_OUT = 5_000_000  # codes to score again for the effects of one request

IcdCode = Annotated[str, Field(max_length=40)]


class Question(BaseModel):
    """Admissions to score."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"admissions": [["I50.9", "N17.9"], ["E11.9"]]}]}
    )

    admissions: list[Annotated[list[IcdCode], Field(max_length=MOST_CODES)]] = Field(
        max_length=MOST_ADMISSIONS, description="the codes of each admission; dots and case do not matter"
    )
    icd_version: Literal[9, 10] | None = Field(
        None, description="ICD version of all codes; null: that of the model, or 10 if it has both"
    )
    age: list[Annotated[float, Field(ge=0, lt=130, strict=True)] | None] | None = Field(
        None, max_length=MOST_ADMISSIONS, description="age in years of each admission, if the model's risks use it"
    )
    sex: list[Literal["F", "M"] | None] | None = Field(
        None, max_length=MOST_ADMISSIONS, description="sex of each admission, if the model's risks use it"
    )
    explain: StrictBool = Field(False, description="also return the effect of each code on the score")


class Answers(BaseModel):
    """The answers for all admissions of a question."""

    icd_version: int
    admissions: list[Answer] = Field(description="one for each admission, in order")
    warnings: list[str] = Field(description="sentences about codes or admissions that do not suit the model")


class Found(BaseModel):
    """One entry of an ICD table."""

    code: str
    icd_version: int
    title: str
    billable: bool = Field(description="false for a heading that groups finer codes")


class Side(BaseModel):
    """An outcome's rate on one side of the cutoff, with its 95% Wilson interval."""

    positives: int
    n: int
    low: float
    high: float


class ContrastAnswer(BaseModel):
    """An outcome's rates on both sides of the cutoff."""

    outcome: str
    above: Side
    below: Side


class CutoffAnswer(BaseModel):
    """High severity is a score of at least `score`."""

    score: float
    certificate: float = Field(description="rho squared with the shared direction; 1 if it is exactly this cut")
    share: float = Field(description="share of the training and validation admissions at or above it")
    contrasts: list[ContrastAnswer]


class ModelCard(BaseModel):
    """What a model is and how it was made."""

    mlci: str = Field(description="version of mlci that answers")
    outcomes: dict[str, str] = Field(description="name and rule of each outcome")
    icd_versions: list[int] = Field(description="ICD versions of the training codes; 0 if unknown")
    vocabulary: int = Field(description="number of codes and code prefixes that the model knows")
    percentiles: dict[str, float] = Field(description="percentiles of the training scores")
    cutoff: CutoffAnswer
    validation: dict[str, dict[str, float]] = Field(
        description="for each outcome on the validation split: counts, AUROC, observed and expected rate, slope"
    )
    training: dict[str, Any] = Field(description="recipe, seed, config, cohort, counts, outcome weights, record")
    about: dict[str, str] = Field(description="the model card: data, dates, counts, recipe, cutoff, licence, in words")
    limits: list[str] = Field(description="limits of use")


class Problem(BaseModel):
    detail: str = Field(description="one sentence")


LIMITS = [  # of every index; the model file has its own
    "It does not measure physiological severity: it uses diagnosis codes, but no vital signs, laboratory values or "
    "notes.",
    "The effect of a code shows what the index uses, not what causes an outcome.",
    "Coding practice differs between hospitals and years: evaluate it on local admissions (mlci report) before use.",
]
REFUSALS: dict[int | str, dict] = {
    408: {"model": Problem, "description": "The request took too long to arrive"},
    413: {"model": Problem, "description": "The request is too large"},
    422: {"model": Problem, "description": "The request is not valid"},
}


def api(index: MLCI) -> APIRouter:
    """Return the routes of the API."""
    api, model = APIRouter(prefix="/api", tags=["api"]), index.model_
    scoring, searching = Turns(), Turns()  # separate, so that a search does not wait for a large request

    @api.post("/score", responses=REFUSALS)
    async def score(question: Question) -> Answers:
        """Score admissions: the same numbers as `index.score`, `risk` and `explain`."""
        few = len(question.admissions) <= FEW and sum(map(len, question.admissions)) <= FEW_CODES
        return await scoring(lambda: answered(question), short=few)

    def answered(question: Question) -> Answers:
        version = question.icd_version or model_version(model)
        if question.explain:
            most = model.vocabulary.max_codes
            again = sum(min(len(codes), most) * min(len(codes), most + 1) for codes in question.admissions)
            if again > MOST_LEFT_OUT:
                raise InputError("explain: there are too many codes to explain at once; send fewer admissions.")
        given = {name: values for name in ("age", "sex") if (values := getattr(question, name)) is not None}
        age, sex = (given.get(name) if name in model.people else None for name in ("age", "sex"))
        people = of_persons(model.people, age, sex, len(question.admissions))
        options = {"icd_version": version, "explain": question.explain, "people": people}
        found, doubts = answers(index, question.admissions, **options)
        ignored = [
            f"The risks of this index do not use {name}; it was ignored." for name in given if name not in model.people
        ]
        return Answers(icd_version=version, admissions=found, warnings=[*doubts, *ignored])

    @api.get("/model")
    def card() -> ModelCard:
        """Describe the model: outcomes, training cohort, versions, figures, limits of use."""
        return model_card(index)

    @api.get("/codes", responses={422: REFUSALS[422]})
    async def codes(
        q: Annotated[str, Query(max_length=200, description="the beginning of a code, or words of its title")],
        icd_version: Annotated[int | None, Query(ge=9, le=10, description="ICD version; default: the model's")] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> list[Found]:
        """Find codes by their beginning or by words."""
        version = icd_version or model_version(model)
        return [found_code(code) for code in await searching(lambda: search(q, version, limit))]

    return api


def found_code(code: icd.Code) -> Found:
    shown = icd.dotted(code.code, code.version)
    return Found(code=shown, icd_version=code.version, title=code.title, billable=code.billable)


def model_card(index: MLCI) -> ModelCard:
    model = index.model_
    quantiles = len(model.quantiles) - 1
    return ModelCard(
        mlci=mlci.__version__,
        outcomes=dict(model.outcomes),
        icd_versions=list(model.icd_versions),
        vocabulary=len(model.vocabulary.tokens),
        percentiles={str(p): float(model.quantiles[round(quantiles * p / 100)]) for p in (0, 5, 25, 50, 75, 95, 100)},
        cutoff=CutoffAnswer.model_validate(model.cutoff, from_attributes=True),
        validation=dict(model.card.get("validation", {})),
        training={name: value for name, value in model.card.items() if name != "validation"},
        about=facts(model),
        limits=[*limits(model), *LIMITS],
    )
