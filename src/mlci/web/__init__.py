"""The local web pages and JSON API of a fitted index: `create_app` for any ASGI server, `serve` for `mlci serve`."""

from mlci.web.app import create_app
from mlci.web.server import serve

__all__ = ["create_app", "serve"]
