"""Answers that are decided from a request's headers, before the application sees the request."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from app.connections.early_answer import EarlyAnswer
from app.connections.http1.cycle import CLOSE, SHORT_REST
from app.connections.phases import Phase
from tests.connection import Line, connected

POST = b"POST /busy HTTP/1.1\r\nHost: x\r\n"
SHORT = POST + b"Content-Length: 5\r\n\r\n"
ANSWER = EarlyAnswer(503, b"content-length: 4\r\n", b"busy")


class Application:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def busy(application: Application) -> Line:
    """Return a connection that answers early for one path."""
    line = connected(application)
    line.guard.decide = lambda scope: ANSWER if scope["path"] == "/busy" else None
    return line


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_refused_request_reaches_no_application_and_its_connection_is_kept() -> None:
    async def scenario() -> None:
        application = Application()
        line = busy(application)
        answer = await line.send(SHORT + b"hello")
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert answer.endswith(b"\r\n\r\nbusy")
        assert CLOSE[0] not in answer
        assert line.phase() is Phase.ONCE
        again = await line.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert again.startswith(b"HTTP/1.1 204")
        assert application.asked == ["/"]

    run(scenario)


def test_the_answer_comes_before_the_body_and_a_short_body_is_thrown_away() -> None:
    async def scenario() -> None:
        line = busy(Application())
        assert (await line.send(SHORT)).endswith(b"busy")
        assert line.phase() is Phase.DISCARD
        assert await line.send(b"hello") == b""
        assert line.phase() is Phase.ONCE
        assert (await line.send(SHORT + b"hello")).endswith(b"busy")

    run(scenario)


@pytest.mark.parametrize(
    "more",
    [
        b"Content-Length: %d\r\n" % (SHORT_REST + 1),
        b"Content-Length: 5\r\nConnection: close\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nExpect: 100-continue\r\n",
    ],
)
def test_a_connection_that_cannot_be_kept_lingers_until_the_client_closes(more: bytes) -> None:
    async def scenario() -> None:
        line = busy(Application())
        answer = await line.send(POST + more + b"\r\n")
        assert answer.count(b"connection: close\r\n") == 1
        assert line.phase() is Phase.LINGER
        assert line.transport.half_closed
        assert not line.transport.closed

    run(scenario)


def test_requests_sent_ahead_are_answered_in_their_order() -> None:
    async def scenario() -> None:
        application = Application()
        line = busy(application)
        get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await line.send(get + SHORT + b"hello" + SHORT + b"hello" + get)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [
            b"204",
            b"503",
            b"503",
            b"204",
        ]
        assert application.asked == ["/", "/"]

    run(scenario)


def test_a_connection_of_a_server_that_leaves_is_closed_with_the_answer() -> None:
    async def scenario() -> None:
        line = busy(Application())
        line.protocol.server_state.default_headers = [CLOSE]
        answer = await line.send(SHORT + b"hello")
        assert answer.count(b"connection: close\r\n") == 1
        assert line.transport.closed

    run(scenario)


def test_requests_of_http_1_0_and_of_clients_that_do_not_read_go_to_the_application() -> None:
    async def scenario() -> None:
        application = Application()
        line = busy(application)
        line.protocol.pause_writing()
        assert await line.send(SHORT + b"hello") == b""
        line.protocol.resume_writing()
        await busy(application).send(b"POST /busy HTTP/1.0\r\n\r\n")
        assert application.asked == ["/busy", "/busy"]

    run(scenario)
