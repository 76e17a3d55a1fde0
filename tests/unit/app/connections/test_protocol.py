"""One connection: what comes before a request, after its answer, and instead of either."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from app.connections.protocol import AT_ONCE, LINGER, MOST_AHEAD, READING, Phase
from tests.connection import connected

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:12])


def code(answer: bytes) -> str:
    """Return the code of an answer that is a problem."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"x-content-type-options: nosniff" in head
    found: str = json.loads(body)["code"]
    return found


class Reader:
    """An application that reads every body to its end, and remembers."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.scopes: list[Scope] = []
        self.disconnected = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected += 1
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"read", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Waiting:
    """An application that answers when a test releases it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})


@pytest.mark.parametrize(
    ("request_", "length", "at_once"),
    [
        (GET, b"4", False),
        (b"HEAD" + GET[3:], b"4", True),
        (GET, None, True),
        (b"GET / HTTP/1.0\r\n\r\n", None, True),
    ],
)
async def test_only_the_head_of_a_body_that_follows_whole_waits_for_it(
    request_: bytes, length: bytes | None, at_once: bool
) -> None:
    before = list[int]()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [] if length is None else [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        before.append(len(line.transport.written))
        await send({"type": "http.response.body", "body": b"body"})

    line = connected(app)
    assert status(await line.send(request_)) == 200
    assert bool(before[0]) is at_once


async def test_headers_that_trickle_are_408_whatever_comes_meanwhile() -> None:
    line = connected(header_timeout=10.0)
    await line.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
    for _ in range(3):
        assert await line.wait(3) == b""
        await line.send(b"a: b\r\n")
    assert code(await line.wait(2)) == "slow_headers"
    assert line.transport.half_closed
    assert line.ended == ["slow_headers"]


async def test_a_connection_has_the_idle_time_anew_after_every_answer() -> None:
    line = connected(idle_timeout=60.0)
    for _ in range(3):
        await line.wait(59)
        assert await line.send(GET[:20]) == b""
        await line.wait(9)  # the headers have ten seconds from their own first byte
        assert status(await line.send(GET[20:])) == 200
    assert await line.wait(61) == b""
    assert line.transport.closed


URL = b"GET /" + b"u" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("limits", "pieces", "refusal"),
    [
        ({"header_lines": 99}, [GET[:-2], b"a: b\r\n" * 98, b"\r\n"], ""),
        ({"header_lines": 99}, [GET[:-2], b"a: b\r\n" * 99, b"\r\n"], "headers_too_large"),
        ({}, [GET[:-2] + b"a: " + b"b" * 70_000 + b"\r\n\r\n"], "headers_too_large"),
        ({}, [GET[:-2] + b"a: ", *[b"b" * 100] * 656], "headers_too_large"),
        ({}, [GET[:-2] + b"a: ", b"b" * 70_000, b"b"], "headers_too_large"),
        ({"url_bytes": 2001}, [URL], ""),
        ({}, [POST + b"Content-Length: %b1\r\n\r\na" % (b"0" * 5000)], ""),
        ({"url_bytes": 1999}, [URL], "url_too_long"),
        ({"url_bytes": 99, "header_bytes": 1999}, [b"GET /", *[b"u" * 500] * 4], "url_too_long"),
        ({"header_bytes": 1024}, [CHUNKED, b"1;", *[b"e" * 256] * 5], "malformed_request"),
        ({"header_bytes": 1024}, [CHUNKED, b"0\r\n", b"a: b\r\n" * 200], "malformed_request"),
        ({}, [CHUNKED, b"3\r\nabc\r\n" * 5000, b"0\r\n\r\n"], ""),
        ({}, [CHUNKED, *[b"1\r\nx\r\n" * 8192] * 9], "malformed_request"),
    ],
)
async def test_heads_and_frames_of_chunks_are_bounded(
    limits: dict[str, Any], pieces: list[bytes], refusal: str
) -> None:
    line = connected(Reader(), **limits)
    answer = await line.send(*pieces)
    assert (code(answer) if refusal else status(answer)) == (refusal or 200)
    assert line.transport.half_closed is bool(refusal)


