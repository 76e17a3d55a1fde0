"""Answer calls by an ASGI application, so that they meet what requests over HTTP meet.

That is the request id, the log line, the metric, API keys, rates, deadlines and permits. Every
method takes its message as a stream, which needs no change of clients: a unary call is a stream of
one message. grpcio would read the message of a unary method before it calls anything.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import grpc
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.admission.clients import client_of
from app.grpc_service.describing import METHODS
from app.grpc_service.infer import ROUTE
from app.grpc_service.limits.gate import Gate
from app.grpc_service.limits.message_slots import message_slots
from app.grpc_service.scope import REFUSAL, refused, scope_of
from app.grpc_service.status import Refusal
from app.routes.access_log import AccessLog
from app.service import Service
from models.domain.errors import Overloaded, ServiceError

MOST_CALLS = 512
"""Calls at the same time in one process, which waits for their messages or answers."""

REASON = "client_calls"
"""The reason in the metrics of calls that are refused because their client has as many."""

_UNKNOWN = grpc.StatusCode.UNAVAILABLE, "use the port of DARKROOM_GRPC_PORT"

_FAULT = Refusal(grpc.StatusCode.INTERNAL, "an unexpected error; it has been logged")


class Calls:
    """Answers the calls of all methods; `largest` are the bytes that a message has at most.

    Clients reach it through the `gate`.
    """

    def __init__(self, app: FastAPI, service: Service, largest: int, gate: Gate) -> None:
        self._fastapi = app
        self._gate = gate
        self._slots = message_slots(largest)
        self._clients = Counter[str]()
        self._rejected = service.metrics.rejections.labels(REASON)
        settings = service.settings
        self._least = settings.min_body_rate
        routed = ExceptionMiddleware(self._routed, {ServiceError: _on_error})
        self._app: ASGIApp = AccessLog.of(routed, settings, service.metrics)
        if settings.trusted_proxies:
            trusted = [str(each) for each in settings.trusted_proxies]
            wrapped = ProxyHeadersMiddleware(cast(Any, self._app), trusted)
            self._app = cast(ASGIApp, wrapped)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return what grpcio calls for each method."""
        methods = {path.rsplit("/", 1)[1]: self._handler(path) for path in (*METHODS, ROUTE.path)}
        return grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)

    def _handler(self, path: str) -> grpc.RpcMethodHandler:
        async def answered(messages: AsyncIterator[bytes], context: Any) -> bytes:
            return await self._answered(path, messages, context)

        return grpc.stream_unary_rpc_method_handler(answered)

    async def _answered(self, path: str, messages: AsyncIterator[bytes], context: Any) -> bytes:
        """Return the serialized answer of one call; ends it with a status if it has none."""
        scope = scope_of(path, context, self._fastapi, self._slots)
        _, port = scope["client"] or ("", 0)
        scope["client"] = self._gate.address(port)
        if scope["client"] is None:  # it has left, or is another program of this host
            await context.abort(*_UNKNOWN)
        sent = _Sent()
        await self._app(scope, _receiving(messages), sent)
        self._let_read(port, sum(map(len, sent.body)))
        refusal = None if sent.status == 200 else scope.get(REFUSAL, _FAULT)
        named = (("x-request-id", sent.request_id),)
        if refusal is None:
            context.set_trailing_metadata(named)
            return b"".join(sent.body)
        await context.abort(refusal.code, refusal.detail, (*named, *refusal.metadata))
        raise AssertionError("unreachable: abort raises")

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = METHODS.get(scope["path"])
        scope["route"] = ROUTE if method is None else _Named(scope["path"])
        self._count(client_of(scope))
        if method is None:
            await ROUTE.handle(scope, receive, send)
        else:
            response = await method(Request(scope, receive, send))
            await response(scope, receive, send)

    def _count(self, client: str) -> None:
        """Count one call of a client, which may have half of all; raises Overloaded.

        The call counts until its task ends, because grpcio sends the answer in that task after the
        handler has returned, and waits there for a client that does not read it.
        """
        if self._clients[client] >= MOST_CALLS // 2:
            self._rejected.inc()
            raise Overloaded(
                f"{client} has {MOST_CALLS // 2} calls at the same time, as many as one client may "
                "have; wait for answers",
                retry_after=1.0,
                reason=REASON,
            )
        task = asyncio.current_task()
        assert task is not None
        self._clients[client] += 1
        task.add_done_callback(lambda _: self._end(client))

    def _let_read(self, port: int, size: int) -> None:
        """End the client's connection if this task does not end soon, which sends the answer now.

        The client has the time of headers, and beside it that of the lowest rate of a body.
        """
        if not self._least:
            return
        seconds = self._gate.seconds + size / self._least
        late = asyncio.get_running_loop().call_later(seconds, self._gate.end, port)
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: late.cancel())

    def _end(self, client: str) -> None:
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]


class _Named:
    """A method's path where log and metrics look for that of a route."""

    def __init__(self, path: str) -> None:
        self.path = path


class _Sent:
    """The `send` of one request: keeps its status, its id and its body."""

    def __init__(self) -> None:
        self.status = 500
        self.request_id = ""
        self.body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.request_id = dict(message["headers"]).get(b"x-request-id", b"").decode()
        else:
            self.body.append(message.get("body", b""))


def _receiving(messages: AsyncIterator[bytes]) -> Receive:
    """Return the `receive` of one request: its message, and then nothing.

    grpcio ends the messages of a call whose client has left, or cancels the call's task.
    """
    read = False

    async def receive() -> Message:
        nonlocal read
        if read:
            await asyncio.Event().wait()
        following = cast(AsyncGenerator[bytes, None], aiter(messages))
        body = await anext(following, None)
        await following.aclose()  # it holds the message as long as it waits for the next one
        if body is None:
            return {"type": "http.disconnect"}
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return refused(request.scope, Refusal.of(error), error.status)
