"""Serve `/metrics` and nothing else on the port for metrics."""

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.problems import answer
from models.domain.errors import NotFound

PATH = "/metrics"

MARK = "darkroom.metrics_port"
"""The key in a request's scope that tells the route that the request came to this port."""


class MetricsOnly:
    """ASGI middleware that passes requests for the metrics to `app` and answers others with 404."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] == PATH:
            await self._app({**scope, MARK: True}, receive, send)
            return
        error = NotFound(f"there is no {scope['path'][:200]} on this port; GET {PATH}")
        await answer(error, Request(scope))(scope, receive, send)