async def test_many_small_chunks_are_appended_without_a_copy_of_the_chunks_before_them() -> None:
    line = connected(Waiting())
    await line.send(CHUNKED + b"3\r\nabc\r\n" * 2)
    body = line.protocol.cycle.body
    await line.send(b"3\r\nabc\r\n" * 9)
    assert line.protocol.cycle.body is body
    assert body == b"abc" * 11
    line.protocol.connection_lost(None)


async def test_the_end_of_a_large_body_is_not_counted_to_the_next_headers() -> None:
    app = Reader()
    line = connected(app, header_bytes=1024)
    await line.send(POST + b"Content-Length: 5000\r\n\r\n" + b"x" * 10)
    assert await line.send(b"x" * 4990 + GET[:20]) != b""
    assert status(await line.send(GET[20:])) == 200
    assert app.bodies == [b"x" * 5000, b""]


@pytest.mark.parametrize(
    "request_",
    [
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"NONSENSE / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        POST + b"Transfer-Encoding: identity\r\n\r\n",
        POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
        POST
        + b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\na: b\r\n c\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_400_and_the_end(request_: bytes) -> None:
    line = connected()
    answer = await line.send(request_)
    assert status(answer) == 400
    assert code(answer) == "malformed_request"
    assert b"connection: close" in answer
    assert await line.send(GET) == b""


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"http://x", "/"), (b"http://x/a?b", "/a"), (b"*", "*"), (b"/%C3%A9", "/é")],
)
async def test_every_form_of_a_target_has_a_path(target: bytes, path: str) -> None:
    app = Reader()
    await connected(app).send(b"OPTIONS " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert app.scopes[0]["path"] == path


async def test_a_bad_chunk_size_is_400_and_the_client_counts_as_gone() -> None:
    app = Reader()
    answer = await connected(app).send(CHUNKED + b"3\r\nabc\r\n", b"zz\r\n")
    assert (code(answer), app.disconnected) == ("malformed_request", 1)


async def test_trailers_are_no_headers() -> None:
    app = Reader()
    await connected(app).send(CHUNKED + b"3\r\nabc\r\n0\r\nX-Deadline-Ms: 1\r\n\r\n")
    assert app.bodies == [b"abc"]
    assert all(name != b"x-deadline-ms" for name, _ in app.scopes[0]["headers"])


async def test_an_answer_before_a_large_body_is_followed_by_a_close_that_can_be_read() -> None:
    line = connected()
    answer = await line.send(POST + b"Content-Length: 300000000\r\n\r\n" + b"x" * 1000)
    assert status(answer) == 200
    assert b"connection: close" in answer
    assert line.transport.half_closed
    await line.send(*[b"x" * 100_000] * 50)
    assert not line.transport.closed
    assert len(line.protocol.cycle.body) <= 1000
    await line.wait(LINGER + 1)
    assert line.transport.aborted


async def test_a_refused_client_that_waits_for_100_continue_never_gets_it() -> None:
    line = connected()
    head = POST + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"
    answer = await line.send(head)
    assert status(answer) == 200
    assert b"100 Continue" not in answer
    assert line.transport.half_closed
    app = Reader()
    asked = connected(app)
    assert await asked.send(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert status(await asked.send(b"x" * 10)) == 200
    assert app.bodies == [b"x" * 10]


async def test_http_1_0_clients_get_no_chunks_and_no_interim_answers() -> None:
    line = connected(Reader())
    head = b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    answer = await line.send(head, b"abc")
    assert answer.endswith(b"\r\n\r\nread")
    assert b"chunked" not in answer
    assert line.transport.closed
    sized = await connected().send(b"GET / HTTP/1.0\r\n\r\n")
    assert b"content-length: 5" in sized
    assert sized.endswith(b"\r\n\r\nhello")


async def test_an_upgrade_is_ignored_and_ends_the_connection() -> None:
    line = connected()
    head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    answer = await line.send(head + b"\x81\x05hello")
    assert status(answer) == 200
    assert b"connection: close" in answer
    assert line.transport.closed


async def test_requests_before_a_bad_one_are_answered_and_the_bad_one_is_the_end() -> None:
    app = Waiting()
    line = connected(app)
    assert await line.send(GET + GET + b"NONSENSE\r\n") == b""
    app.go.set()
    answers = await line.wait(0)
    assert (answers.count(b"HTTP/1.1"), answers.count(b"HTTP/1.1 200 OK")) == (2, 2)
    assert line.transport.closed


async def test_more_requests_ahead_than_are_kept_end_the_connection() -> None:
    line = connected()
    answers = await line.send(GET * 1000)
    for _ in range(5):
        answers += await line.wait(0)
    assert answers.count(b"HTTP/1.1 200 OK") == MOST_AHEAD + 1
    assert line.transport.closed


async def test_requests_whose_bodies_come_together_go_on_in_turns() -> None:
    app = Reader()
    line = connected(app)
    lines = [connected(app, line) for _ in range(3 * AT_ONCE)]
    for each in lines:
        await each.send(POST + b"Content-Length: 1\r\n\r\n")
    for each in lines:
        each.protocol.data_received(b"1")
    await asyncio.sleep(0)
    assert len(app.bodies) == AT_ONCE
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(app.bodies) == 3 * AT_ONCE


async def test_the_short_rest_of_a_body_is_read_and_dropped_and_the_connection_kept() -> None:
    line = connected()
    for _ in range(2):
        answer = await line.send(POST + b"Content-Length: 100000\r\n\r\n" + bytes(1000))
        assert status(answer) == 200
        assert b"connection: close" not in answer
        assert await line.send(bytes(99_000)) == b""
        assert line.protocol.phase is Phase.IDLE
        assert not line.protocol.cycle.body


async def test_a_client_that_does_not_read_its_answer_is_ended() -> None:
    line = connected(Waiting(), body_timeout=30.0)
    await line.send(GET)
    line.protocol.pause_writing()
    await line.wait(29)
    line.protocol.resume_writing()
    await line.wait(1)
    line.protocol.pause_writing()
    await line.wait(29)
    assert not line.transport.closed
    await line.wait(2)
    assert (line.transport.aborted, line.ended) == (True, ["slow_reader"])
    line.protocol.connection_lost(None)


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
async def test_a_connection_whose_last_bytes_are_not_read_is_ended(connection: bytes) -> None:
    line = connected(idle_timeout=10.0)
    line.transport.unsent = 500
    await line.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: %b\r\n\r\n" % connection)
    assert line.transport.closed is (connection == b"close")
    await line.wait(LINGER)
    assert line.transport.aborted


async def test_a_draining_server_waits_for_requests_but_not_for_those_that_were_refused() -> None:
    app = Waiting()
    busy = connected(app)
    await busy.send(GET)
    busy.protocol.shutdown()
    assert not busy.transport.closed
    app.go.set()
    assert b"connection: close" in await busy.wait(0)
    refused = connected(Reader())
    await refused.send(CHUNKED + b"zz\r\n")
    refused.protocol.shutdown()
    assert refused.transport.closed


async def test_a_draining_server_answers_requests_that_have_begun_or_may_be_on_their_way() -> None:
    for begun in (b"", GET[:9]):
        line = connected(Reader())
        await line.send(GET + begun)
        await line.wait(READING / 2 + len(begun))
        line.protocol.shutdown()
        assert not line.transport.closed
        assert b"read" in await line.send(GET[len(begun) :])
        await line.wait(READING)
        line.protocol.shutdown()
        assert line.transport.closed
