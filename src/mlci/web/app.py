"""The page and the JSON API as one ASGI application.

In comes a fitted index; out comes the application. Everything a request brings is escaped, limited in size and never
logged.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

import mlci
from mlci.base.complaints import complaint
from mlci.base.errors import InputError
from mlci.index.estimator import MLCI
from mlci.web._api import api
from mlci.web._files import files
from mlci.web._guard import Guard
from mlci.web._pages import comparisons, pages
from mlci.web._rendering import renderer
from mlci.web._uploads import KEEP_SECONDS, Uploads

HERE = Path(__file__).parent
HOSTS = ("127.0.0.1", "localhost")
LIMIT, SECONDS = 4_000_000, 30  # bytes and seconds that a request may take to arrive
UPLOAD_LIMIT, UPLOAD_SECONDS = 1_000_000_000, 600


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
    render = renderer(index, name)
    app.include_router(api(index))
    app.include_router(pages(index, render))
    app.include_router(comparisons(index, render))
    app.include_router(files(index, uploads, render, upload_limit))
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


def _style() -> FileResponse:
    """Return the style sheet of the report, which the page shares."""
    return FileResponse(Path(mlci.__file__).parent / "showing" / "style.css", headers={"Cache-Control": "no-cache"})
