"""The web pages and the JSON API of a fitted index, as one ASGI application.

Everything in a request is escaped, limited in size and never logged.
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
LIMIT, SECONDS = 4_000_000, 30  # largest request in bytes, and the time it may take to arrive
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
    """Return the web application of an index, for any ASGI server.

    Args:
        index: the index that scores.
        hosts: the host names that requests may be sent to; `*` for any.
        limit: largest size of a request in bytes.
        upload_limit: largest size of an uploaded file in bytes.
        seconds: the time that a request may take to arrive.
        keep_seconds: how long the scores of a file are kept for download.
        name: name of the model, shown on printed pages.

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
        description="A machine-learned comorbidity index: diagnosis codes in, one severity score out.",
        docs_url=None,  # these pages would load a script from the network
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

    _handle_errors(app, render)
    app.add_middleware(
        TrustedHostMiddleware,
        # against DNS rebinding: a foreign host name that resolves to this machine gets no answer
        allowed_hosts=list(hosts),
        www_redirect=False,
    )
    app.add_middleware(
        Guard, limit=limit, upload_limit=upload_limit, seconds=seconds, upload_seconds=max(seconds, UPLOAD_SECONDS)
    )
    return app


def _handle_errors(app: FastAPI, render: Callable[..., str]) -> None:
    """Answer every error with one sentence: as JSON for the API, else as a page."""

    def respond(request: Request, status: int, sentence: str, headers: Any = None) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"detail": sentence}, status, headers)
        return HTMLResponse(render("error", status=status, sentence=sentence), status, headers)

    @app.exception_handler(AnyHTTPException)
    def http_error(request: Request, error: AnyHTTPException) -> Response:
        if error.status_code == 400:  # FastAPI's status for a body that it cannot decode
            return respond(request, 422, "The body of the request cannot be read.")
        sentences = {404: "There is no page at this address.", 405: "This address does not support this method."}
        own = isinstance(error, HTTPException)
        sentence = error.detail if own else sentences.get(error.status_code, error.detail)
        return respond(request, error.status_code, sentence, error.headers)

    @app.exception_handler(InputError)
    def input_error(request: Request, error: InputError) -> Response:
        return respond(request, 422, str(error))

    @app.exception_handler(RequestValidationError)
    def validation_error(request: Request, error: RequestValidationError) -> Response:
        return respond(request, 422, _sentence(error.errors()))


def _sentence(errors: Sequence[Any]) -> str:
    """Return where and what the first validation error is, without the value itself."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return "The body of the request is not JSON."
    return f"{complaint([{**first, 'loc': first['loc'][1:]}], whole=first['loc'][0])}."


def _style() -> FileResponse:
    """Return the style sheet of the report, which the web pages share."""
    return FileResponse(Path(mlci.__file__).parent / "showing" / "style.css", headers={"Cache-Control": "no-cache"})
