"""The page and the JSON API as one ASGI application.

In comes a fitted index; out comes the application. Pages are rendered here and work without JavaScript; a small script
saves reloading. Everything a request brings is escaped, limited in size and never logged.
"""

import contextlib
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, FastAPI, Form, HTTPException, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

import mlci
from mlci.base.complaints import complaint
from mlci.base.errors import InputError
from mlci.base.names import cell, label, words
from mlci.codes import icd
from mlci.codes.parse import understand
from mlci.codes.search import search
from mlci.index._people import of_person, of_persons
from mlci.index.estimator import MLCI
from mlci.index.modelcard import facts, limits
from mlci.index.provenance import provenance
from mlci.web._addresses import CaseAddress
from mlci.web._answers import Answer, answers, model_version
from mlci.web._case import MOST_CODES, MOST_TEXT, read_case
from mlci.web._drawing import Bars, Drawing
from mlci.web._guard import Guard
from mlci.web._uploads import GRACE_SECONDS, KEEP_SECONDS, Busy, Uploads

HERE = Path(__file__).parent
HOSTS = ("127.0.0.1", "localhost")
LIMIT, SECONDS = 4_000_000, 30  # bytes and seconds that a request may take to arrive
UPLOAD_LIMIT, UPLOAD_SECONDS = 1_000_000_000, 600
AT_ONCE = 2  # pages in work: more only wrest Python's lock from each other, at twice the processor time
MOST_ADMISSIONS = 1_000  # of a call of the API; more go as a file
MOST_LEFT_OUT = 5_000_000  # codes to score again when effects are asked for
EXAMPLES = {
    10: {
        "Heart failure with kidney injury": "I50.9 N17.9 I10",
        "Septic shock": "A41.9 R65.21 J96.01 N17.9",
        "A knee replacement": "M17.11 I10 E78.5",
    },
    9: {
        "Heart failure with kidney injury": "428.0 584.9 401.9",
        "Septic shock": "038.9 785.52 518.81 584.9",
        "A knee replacement": "715.96 401.9 272.4",
    },
}

IcdCode = Annotated[str, Field(max_length=40)]
Codes = Annotated[list[str], Query(max_length=1000)]


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


def create_app(
    index: MLCI,
    *,
    hosts: Sequence[str] = HOSTS,
    limit: int = LIMIT,
    upload_limit: int = UPLOAD_LIMIT,
    seconds: float = SECONDS,
    keep_seconds: float = KEEP_SECONDS,
    name: str = "",
) -> FastAPI:
    """Return the page and the API of an index, for any ASGI server.

    Args:
        index: what scores.
        hosts: the host names that requests may be sent to; `*` for any.
        limit: bytes of a request at most.
        upload_limit: bytes of an uploaded file at most.
        seconds: that a request may take to arrive.
        keep_seconds: that a scored file waits to be fetched.
        name: of the model, on printed pages.

    >>> app = create_app(mlci.load("us2010"))
    >>> sorted(app.openapi()["paths"])
    ['/api/codes', '/api/model', '/api/score']
    """
    uploads = Uploads(index.model_, keep_seconds=keep_seconds)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI):
        yield
        uploads.close()

    app = FastAPI(
        title="MLCI",
        version=mlci.__version__,
        description="A machine-learned comorbidity index: diagnosis codes in, one severity number out.",
        docs_url=None,  # those pages would ask the network for their script
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    render = _renderer(index, name)
    app.include_router(_api(index))
    app.include_router(_pages(index, render))
    app.include_router(_comparisons(index, render))
    app.include_router(_files(index, uploads, render, upload_limit))
    app.add_api_route("/static/style.css", _style, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"))

    _refuse_in_words(app, render)
    app.add_middleware(
        TrustedHostMiddleware,
        # a page elsewhere whose host name is made to mean this machine must not be answered
        allowed_hosts=list(hosts),
        www_redirect=False,
    )
    app.add_middleware(
        Guard, limit=limit, upload_limit=upload_limit, seconds=seconds, upload_seconds=max(seconds, UPLOAD_SECONDS)
    )
    return app


def _refuse_in_words(app: FastAPI, render: Callable[..., str]) -> None:
    """Answer what is refused by one sentence: as JSON to the API, as a page to people."""

    def refuse(request: Request, status: int, sentence: str, headers: Any = None) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"detail": sentence}, status, headers)
        return HTMLResponse(render("error", status=status, sentence=sentence), status, headers)

    @app.exception_handler(AnyHTTPException)
    def refused(request: Request, error: AnyHTTPException) -> Response:
        if error.status_code == 400:  # FastAPI's word for a body that it cannot even decode
            return refuse(request, 422, "The body of the request cannot be read.")
        sentence = {404: "There is nothing at this address.", 405: "This address is not used in this way."}
        told = error.detail if isinstance(error, HTTPException) else sentence.get(error.status_code, error.detail)
        return refuse(request, error.status_code, told, error.headers)

    @app.exception_handler(InputError)
    def bad_input(request: Request, error: InputError) -> Response:
        return refuse(request, 422, str(error))

    @app.exception_handler(RequestValidationError)
    def not_understood(request: Request, error: RequestValidationError) -> Response:
        return refuse(request, 422, _sentence(error.errors()))


