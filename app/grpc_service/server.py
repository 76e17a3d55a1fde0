"""The gRPC server of a front end, on the event loop of its HTTP server.

An ASGI application answers the calls, so that calls pass the same steps as requests over HTTP: the
request id, the log line, the metric, API keys, rates, deadlines and permits.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.admission.semaphore import FairSemaphore
from app.grpc_service.calls import REFUSAL, Refusal, refused, scope_of
from app.grpc_service.methods import METHODS, ROUTE
from app.routes.middleware import RequestLayer
from app.service import Service
from models.domain.errors import ServiceError
from models.settings import Settings

log = logging.getLogger("darkroom.server")

MOST_CALLS = 512
"""Calls at the same time in one process. Further calls are refused."""

STREAMS = 100
"""Calls at the same time on one connection; further ones wait with their client."""

ARRIVING_BYTES = 1 << 26
"""Bytes of all messages that arrive at the same time in one process, where two messages allow it.

gRPC holds each message whole. While a message is not read, flow control keeps all but its first
64 KiB with the client."""

WINDOW = 1 << 16
"""Bytes of a message that a client may send before the message is read."""

MILLISECONDS = 1000

SHORTEST_PING = 10_000
"""Milliseconds between two keepalive pings of a client; one that sends three earlier is closed."""

METADATA = 16384
"""Bytes of the metadata of a call. grpcio does not limit their number,
and 1,800 short entries took an event loop 3 ms."""

AGE = 5
"""Times DARKROOM_IDLE_TIMEOUT after which a connection takes no more calls, however busy it is.
Libraries of gRPC connect again and lose no call. Calls that it has may take the longest deadline.
"""

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # for errors that any client can cause

_OF_CLIENTS = ("Invalid encoding on", "ExecuteBatchError raised in core")
"""Begin what grpcio logs as errors with a traceback, for metadata that are no UTF-8 and for answers
whose client has left. Any client could fill the log with them."""

_FAULT = Refusal(grpc.StatusCode.INTERNAL, "an unexpected error; it has been logged")


def is_fault(record: logging.LogRecord) -> bool:
    """Tell whether a record of grpcio is about more than the act of a single client."""
    return not str(record.msg).startswith(_OF_CLIENTS)


logging.getLogger("grpc._cython.cygrpc").addFilter(is_fault)


async def started(app: FastAPI, settings: Settings, connections: int) -> grpc.aio.Server:
    """Return a server that answers calls on at most `connections` at the port of the settings.

    The front ends of a server listen at the same port, and the kernel chooses among them. Raises
    RuntimeError if the port cannot be used.
    """
    service: Service = app.state.service
    largest = min(settings.grpc_max_message_bytes, settings.max_body_bytes)
    slots = FairSemaphore(max(2, ARRIVING_BYTES // largest))
    answering = _application(service)
    methods = {
        path.rsplit("/", 1)[1]: grpc.stream_unary_rpc_method_handler(
            partial(_answered, answering, path, app, slots)
        )
        for path in (*METHODS, ROUTE.path)
    }
    several = service.counters.front_ends > 1
    server = grpc.aio.server(
        handlers=[grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)],
        options=[("grpc.so_reuseport", int(several)), *_options(settings, largest, connections)],
        maximum_concurrent_rpcs=MOST_CALLS,
    )
    host = settings.host or "::"
    address = f"[{host}]:{settings.grpc_port}" if ":" in host else f"{host}:{settings.grpc_port}"
    if settings.tls_certificate is None:
        server.add_insecure_port(address)
    else:
        chain = settings.tls_certificate.read_bytes()
        key = settings.tls_key.read_bytes() if settings.tls_key else chain
        server.add_secure_port(address, grpc.ssl_server_credentials([(key, chain)]))
    await server.start()
    log.info("gRPC is at port %d of %s", settings.grpc_port, settings.host)
    return server


def _options(settings: Settings, largest: int, connections: int) -> list[tuple[str, int]]:
    """Return the limits of connections and of their messages."""
    idle = int(settings.idle_timeout * MILLISECONDS)
    headers = int(settings.header_timeout * MILLISECONDS)
    deadline = int(settings.max_deadline * MILLISECONDS)
    return [
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", STREAMS),
        # What lies between a soft limit and the hard one is refused at random.
        ("grpc.max_metadata_size", METADATA),
        ("grpc.absolute_max_metadata_size", METADATA),
        ("grpc.server_handshake_timeout_ms", headers),
        ("grpc.http2.settings_timeout", headers),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.max_connection_age_ms", AGE * idle),
        ("grpc.max_connection_age_grace_ms", deadline + headers),
        ("grpc.keepalive_time_ms", idle),
        ("grpc.keepalive_timeout_ms", headers),
        ("grpc.http2.min_ping_interval_without_data_ms", SHORTEST_PING),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW),
    ]


def _application(service: Service) -> ASGIApp:
    """Return the application that answers calls."""
    settings = service.settings
    routed = ExceptionMiddleware(_routed, {ServiceError: _on_error})
    app: ASGIApp = RequestLayer(routed, settings, service.metrics)
    if settings.trusted_proxies:
        trusted = [str(each) for each in settings.trusted_proxies]
        app = cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, app), trusted))
    return app


async def _answered(
    answering: ASGIApp,
    path: str,
    app: FastAPI,
    slots: FairSemaphore,
    _messages: AsyncIterator[bytes],
    context: Any,
) -> bytes:
    """Return the serialized answer of a call; end the call with a status if it has none.

    A method takes its message as a stream, which needs no change of clients: a unary call is a
    stream of a single message. grpcio would read the message of a unary method before it calls
    anything. grpcio cancels this coroutine when the client of the call leaves.
    """
    status, request_id, read = 500, "", False
    body = list[bytes]()

    async def receive() -> Message:
        nonlocal read
        if read:
            await asyncio.Event().wait()
        message = await context.read()
        if message is grpc.aio.EOF:
            return {"type": "http.disconnect"}
        read = True
        return {"type": "http.request", "body": message, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, request_id
        if message["type"] == "http.response.start":
            status = message["status"]
            request_id = dict(message["headers"]).get(b"x-request-id", b"").decode()
        else:
            body.append(message.get("body", b""))

    scope = scope_of(path, context, app, slots)
    await answering(scope, receive, send)
    named = (("x-request-id", request_id),)
    if status == 200:
        context.set_trailing_metadata(named)
        return b"".join(body)
    refusal = scope.get(REFUSAL, _FAULT)
    await context.abort(refusal.code, refusal.detail, (*named, *refusal.metadata))
    raise AssertionError("unreachable: abort raises")


class _Named:
    """A method's path where log and metrics look for that of a route."""

    def __init__(self, path: str) -> None:
        self.path = path


async def _routed(scope: Scope, receive: Receive, send: Send) -> None:
    method = METHODS.get(scope["path"])
    scope["route"] = ROUTE if method is None else _Named(scope["path"])
    if method is None:
        await ROUTE.handle(scope, receive, send)
    else:
        response = await method(Request(scope, receive, send))
        await response(scope, receive, send)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return refused(request.scope, Refusal.of(error), error.status)
