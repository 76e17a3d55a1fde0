"""The client of a measurement against servers that answer bytes of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.cli.load.client import Client, Origin, Reply
from app.cli.load.step import Load, Timing, failures, measured

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[Origin, list[int]]]:
    """Serve: each request gets the next answer, an empty one closes. Also yields connections."""
    left, connections = [*answers], list[int]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        try:
            while left:
                await reader.readuntil(b"END")
                answer = left.pop(0) if len(left) > 1 else left[0]
                if not answer:
                    break
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Origin.of(f"http://127.0.0.1:{port}"), connections


def asked(answers: Sequence[bytes], times: int) -> tuple[list[Reply], int]:
    """Return the replies to requests that are sent one after the other, and the connections."""

    async def run() -> tuple[list[Reply], int]:
        async with serving(*answers) as (origin, connections):
            client, message = Client(origin), origin.request("/", {}, b"END")
            replies = [await client.ask(message) for _ in range(times)]
            client.close()
            return replies, len(connections)

    return asyncio.run(run())


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, INTERIM])
def test_answers_are_read_whole_and_connections_are_kept(answer: bytes) -> None:
    assert asked([answer], 3) == ([Reply(200, b"{}")] * 3, 1)


def test_a_connection_that_the_server_ends_is_replaced() -> None:
    assert asked([CLOSING], 2) == ([Reply(503, b"x")] * 2, 2)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0\r\n\r\n"])
def test_no_answer_is_a_connection_error(answer: bytes) -> None:
    with pytest.raises(ConnectionError):
        asked([answer], 1)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a", "http://"])
def test_only_urls_of_http_are_origins(url: str) -> None:
    with pytest.raises(ValueError, match="is no URL"):
        Origin.of(url)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(200, b'{"summary": {"failed": 0}}'), None),
        (Reply(200, b'{"summary": {"failed": 2}}'), ("failed image", 2)),
        (Reply(200, b"\xff\xd8"), None),
        (Reply(200, b"{"), ("answer that is not JSON", 3)),
        (Reply(503, b'{"code": "overloaded"}'), ("503 overloaded", 3)),
        (Reply(502, b"<html>"), ("502", 3)),
    ],
)
def test_errors_are_counted_by_kind_and_by_image(
    reply: Reply, expected: tuple[str, int] | None
) -> None:
    assert failures(reply, 3) == expected


def measure(load: Load, *answers: bytes) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with serving(*answers) as (origin, _):
            message = origin.request("/", {}, b"END")
            timing = Timing(warm_up=0, window=0.05, limit=0.1)
            return await measured(origin, [message], 1, load, timing)

    return asyncio.run(run())


def test_a_closed_loop_counts_good_answers_with_their_times() -> None:
    found = measure(Load(connections=2), PLAIN)
    assert found["loop"] == "closed"
    assert found["errors"] == {}
    assert found["images"] > 0
    milliseconds = found["milliseconds"]
    assert [*milliseconds] == ["p50", "p90", "p99", "p999", "max"]
    assert milliseconds["p50"] <= milliseconds["p99"] <= milliseconds["max"]


def test_refusals_are_errors_and_no_images() -> None:
    found = measure(Load(connections=1), CLOSING)
    assert found["images"] == 0
    assert found["errors"].keys() == {"503"}


def test_an_open_loop_sends_at_its_rate_whatever_the_server_does() -> None:
    found = measure(Load(rate=400), b"")
    assert found["loop"] == "open"
    assert found["images"] == 0