def _sentence(errors: Sequence[Any]) -> str:
    """Return the first of pydantic's complaints: where, and what; the value itself is not repeated."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return "The body of the request is not JSON."
    return f"{complaint([{**first, 'loc': first['loc'][1:]}], whole=first['loc'][0])}."


def _api(index: MLCI) -> APIRouter:
    api, model = APIRouter(prefix="/api", tags=["api"]), index.model_

    @api.post("/score", responses=REFUSALS)
    def score(question: Question) -> Answers:
        """Score admissions: the same numbers as `index.score`, `risk` and `explain`."""
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
        return _card(index)

    @api.get("/codes", responses={422: REFUSALS[422]})
    def codes(
        q: Annotated[str, Query(max_length=200, description="the beginning of a code, or words of its title")],
        icd_version: Annotated[int | None, Query(ge=9, le=10, description="the model's unless given")] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> list[Found]:
        """Find codes by their beginning or by words."""
        version = icd_version or model_version(model)
        return [_found(code) for code in search(q, version, limit)]

    return api


def _found(code: icd.Code) -> Found:
    shown = icd.dotted(code.code, code.version)
    return Found(code=shown, icd_version=code.version, title=code.title, billable=code.billable)


def _card(index: MLCI) -> ModelCard:
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


def _renderer(index: MLCI, name: str):
    environment = Environment(
        loader=PackageLoader("mlci.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "label": label,
        "words": words,
        "percent": percent,
        "span": span,
        "signed": lambda value: f"{value:+.2f}".replace("-", "−"),
        "number": lambda value, digits=2: f"{value:.{digits}f}".replace("-", "−"),
        "count": lambda value: f"{value:,}",
        "place": place,
        "cell": cell,
    }
    kept: dict[tuple[object, ...], str] = {}

    def remembered(*key: object, caller: Callable[[], str]) -> str:
        """Return what a part of a template renders, once for each key: for parts that depend on model and key alone."""
        if key not in kept:
            kept[key] = caller()
        return kept[key]

    environment.globals |= {
        "remembered": remembered,
        "mlci_version": mlci.__version__,
        "model": index.model_,
        "model_name": name or f"recipe {index.model_.card['recipe']}",
        "origin": provenance(index.model_),
        "drawing": Drawing(index.model_),
        "today": lambda: date.today().isoformat(),
    }

    def render(template: str, **view: object) -> str:
        return environment.get_template(f"{template}.html.j2").render(view)

    return render


def percent(risk: float) -> str:
    """Return a `risk` with as many digits as a person can use; never 0 or 100%.

    >>> percent(0.0004), percent(0.123), percent(0.9999)
    ('under 0.1%', '12.3%', 'over 99.9%')
    """
    if risk < 0.001:
        return "under 0.1%"
    return "over 99.9%" if risk > 0.999 else f"{100 * risk:.1f}%"


def span(bounds: tuple[float, float]) -> str:
    """Return an interval of risks, given by its two `bounds`.

    >>> span((0.02, 0.045))
    '2.0 to 4.5%'
    """
    low, high = (percent(bound) for bound in bounds)
    return low if low == high else f"{low.removesuffix('%')} to {high}"


def place(percentile: float) -> str:
    """Return a `percentile` as text; never 100, which would say that nobody could be graver.

    >>> place(61.4), place(99.96)
    ('61', '99.9')
    """
    return f"{min(percentile, 99.9):.1f}" if 99 < percentile < 100 else f"{percentile:.0f}"


def _style() -> FileResponse:
    """Return the style sheet of the report, which the page shares."""
    return FileResponse(Path(mlci.__file__).parent / "showing" / "style.css", headers={"Cache-Control": "no-cache"})


def _version(index: MLCI, said: str) -> int:
    return int(said) if said in ("9", "10") else model_version(index.model_)


def _pages(index: MLCI, render: Callable[..., str]) -> APIRouter:
    pages, turns = APIRouter(include_in_schema=False), CapacityLimiter(AT_ONCE)  # who comes first is served first

    @pages.get("/")
    async def admission_page(
        codes: str = "",
        q: Annotated[str, Query(max_length=200)] = "",
        off: Codes = [],  # noqa: B006  (read only)
        plus: Codes = [],  # noqa: B006
        pick: Annotated[str, Query(max_length=40)] = "",
        icd_version: Annotated[str, Query(alias="icd", max_length=2)] = "",
        age: Annotated[str, Query(max_length=3, pattern=r"^\d*$")] = "",
        sex: Literal["", "F", "M"] = "",
    ) -> Response:
        version = _version(index, icd_version)
        here = CaseAddress(codes, tuple(off), tuple(plus), version, said=bool(icd_version), age=age, sex=sex)
        if pick:
            return RedirectResponse(here.with_codes(f"{codes.strip()} {pick}".strip()), 303)

        def answered() -> Response:
            case, error = None, ""
            try:
                people = of_person(index.model_.people, float(age) if age else None, sex or None)
                case = read_case(index, codes, off=off, plus=plus, version=version, people=people)
            except InputError as problem:
                error = str(problem)
            page = render(
                "one",
                text=codes[:MOST_TEXT],
                q=q,
                found=[_found(code) for code in search(q, version, 10)],
                version=version,
                age=age,
                sex=sex,
                address=here.plain,
                offered=here.offered,
                translated=here.translated,
                case=case,
                error=error,
                examples=EXAMPLES[version],
                dotted=lambda code: icd.dotted(code, version),
            )
            return HTMLResponse(page, 422 if error else 200)

        return await run_sync(answered, limiter=turns)

    return pages


def _comparisons(index: MLCI, render: Callable[..., str]) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    @pages.get("/compare")
    def compare(
        a: str = "", b: str = "", icd_version: Annotated[str, Query(alias="icd", max_length=2)] = ""
    ) -> Response:
        version = _version(index, icd_version)
        cases, error = [], ""
        try:
            cases = [read_case(index, text, version=version) for text in (a, b)]
        except InputError as problem:
            error = str(problem)
        page = render(
            "compare",
            texts=(a[:MOST_TEXT], b[:MOST_TEXT]),
            cases=cases if all(cases) else [],
            version=version,
            error=error,
            examples=list(EXAMPLES[version].values()),
            case_address=lambda text: "/?" + urlencode({"codes": text} | ({"icd": icd_version} if icd_version else {})),
            title_of=lambda code: understood.title if (understood := understand(code, version)) else None,
            dotted=lambda code: icd.dotted(code, version),
        )
        return HTMLResponse(page, 422 if error else 200)

    @pages.get("/model")
    def about(request: Request) -> HTMLResponse:
        address = str(request.base_url).rstrip("/")
        return HTMLResponse(render("model", card=_card(index), address=address, examples=EXAMPLES))

    return pages


def _row_address(row: dict) -> str:
    """Return the address of the page of one row of a scored file."""
    version = {"icd": row["icd_version"]} if row["icd_version"] in icd.VERSIONS else {}
    return "/?" + urlencode({"codes": " ".join(row["codes"]), **version})


def _files(index: MLCI, uploads: Uploads, render: Callable[..., str], upload_limit: int) -> APIRouter:
    files = APIRouter(prefix="/files", include_in_schema=False)

    @files.get("")
    def form() -> HTMLResponse:
        return HTMLResponse(render("files", limit=upload_limit, version=model_version(index.model_)))

    @files.post("")
    def upload(
        file: UploadFile,
        kind: Annotated[Literal["csv", "parquet", "xlsx"], Form()] = "csv",
        icd_version: Annotated[str, Form(alias="icd", max_length=2)] = "",
        id: Annotated[str, Form(max_length=200)] = "",
        columns: Annotated[str, Form(alias="codes", max_length=2000)] = "",
    ) -> Response:
        named = {"id": id.strip(), "codes": columns.strip(), "icd_version": _version(index, icd_version)}
        try:
            token = uploads.add(file.file, file.filename or "", kind=kind, **named)
        except Busy:
            raise HTTPException(503, "Too many files are in work; try again in a minute.") from None
        return RedirectResponse(f"/files/{token}", 303)

    def job_of(token: str):
        if job := uploads.jobs.get(token):
            uploads.keep(token)
            return job
        raise HTTPException(
            404, "These scores are gone: they are deleted when their page is left, or after ten minutes."
        )

    @files.get("/{token}")
    def progress(token: str) -> HTMLResponse:
        job = job_of(token)
        return HTMLResponse(render("job", job=job, token=token, bars=Bars(job.bars), case_address=_row_address))

    @files.post("/{token}/keep", status_code=204)
    def keep(token: str) -> None:
        """Note that the page is still open."""
        job_of(token)

    @files.post("/{token}/leave", status_code=204)
    def leave(token: str) -> None:
        """Note that the page was left, or is being loaded anew."""
        uploads.keep(token, GRACE_SECONDS)

    @files.get("/{token}/scores")
    def scores(token: str) -> FileResponse:
        job = job_of(token)
        if not job.done.is_set() or job.error:
            raise HTTPException(404, "The scores are not made yet.")
        return FileResponse(job.target, filename=job.target.name)

    @files.post("/{token}/forget")
    def forget(token: str) -> Response:
        uploads.forget(token)
        return RedirectResponse("/files", 303)

    return files
