"""Refuse image requests by their headers, before a task, a Starlette request or a permit exists.

Under overload nearly every request is refused, and the time that refusals take is missing where the
others are computed. So admission is asked as soon as the headers have come, with the work that the
same path and query asked for last, and the whole answer is written at once. What this file does not
decide (other limits, wrong options, missing keys) is left to the application, whose answers are the
same.
"""

import json
import logging
import time
from contextlib import suppress
from functools import lru_cache
from typing import cast

from fastapi import FastAPI
from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.admission.clients import client_of
from app.admission.targets import target_of
from app.connections.early_answer import EarlyAnswer
from app.http import problems
from app.http.request_lifetime import seconds_before
from app.routes.access_log import access, request_id_of
from app.routes.image_route import ImageRoute
from app.service import Service
from app.telemetry.line_limit import LineLimit
from models.domain.errors import (
    Forbidden,
    InvalidParameter,
    Overloaded,
    RateLimited,
    ServiceError,
    Unauthorized,
)


class EarlyRefusal:
    """Decides about requests for the image routes of `app`, a running server."""

    def __init__(self, app: FastAPI) -> None:
        service = app.state.service
        assert isinstance(service, Service)
        self._service = service
        self._paths = frozenset(
            route.path for route in problems.routes(app.routes) if isinstance(route, ImageRoute)
        )
        self._cross_origin = bool(service.settings.cors_origins)
        trusted = [str(each) for each in service.settings.trusted_proxies]
        proxied = cast(ASGI3Application, _unanswered)
        self._proxies = ProxyHeadersMiddleware(proxied, trusted) if trusted else None
        self._lines = LineLimit(access, "refused requests")
        self._rejection = lru_cache(16)(service.metrics.rejections.labels)

    def __call__(self, scope: Scope) -> EarlyAnswer | None:
        """Return the refusal of a request, or None: the application answers it."""
        if scope["path"] not in self._paths or scope["method"] != "POST":
            return None
        started = time.monotonic()
        headers = scope["headers"]
        given = dict(headers)
        if len(given) < len(headers) or (self._cross_origin and b"origin" in given):
            return None
        error = self._error(scope, given)
        if error is None:
            return None
        scope["request_id"] = request_id_of(scope)
        self._note(scope, error, started)
        return _answer(error, scope)

    def _error(self, scope: Scope, given: dict[bytes, bytes]) -> ServiceError | None:
        service = self._service
        admission, settings = service.admission, service.settings
        n_bytes = int(given.get(b"content-length", 0))
        if admission.draining or n_bytes > min(settings.max_body_bytes, admission.limits.bytes):
            return None
        try:
            seconds = seconds_before(given.get(b"x-deadline-ms"), settings)
            client = self._client(scope)
        except (InvalidParameter, Unauthorized, Forbidden):
            return None
        if admission.rate is not None:
            try:
                admission.charge_rate(client, 1)
            except RateLimited as error:
                return error
            scope["rated"] = True
        kind = given.get(b"content-type", b"")
        target = target_of(scope["path"], scope["query_string"], kind)
        return admission.refusal(client, seconds, n_bytes, target)

    def _client(self, scope: Scope) -> str:
        """The client as `ImageRoute` names it; raises Unauthorized and Forbidden."""
        if self._service.keys is not None:
            return f"key {self._service.keys.client_of(scope)}"
        if self._proxies is None:
            return client_of(scope)
        seen = dict(scope)
        with suppress(StopIteration):  # it waits for nothing, so it needs no event loop
            self._proxies(seen, None, None).send(None)  # type: ignore[arg-type]
        return client_of(seen)

    def _note(self, scope: Scope, error: ServiceError, started: float) -> None:
        """Count and log the refusal, as the application does with its own."""
        seconds = time.monotonic() - started
        reason = error.reason if isinstance(error, Overloaded) else error.code
        self._rejection(reason).inc()
        metrics, path = self._service.metrics, scope["path"]
        metrics.request("POST", path, str(error.status)).observe(seconds)
        if access.isEnabledFor(logging.INFO) and self._lines.allows():
            client = scope.get("client")
            access.info(
                "request",
                extra={
                    "request_id": scope["request_id"],
                    "method": "POST",
                    "path": path,
                    "status": error.status,
                    "milliseconds": round(seconds * 1e3, 3),
                    "client": client[0] if client else None,
                },
            )


async def _unanswered(scope: object, receive: object, send: object) -> None:
    """Stand behind the middleware that finds the client behind trusted proxies."""


def _answer(error: ServiceError, scope: Scope) -> EarlyAnswer:
    """Return the bytes of the application's answer, in the same order as `problems.answer`."""
    problem = {
        "type": problems.TYPE_PREFIX + error.code,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "instance": scope["path"],
        "request_id": scope["request_id"],
    }
    body = json.dumps(problem, ensure_ascii=False, separators=(",", ":")).encode()
    headers = (
        f"retry-after: {problems.retry_after(error)}\r\ncontent-length: {len(body)}\r\n"
        f"content-type: {problems.MEDIA_TYPE}\r\nx-request-id: {scope['request_id']}\r\n"
        "x-content-type-options: nosniff\r\n"
    )
    return EarlyAnswer(error.status, headers.encode("latin-1"), body)
