"""The pages for many admissions: upload a file, watch its progress, download and delete its scores."""

from collections.abc import Callable
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, HTTPException, UploadFile
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from mlci.codes import icd
from mlci.index.estimator import MLCI
from mlci.web._answers import chosen_version, model_version
from mlci.web._drawing import Bars
from mlci.web._uploads import Busy, Job, Uploads


def _row_address(row: dict) -> str:
    """Return the address of the page of one row of a scored file."""
    version = {"icd": row["icd_version"]} if row["icd_version"] in icd.VERSIONS else {}
    person = {name: int(value) if name == "age" else value for name, value in row["person"].items()}
    return "/?" + urlencode({"codes": " ".join(row["codes"]), **version, **person})


def _present(job: Job | None) -> Job:
    if job is None:
        raise HTTPException(
            404, "These scores have been deleted, because their page was left or ten minutes have passed."
        )
    return job


def files(index: MLCI, uploads: Uploads, render: Callable[..., str], upload_limit: int) -> APIRouter:
    router = APIRouter(prefix="/files", include_in_schema=False)

    @router.get("")
    def form() -> HTMLResponse:
        return HTMLResponse(render("files", limit=upload_limit, version=model_version(index.model_)))

    @router.post("")
    def upload(
        file: UploadFile,
        kind: Annotated[Literal["csv", "parquet", "xlsx"], Form()] = "csv",
        icd_version: Annotated[str, Form(alias="icd", max_length=2)] = "",
        id: Annotated[str, Form(max_length=200)] = "",
        columns: Annotated[str, Form(alias="codes", max_length=2000)] = "",
    ) -> Response:
        named = {"id": id.strip(), "codes": columns.strip(), "icd_version": chosen_version(index.model_, icd_version)}
        try:
            token = uploads.add(file.file, file.filename or "", kind=kind, **named)
        except Busy:
            raise HTTPException(503, "Too many files are being scored; try again in a minute.") from None
        return RedirectResponse(f"/files/{token}", 303)

    def kept(token: str) -> Job:
        uploads.keep(token)
        return _present(uploads.jobs.get(token))

    @router.get("/{token}")
    def progress(token: str) -> HTMLResponse:
        job = _present(uploads.opened(token))
        return HTMLResponse(render("job", job=job, token=token, bars=Bars(job.bars), case_address=_row_address))

    @router.post("/{token}/keep", status_code=204)
    def keep(token: str) -> None:
        """Note that the page is still open."""
        kept(token)

    @router.post("/{token}/leave", status_code=204)
    def leave(token: str, load: int = 0) -> None:
        """Note that the page was left or is being reloaded; `load` is the number of the load that ended."""
        uploads.left(token, load)

    @router.get("/{token}/scores")
    def scores(token: str) -> FileResponse:
        job = kept(token)
        if not job.done.is_set() or job.error:
            raise HTTPException(404, "The scores are not ready yet.")
        return FileResponse(job.target, filename=job.target.name)

    @router.post("/{token}/forget")
    def forget(token: str) -> Response:
        uploads.forget(token)
        return RedirectResponse("/files", 303)

    return router
