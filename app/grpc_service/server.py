"""The gRPC server of a front end, on the event loop of its HTTP server.

Each call is converted to a request for `/v2` of the same application, so calls pass the same steps
as requests over HTTP: the request id, the log line, the metric, API keys, rates, deadlines and
permits. Sources: https://grpc.io/docs/guides/status-codes/ and
https://github.com/grpc/proposal/blob/master/A6-client-retries.md.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

import grpc
import grpc.aio
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.admission.clients import client_of
from app.admission.semaphore import FairSemaphore
from app.grpc_service.messages import PATHS, HttpRequest, message_class, reply_of, request_of
from app.http.problems import ERROR, retry_after, shortened
from app.http.request import HEADER, before, seconds_of
from app.intake.inference import HEADER as INFERENCE_HEADER
from app.intake.json_items import in_parsing_thread
from app.service import Service
from models.domain.deadline import Deadline
from models.domain.errors import Forbidden, InternalError, Overloaded, ServiceError, Unauthorized
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

AT_ONCE, PIECE = 1 << 16, 1 << 18
"""Bytes of a message that is converted on the event loop, and of a piece of a body."""

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

FORWARDED = (
    "authorization",
    "x-api-key",
    "x-request-id",
    "x-forwarded-for",
    "traceparent",
    "tracestate",
)
"""Metadata that become headers."""

LONGEST_DETAIL = 1000
"""Characters of a status, which stands in a header line of its own."""

_DEADLINE = HEADER.lower()

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # for errors that any client can cause

_OF_CLIENTS = ("Invalid encoding on", "ExecuteBatchError raised in core")
"""Begin what grpcio logs as errors with a traceback, for metadata that are no UTF-8 and for answers
whose client has left. Any client could fill the log with them."""

logging.getLogger("grpc._cython.cygrpc").addFilter(
    lambda record: not str(record.msg).startswith(_OF_CLIENTS)
)


async def started(app: FastAPI, settings: Settings, connections: int) -> grpc.aio.Server:
    """Return a server that answers calls on at most `connections` at the port of the settings.

    The front ends of a server listen at the same port, and the kernel chooses among them. Raises
    RuntimeError if the port cannot be used.
    """
    service: Service = app.state.service
    largest = min(settings.grpc_max_message_bytes, settings.max_body_bytes)
    calls = _Calls(app, settings, FairSemaphore(max(2, ARRIVING_BYTES // largest)))
    methods = {
        name: grpc.stream_unary_rpc_method_handler(partial(calls.answer, name)) for name in PATHS
    }
    several = service.admission.counters.front_ends > 1
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


class _Calls:
    """Answers calls by an application; each message has one of `slots` until its body is read."""

    def __init__(self, app: FastAPI, settings: Settings, slots: FairSemaphore) -> None:
        self._app = app
        self._settings = settings
        self._slots = slots
        trusted = [str(each) for each in settings.trusted_proxies]
        self._proxies = ProxyHeadersMiddleware(cast(Any, _nothing), trusted)

    async def answer(self, method: str, _messages: AsyncIterator[bytes], context: Any) -> bytes:
        """Return the serialized answer of a call; end the call with a status if it has none.

        A method takes its message as a stream, which needs no change of clients: a unary call is a
        stream of a single message. grpcio would read the message of a unary method before it calls
        anything. grpcio cancels this coroutine when the client of the call leaves.
        """
        scope = scope_of(context)
        await self._proxies(cast(Any, scope), cast(Any, None), cast(Any, None))
        async with AsyncExitStack() as slot:
            status, headers, body = await self._asked(method, scope, context, slot)
        named = (("x-request-id", headers.get(b"x-request-id", b"").decode()),)
        if status == 200 or (status == 503 and method.endswith("Ready")):
            context.set_trailing_metadata(named)
            return reply_of(method, status == 200, headers, body)
        fault = InternalError("an unexpected error; it has been logged")
        code, detail, metadata = refusal_of(scope[ERROR] or fault)
        await context.abort(code, detail, (*named, *metadata))
        raise AssertionError("unreachable: abort raises")

    async def _read(
        self, method: str, scope: Scope, context: Any, slot: AsyncExitStack
    ) -> HttpRequest:
        """Return the request of a call, whose message has a slot; `scope` gets its headers.

        Methods of the server need no message, so no message of others delays them.
        """
        if method.startswith("Server"):
            return HttpRequest(PATHS[method])
        keys = self._app.state.service.keys
        if keys is not None and method == "ModelInfer":
            keys.client_of(scope)
        seconds = min(seconds_of(scope, self._settings), context.time_remaining() or math.inf)
        deadline = Deadline(time.monotonic() + seconds)
        await before(deadline, slot.enter_async_context(self._slots.hold(client_of(scope))))
        message = await before(deadline, context.read())
        if message is grpc.aio.EOF:
            message = b""
        made: list[HttpRequest] = []  # the future of a thread keeps its result for long

        def convert() -> None:
            made.append(request_of(method, message, self._settings))

        if len(message) <= AT_ONCE:
            convert()
        else:
            await in_parsing_thread(convert)
        request = made.pop()
        left = max(1, int(deadline.remaining(time.monotonic()) * MILLISECONDS))
        described = {
            "content-type": "application/octet-stream",
            "content-length": str(len(request.body)),
            INFERENCE_HEADER.lower(): str(request.head),
        }
        scope["headers"] = [
            *(each for each in scope["headers"] if each[0] != _DEADLINE.encode()),
            (_DEADLINE.encode(), b"%d" % left),
            *((key.encode(), text.encode()) for key, text in described.items() if request.body),
        ]
        return request

    async def _asked(
        self, method: str, scope: Scope, context: Any, slot: AsyncExitStack
    ) -> tuple[int, Mapping[bytes, bytes], bytes]:
        """Return the status, the headers and the body of the application's answer."""
        path, content = PATHS[method], b""
        try:
            path, _, content = await self._read(method, scope, context, slot)
        except (Unauthorized, Forbidden):
            pass  # the application refuses the key too, and counts the refusal
        except ServiceError as error:
            scope[ERROR] = error.with_traceback(None)  # its frames hold the message
        scope["method"], scope["path"] = "POST" if method == "ModelInfer" else "GET", path
        place, status, headers, body = 0, 500, dict[bytes, bytes](), list[bytes]()

        async def receive() -> Message:
            nonlocal place, content
            if place and not content:
                await asyncio.Event().wait()
            piece = content[place : place + PIECE]
            place += PIECE
            if place >= len(content):
                content = b""  # or each call that waits would keep its message
                await slot.aclose()
            return {"type": "http.request", "body": piece, "more_body": bool(content)}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.update(message["headers"])
            else:
                body.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, headers, b"".join(body)


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """End where the client of a call is known."""


