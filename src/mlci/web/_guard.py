"""The outermost layer: limits of size and time of requests, security headers, and no tracebacks."""

import asyncio
import logging
import traceback

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("mlci.web")

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # addresses hold codes
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Guard:
    def __init__(self, app: ASGIApp, *, limit: int, upload_limit: int, seconds: float, upload_seconds: float) -> None:
        self.app = app
        self.limits = {False: (limit, seconds), True: (upload_limit, upload_seconds)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if scope["method"] not in ("GET", "HEAD") and _is_foreign(Headers(scope=scope)):
            sentence = "This request must come from the page itself."
            return await JSONResponse({"detail": sentence}, 403, headers=HEADERS)(scope, receive, send)
        limit, seconds = self.limits[scope["path"] == "/files"]
        deadline = asyncio.get_running_loop().time() + seconds
        size, whole, begun = 0, False, False

        async def limited() -> Message:
            nonlocal size, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"The request took longer than {seconds:g} seconds to arrive.") from None
            whole = not message.get("more_body")
            size += len(message.get("body", b""))
            if size > limit:
                raise HTTPException(413, f"The request is too large; the limit is {limit:,} bytes.")
            return message

        async def dressed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, limited, dressed)
        except Exception as error:  # no traceback and no text of the error: both could show a patient's codes
            place = traceback.extract_tb(error.__traceback__)[-1]
            log.error("%s at %s:%s", type(error).__name__, place.filename, place.lineno)
            if not begun:
                sentence = "There was an internal error; see the server's log."
                await JSONResponse({"detail": sentence}, 500)(scope, receive, dressed)


def _is_foreign(headers: Headers) -> bool:
    """Return whether a browser reports that a page of another site sent the request; other programs report nothing."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin == "null" and site is not None:  # our pages send no referrer, and a form then no origin
        return site not in ("same-origin", "none")
    elsewhere = origin is not None and origin.partition("://")[2] != headers.get("host")
    return elsewhere or (site or "same-origin") not in ("same-origin", "none")
