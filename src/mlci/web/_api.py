"""The JSON API: admissions in, scores, risks and reasons out; what a model is; codes found by words."""

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

MOST_ADMISSIONS = 1_000  # of a call of the API; more go as a file
FEW, FEW_CODES = 10, 200  # admissions, and codes of all of them, that are answered within some milliseconds
MOST_LEFT_OUT = 5_000_000  # codes to score again when effects are asked for

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
        None, description="of all codes; null: the model's, or 10 if that has both"
    )
    age: list[Annotated[float, Field(ge=0, lt=130, strict=True)] | None] | None = Field(
        None, max_length=MOST_ADMISSIONS, description="years, of each admission, for a model whose risks take them"
    )
    sex: list[Literal["F", "M"] | None] | None = Field(
        None, max_length=MOST_ADMISSIONS, description="of each admission, for a model whose risks take it"
    )
    explain: StrictBool = Field(False, description="also say what each code did to the score")


class Answers(BaseModel):
    icd_version: int
    admissions: list[Answer] = Field(description="one for each admission, in order")
    warnings: list[str] = Field(description="sentences about what the model was not made for, or does not get")


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
    outcome: str
    above: Side
    below: Side


class CutoffAnswer(BaseModel):
    """High severity is a score of at least `score`."""

    score: float
    certificate: float = Field(description="rho squared of the shared direction: 1 if that is exactly this cut")
    share: float = Field(description="of the training and validation admissions at or above it")
    contrasts: list[ContrastAnswer]


class ModelCard(BaseModel):
    """What a model is and what it was made from."""

    mlci: str = Field(description="version of the program that answers")
    outcomes: dict[str, str] = Field(description="name and rule of each outcome")
    icd_versions: list[int] = Field(description="of the training codes; 0 where nobody said")
    vocabulary: int = Field(description="distinct codes (their first characters) that the model knows")
    percentiles: dict[str, float] = Field(description="of the training scores")
    cutoff: CutoffAnswer
    validation: dict[str, dict[str, float]] = Field(
        description="of each outcome on the validation split: counts, AUROC, observed and expected rate, slope"
    )
    training: dict[str, Any] = Field(description="recipe, seed, config, cohort, counts, outcome weights, record")
    about: dict[str, str] = Field(description="the model card: data, dates, counts, recipe, cutoff, licence, in words")
    limits: list[str] = Field(description="what the model must not be used for")


class Problem(BaseModel):
    detail: str = Field(description="one sentence")


LIMITS = [  # of any page like this; those of the index itself are in its file
    "It is not a physiological severity measure: it sees diagnosis codes, no vital sign, laboratory value or note.",
    "A code's effect says what the index uses, not what causes an outcome.",
    "Coding habits differ between hospitals and years: judge it on local admissions (mlci report) before using it.",
]
REFUSALS: dict[int | str, dict] = {
    408: {"model": Problem, "description": "The request arrived too slowly"},
    413: {"model": Problem, "description": "The request is too large"},
    422: {"model": Problem, "description": "The request is not understood"},
}


def api(index: MLCI) -> APIRouter:
    api, model = APIRouter(prefix="/api", tags=["api"]), index.model_
    scoring, searching = Turns(), Turns()  # who looks up a code does not wait for those who score thousands

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
                raise InputError("explain: that is too much to explain at once; send fewer admissions.")
        said = {name: values for name in ("age", "sex") if (values := getattr(question, name)) is not None}
        age, sex = (said.get(name) if name in model.people else None for name in ("age", "sex"))
        people = of_persons(model.people, age, sex, len(question.admissions))
        options = {"icd_version": version, "explain": question.explain, "people": people}
        found, doubts = answers(index, question.admissions, **options)
        aside = [
            f"The risks of this index do not take {name}; it was left aside."
            for name in said
            if name not in model.people
        ]
        return Answers(icd_version=version, admissions=found, warnings=[*doubts, *aside])

    @api.get("/model")
    def card() -> ModelCard:
        """Return what the model is: outcomes, training cohort, versions, figures, limits of use."""
        return model_card(index)

    @api.get("/codes", responses={422: REFUSALS[422]})
    async def codes(
        q: Annotated[str, Query(max_length=200, description="the beginning of a code, or words of its title")],
        icd_version: Annotated[int | None, Query(ge=9, le=10, description="the model's unless given")] = None,
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
