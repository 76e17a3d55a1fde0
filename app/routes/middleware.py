"""The layer around the endpoints: ids, logs, metrics, CORS, foreign pages, errors as problems."""

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable
from ipaddress import ip_address
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute, APIRouter
from opentelemetry.trace import get_current_span
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.problems import ERROR, EVERY_ANSWER, LONGEST_GIVEN, answer, answer_to, invalid
from app.http.request import DEPARTURE, header
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import HEALTH, QUIET
from models.domain.alarms import alarms, interrupted
from models.domain.errors import (
    Cancelled,
    ForeignHost,
    ForeignOrigin,
    InternalError,
    NotFound,
    ServiceError,
)
from models.domain.job import counts
from models.settings import Settings

faults = logging.getLogger("darkroom.faults")
access = logging.getLogger("darkroom.access")

NAME = "client_name"
"""The key of a scope under which a route notes the name of the API key that a request has."""

METRICS_PORT = "darkroom.metrics_port"
"""The key in a scope that tells the route of the metrics that a request came to their own port."""

LONGEST_PATH = 1000
"""Characters of a path that are logged; as JSON each may take six bytes."""

OTHER = "other"
"""The method, in metrics, of requests with a method that no route takes. The parser knows 34, and
clients that sent each of them to each path made a hundred times as many series."""

_QUIET_ROUTES = ("/page/{name}", "/filters/{name}/thumbnail")
"""Routes of the files and pictures of the page: opening the page asks for dozens of them."""

_METHODS = ("GET", "HEAD", "POST", "DELETE")
_SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change and compute nothing. A page of another origin can send them, and cannot read
the answers."""

_EXPOSED = (
    *("X-Request-ID", "Retry-After", "Server-Timing", "X-Model", "X-Filter-Spec", "X-Quality"),
    "ETag",
)
"""Headers of answers that scripts of other origins may read, beside those that CORS allows."""

_OWN = ("same-origin", "none")
"""Values of Sec-Fetch-Site of requests by a page of this server, or by a person at the browser."""

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""The form of W3C Trace Context, values of another form, which may have 64 KiB, are not logged."""


