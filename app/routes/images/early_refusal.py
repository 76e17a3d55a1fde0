"""Refuse image requests by their headers, before a task, a Starlette request or a permit exists.

Under overload nearly every request is refused, and the time that refusals take is missing where the
others are computed. So admission is asked as soon as the headers have come, with the work that the
same path and query asked for last, and the whole answer is written at once. What this file does not
decide (other limits, wrong options, missing keys) is left to the application, whose answers are the
same.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import cast

from fastapi import FastAPI
from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.admission.clients import client_of
from app.admission.permits import target_of
from app.connections.early_answer import EarlyAnswer
from app.http import problems
from app.http.headers import media_type
from app.http.problems import INFERENCE
from app.http.request_lifetime import seconds_before
from app.intake.stream import is_stream
from app.routes.access_log import (
    LONGEST_PATH,
    access,
    logged_client,
    new_request_id,
    request_id_of,
)
from app.routes.images.image_route import ImageRoute, key_name
from app.routes.images.recent_refusals import PreparedRefusal, RecentRefusals, answer
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

PRESSED = 1.0
"""Seconds after a refusal in which the next requests are likely to be refused too."""

SEEN = "client_seen"
"""The key of a scope under which the client behind a trusted proxy is noted. The application finds
it again, so the client of the scope stays the proxy."""


class EarlyRefusal:
    """Decides about requests for the image routes of `app`, a running server."""

    def __init__(self, app: FastAPI) -> None:
        service = app.state.service
        assert isinstance(service, Service)
        self._service = service
        routes = [each for each in problems.routes(app.routes) if isinstance(each, ImageRoute)]
        self._paths = frozenset(each.path for each in routes if not each.param_convertors)
        self._patterns = [(each.path_regex, each.path) for each in routes if each.param_convertors]
        self._cross_origin = bool(service.settings.cors_origins)
        trusted = [str(each) for each in service.settings.trusted_proxies]
        proxied = cast(ASGI3Application, _unanswered)
        self._proxies = ProxyHeadersMiddleware(proxied, trusted) if trusted else None
        self._recent = RecentRefusals(time.monotonic)
        self._refused_at = -PRESSED
        self._lines = LineLimit(access, "refused requests")
        self._rejection = lru_cache(16)(service.metrics.rejections.labels)

    def pressed(self) -> bool:
        """Return whether a request was refused lately, and deciding twice about one does no harm.

        With a rate limit it would charge a request twice.
        """
        recently = time.monotonic() - self._refused_at < PRESSED
        return recently and self._service.admission.rate is None

    def __call__(self, scope: Scope) -> EarlyAnswer | None:
        """Return the refusal of a request, or None: the application answers it."""
        path = scope["path"]
        route = self._route(path)
        if route is None or scope["method"] != "POST":
            return None
        started = time.monotonic()
        headers = scope["headers"]
        given = dict(headers)
        if len(given) < len(headers) or (self._cross_origin and b"origin" in given):
            return None
        try:
            refusal = self._refusal(scope, given, route)
        except (InvalidParameter, Unauthorized, Forbidden):
            return None
        if refusal is None:
            return None
        if b"x-request-id" in given:
            id_ = request_id_of(scope)
            whole = answer(refusal.error, path, id_)
        else:
            id_ = new_request_id()
            whole = refusal.answer(id_)
        scope["request_id"] = id_
        self._refused_at = started
        self._log(scope, refusal.error, started)
        refusal.count(time.monotonic() - started)
        return whole

    def _route(self, path: str) -> str | None:
        """Return the path of the image route for a request's path, None if there is none."""
        if path in self._paths:
            return path
        if path.startswith(INFERENCE + "/"):
            for pattern, route in self._patterns:
                if pattern.match(path):
                    return route
        return None

    def _refusal(
        self, scope: Scope, given: dict[bytes, bytes], route: str
    ) -> PreparedRefusal | None:
        """Return the refusal of a request for the path of `route`, None if it is not refused."""
        service, path, query = self._service, scope["path"], scope["query_string"]
        admission, settings = service.admission, service.settings
        kind = given.get(b"content-type", b"").decode("latin-1")
        n_bytes = None
        if not is_stream(kind):
            n_bytes = int(given.get(b"content-length", 0))
        most = min(settings.max_body_bytes, admission.limits.bytes)
        if admission.draining or (n_bytes or 0) > most:
            return None
        client, deadline = self._client(scope), given.get(b"x-deadline-ms")
        request = client, path, query, deadline, kind
        recent = self._recent.of(request)
        seconds = 0.0 if recent else seconds_before(deadline, settings)
        error: ServiceError | None = self._rated(scope, client)
        if error is None and recent is not None:
            return recent
        if error is None:
            target = target_of(path, query, media_type(kind))
            error = admission.refusal(client, seconds, n_bytes, target)
        if error is None:
            return None
        return self._recent.note(request, error, path, self._counted(error, route))

    def _rated(self, scope: Scope, client: str) -> RateLimited | None:
        """Charge a request against the client's rate if there is one; return its refusal."""
        admission = self._service.admission
        if admission.rate is None:
            return None
        try:
            admission.charge_rate(client, 1)
        except RateLimited as error:
            return error
        scope["rated"] = True
        return None

    def _client(self, scope: Scope) -> str:
        """Return the client as `ImageRoute` names it; raise Unauthorized and Forbidden."""
        if self._service.keys is not None:
            return key_name(self._service.keys, scope)
        if self._proxies is None:
            return client_of(scope)
        seen = dict(scope)
        with suppress(StopIteration):  # it waits for nothing, so it needs no event loop
            # The middleware only hands `receive` and `send` on, and `_unanswered` uses neither.
            self._proxies(seen, None, None).send(None)  # type: ignore[arg-type]  # see above
        scope[SEEN] = seen["client"]
        return client_of(seen)

    def _counted(self, error: ServiceError, route: str) -> Callable[[float], None]:
        """Return a function that counts the refusal, as the application does with its own."""
        reason = error.reason if isinstance(error, Overloaded) else error.code
        rejection = self._rejection(reason)
        request = self._service.metrics.request("POST", route, str(error.status))

        def count(seconds: float) -> None:
            rejection.inc()
            request.observe(seconds)

        return count

    def _log(self, scope: Scope, error: ServiceError, started: float) -> None:
        """Log the refusal, unless there were too many in this second."""
        if access.isEnabledFor(logging.INFO) and self._lines.allows():
            access.info(
                "request",
                extra={
                    "request_id": scope["request_id"],
                    "method": "POST",
                    "path": scope["path"][:LONGEST_PATH],
                    "status": error.status,
                    "milliseconds": round((time.monotonic() - started) * 1e3, 3),
                    "client": logged_client(scope, scope.get(SEEN, scope.get("client"))),
                },
            )


async def _unanswered(scope: object, receive: object, send: object) -> None:
    """Stand behind the middleware that finds the client behind trusted proxies."""
