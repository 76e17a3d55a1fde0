"""Give every request its id, its metric and its log line, and end answers that are not read."""

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.cross_origin import METHODS, cross_origin
from app.http.headers import header
from app.http.problems import answer
from app.routes.foreign_pages import ForeignPages
from app.telemetry.metrics import Metrics
from models.domain.alarms import alarms, interrupted
from models.domain.errors import Cancelled, InternalError, ServiceError
from models.domain.uncounted import counts
from models.settings import Settings

faults = logging.getLogger("darkroom.faults")
access = logging.getLogger("darkroom.access")

_NOSNIFF = (b"x-content-type-options", b"nosniff")
_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""The form of W3C Trace Context, of which other values are not logged: they may have 64 KiB."""

NAME = "client_name"
"""The key of a scope under which a route notes the name of the API key that a request has."""

LONGEST_PATH = 1000
"""Characters of a path that are logged; as JSON each may take six bytes."""

_QUIET = (
    *("/livez", "/readyz", "/startupz", "/health", "/healthz", "/metrics"),
    *("/v2/health/live", "/v2/health/ready"),
    *(f"/inference.GRPCInferenceService/Server{each}" for each in ("Live", "Ready")),
)

_QUIET_ROUTES = ("/page/{name}", "/filters/{name}/thumbnail")
"""Routes of the files and pictures of the page: opening the page asks for dozens of them."""

_METHODS = frozenset((*METHODS, "OPTIONS"))
"""Methods that some route, or CORS, answers; in metrics all others are `other`. The parser knows
34, and clients that sent each of them to each path made a hundred times as many series."""

OTHER = "other"


class AccessLog:
    """The outermost ASGI middleware, so that it logs what the client receives."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        body_timeout: float,
        cross_origin: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    ) -> None:
        self._app = cross_origin(app)
        self._cross_origin = cross_origin
        self._observed = metrics.observations.request
        self._body_timeout = body_timeout

    @classmethod
    def of(cls, app: ASGIApp, settings: Settings, metrics: Metrics) -> "AccessLog":
        """Return the middleware around `app` as the settings ask for it."""
        return cls(
            ForeignPages(app, settings),
            metrics,
            settings.body_timeout,
            cross_origin(settings.cors_origins),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope["request_id"] = request_id_of(scope)
        start, status, streamed = time.monotonic(), 0, False

        async def marked(message: Message) -> None:
            nonlocal status, streamed
            if message["type"] == "http.response.start":
                status = message["status"]
                scope["answering"] = True
                named = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message.get("headers", ()), named, _NOSNIFF]}
            streamed = streamed or message.get("more_body", False)
            await (self._taken(send(message)) if streamed else send(message))

        # Every GET route answers HEAD too: the server omits the body, because its scope says HEAD.
        seen = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self._app(seen, receive, marked)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:
            if status or not alarms().ended:
                raise
            await self._answer_with(interrupted(), scope, receive, marked)
        except Exception as error:  # the server and the client are protected from a fault of ours
            faults.error("unhandled error", exc_info=error, extra={"request_id": request_id})
            if not status:
                fault = InternalError("an unexpected error; it has been logged")
                await self._answer_with(fault, scope, receive, marked)
        finally:
            scope["route"], scope[NAME] = seen.get("route"), seen.get(NAME)
            self._note(scope, status or Cancelled.status, time.monotonic() - start)

    async def _answer_with(
        self, error: ServiceError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request that the application has not answered."""
        await self._cross_origin(answer(error, Request(scope)))(scope, receive, send)

    async def _taken(self, sending: Awaitable[None]) -> None:
        """Await a send; raise ClientDisconnect if the client reads nothing for `body_timeout`.

        This applies to the last message too, which waits until the one before has been read.
        """
        try:
            async with asyncio.timeout(self._body_timeout):
                await sending
        except TimeoutError:
            raise ClientDisconnect from None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in _METHODS else OTHER
        self._observed(method, route, status, seconds)
        if not counts():
            return
        quiet = scope["path"] in _QUIET or route in _QUIET_ROUTES
        level = logging.DEBUG if quiet else logging.INFO
        if access.isEnabledFor(level):
            access.log(
                level,
                "request",
                extra={
                    "request_id": scope["request_id"],
                    "traceparent": _traceparent_of(scope),
                    "method": scope["method"],
                    "path": scope["path"][:LONGEST_PATH],
                    "status": status,
                    "milliseconds": round(seconds * 1e3, 3),
                    "client": logged_client(scope, scope.get("client")),
                },
            )


def logged_client(scope: Scope, client: tuple[str, int] | None) -> str | None:
    """Return the client of a request as the log names it: by its API key, or its address."""
    name: str | None = scope.get(NAME)
    return name or (client[0] if client else None)


def install(app: Starlette, settings: Settings, metrics: Metrics) -> None:
    """Put the middleware around an application."""
    app.add_middleware(AccessLog.of, settings=settings, metrics=metrics)


def _traceparent_of(scope: Scope) -> str | None:
    given = header(scope, b"traceparent")
    return given if given is not None and _TRACEPARENT.fullmatch(given) else None


def request_id_of(scope: Scope) -> str:
    """Return the client's own id if it is printable and has at most 128 characters.

    Without one, return a new id.
    """
    given = header(scope, b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given.encode("latin-1")):
        return given
    return new_request_id()


def new_request_id() -> str:
    """Return 32 random hexadecimal digits.

    They need not be secret. Random bytes of the kernel would release the GIL, and taking it back
    from threads that decode took a tenth of an event loop's time.
    """
    return f"{random.getrandbits(128):032x}"