def install(app: FastAPI, images: APIRouter, settings: Settings, metrics: Metrics) -> None:
    """Put the layer around an application that is complete otherwise."""
    router = AsyncExitStackMiddleware(app.router)
    direct = {("POST", each.path): each for each in images.routes if isinstance(each, APIRoute)}

    def routed(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # FastAPI's search and its exit stack cost 4 µs a request; traces need its search.
        route = direct.get((scope.get("method", ""), scope.get("path", "")))
        if route is None or "fastapi.telemetry" in scope:
            return router(scope, receive, send)
        scope["route"] = route
        return route.handle(scope, receive, send)

    app.middleware_stack = RequestLayer(app, routed, settings, metrics)


class RequestLayer:
    """The whole application: every request gets its id, its metric and its log line.

    An error of the request becomes its answer here. A request that a page of another origin lets a
    browser send is refused. The server calls this layer in place of `app`, whose own calls only
    traces need.
    """

    def __init__(self, app: FastAPI, routed: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._application = app
        self._routed = routed
        self._origins = settings.cors_origins
        allowed = settings.allowed_hosts or (() if is_loopback(settings.host) else ("*",))
        self._hosts = frozenset(each.lower() for each in (*allowed, settings.host))
        self._app = self._with_cors(self._guarded) if self._origins else self._guarded
        self._observed = metrics.on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._routed(scope, receive, send)
            return
        scope["app"] = self._application
        request_id = scope["request_id"] = request_id_of(scope)
        if "fastapi.telemetry" in scope:
            get_current_span().set_attribute("darkroom.request_id", request_id)
        start, status = time.monotonic(), 0

        def marked(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request_id.encode())
                message["headers"] = [*message.get("headers", ()), named, *EVERY_ANSWER]
            return send(message)

        # Every GET route answers HEAD too: the server omits the body, because its scope says HEAD.
        seen = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            await self._app(seen, receive, marked)
        except ClientDisconnect:
            pass
        except Cancelled as error:  # the client has left, or its answer was dropped
            if not status:
                await self._with_cors(answer(error, scope))(scope, receive, marked)
        except asyncio.CancelledError:
            if status or not alarms().ended:
                raise
            await self._with_cors(answer(interrupted(), scope))(scope, receive, marked)
        except RequestValidationError as error:  # the framework raises it before an answer
            found: list[Any] = [{**each, "loc": each["loc"][1:]} for each in error.errors()]
            await self._with_cors(answer(invalid(found), scope))(scope, receive, marked)
        except Exception as error:
            response = None if status else answer_to(error, scope)
            error.__traceback__ = None if response else error.__traceback__  # its frames hold much
            if response is None:  # the server and the client are protected from a fault of ours
                faults.error("unhandled error", exc_info=error, extra={"request_id": request_id})
                response = answer(InternalError("an unexpected error; it has been logged"), scope)
            if not status:
                await self._with_cors(response)(scope, receive, marked)
        finally:
            scope["route"], scope[NAME] = seen.get("route"), seen.get(NAME)
            self._note(scope, status or Cancelled.status, time.monotonic() - start)

    def _guarded(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request that no foreign page sends; raises ForeignHost and ForeignOrigin.

        The error that a scope has already is raised, too.
        """
        if (error := scope.get(ERROR) or self.foreign(scope)) is not None:
            raise error
        return self._routed(scope, receive, send)

    def foreign(self, scope: Scope) -> ServiceError | None:
        """Return the error that refuses a request of a page of another origin, or None.

        A browser sends a form, or text, to any address without asking the server first, and from a
        page on any site it reaches servers that only this machine can reach. Two headers tell of
        that, which pages cannot set: Origin and Sec-Fetch-Site. Programs other than browsers send
        neither. A name that an attacker's name server points to 127.0.0.1 makes a page of the same
        origin of it (DNS rebinding); the Host header tells of that. Health checks are answered
        whatever their Host, and so are metrics on a port of their own.
        """
        host = header(scope, b"host") or ""
        # Behind another server, such as Ray's, this process does not know its names.
        listens = DEPARTURE in scope and METRICS_PORT not in scope
        if "*" not in self._hosts and host and listens and scope["path"] not in HEALTH:
            before, colon, _ = host.rpartition(":")
            name = (before if colon and not host.endswith("]") else host).strip("[]").lower()
            if name not in self._hosts and not is_loopback(name):
                return ForeignHost(
                    f"the Host header names {name[:LONGEST_GIVEN]!r}, which is no name of this "
                    "server; use localhost, or let the operator add the name to "
                    "DARKROOM_ALLOWED_HOSTS"
                )
        if scope["method"] in _SAFE or "*" in self._origins:
            return None
        origin, site = header(scope, b"origin"), header(scope, b"sec-fetch-site")
        if origin in self._origins or site in _OWN:
            return None
        if site is None and (origin is None or _is_own(origin, host)):
            return None
        return ForeignOrigin(
            f"the request comes from a page of {(origin or 'another site')[:LONGEST_GIVEN]}, "
            "which may not use this server; let the operator add its origin to "
            "DARKROOM_CORS_ORIGINS"
        )

    def _with_cors(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose answers carry CORS headers if there are any."""
        if not self._origins:
            return app
        return CORSMiddleware(
            app,
            allow_origins=self._origins,
            allow_methods=_METHODS,
            allow_headers=("*",),
            expose_headers=_EXPOSED,
        )

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in (*_METHODS, "OPTIONS") else OTHER
        self._observed(method, route, status, seconds)
        if not counts():
            return
        quiet = scope["path"] in QUIET or route in _QUIET_ROUTES
        level = logging.DEBUG if quiet else logging.INFO
        if access.isEnabledFor(level):
            client = scope.get("client")
            trace = header(scope, b"traceparent")
            access.log(
                level,
                "request",
                extra={
                    "request_id": scope["request_id"],
                    "traceparent": trace if trace and _TRACEPARENT.fullmatch(trace) else None,
                    "method": scope["method"],
                    "path": scope["path"][:LONGEST_PATH],
                    "status": status,
                    "milliseconds": round(seconds * 1e3, 3),
                    "client": scope.get(NAME) or (client[0] if client else None),
                },
            )


def request_id_of(scope: Scope) -> str:
    """Return the client's own id if it is printable and has at most 128 characters.

    Without one, return 32 random hexadecimal digits. They need not be secret: random bytes of the
    kernel would release the GIL, and taking it back from threads that decode took a tenth of an
    event loop's time.
    """
    given = header(scope, b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given.encode("latin-1")):
        return given
    return f"{random.getrandbits(128):032x}"


def is_loopback(name: str) -> bool:
    """Return whether a host, without a port, is this machine by its name or its address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_own(origin: str, host: str) -> bool:
    """Return whether an origin has the name and the port of a Host header."""
    scheme, _, address = origin.lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return bool(address) and address.removesuffix(port) == host.lower().removesuffix(port)


def metrics_only(app: ASGIApp) -> ASGIApp:
    """Return an application that passes requests for the metrics to `app`; all else is 404."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/metrics":
            await app({**scope, METRICS_PORT: True}, receive, send)
            return
        error = NotFound(f"there is no {scope['path'][:LONGEST_GIVEN]} on this port; GET /metrics")
        await answer(error, scope)(scope, receive, send)

    return answered