def scope_of(context: Any) -> Scope:
    """Return the scope of a call: its client, and the metadata that are headers."""
    headers = [
        (key.encode(), value.encode() if isinstance(value, str) else value)
        for key, value in context.invocation_metadata() or ()
        if key in (*FORWARDED, _DEADLINE)
    ]
    return {
        "type": "http",
        ERROR: None,
        "http_version": "2",
        "scheme": "http",
        "query_string": b"",
        "headers": headers,
        "client": client_of_peer(context.peer()),
    }


def client_of_peer(peer: str) -> tuple[str, int] | None:
    """Return host and port of gRPC's name of a peer, `ipv4:127.0.0.1:80` or `ipv6:%5B::1%5D:80`."""
    kind, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return host.strip("[]"), int(port)


_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""Codes by the status that HTTP would have; all others mean that the request is wrong."""

_Status, _RetryInfo = message_class("google.rpc.Status"), message_class("google.rpc.RetryInfo")


def refusal_of(
    error: ServiceError,
) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Return the code, the detail and the trailing metadata of a call that ends with an error.

    The metadata say when to try again, for people, clients and libraries, if that helps.
    """
    code = _CODES.get(error.status, grpc.StatusCode.INVALID_ARGUMENT)
    if isinstance(error, Overloaded):
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
    detail, seconds = shortened(error.detail, LONGEST_DETAIL), retry_after(error)
    if seconds is None:
        return code, detail, ()
    delay = _RetryInfo()
    delay.retry_delay.seconds = seconds
    status = _Status(code=code.value[0], message=detail)
    status.details.add().Pack(delay)
    metadata = (
        ("retry-after", str(seconds)),
        ("grpc-retry-pushback-ms", str(seconds * 1000)),
        ("grpc-status-details-bin", status.SerializeToString()),
    )
    return code, detail, metadata
