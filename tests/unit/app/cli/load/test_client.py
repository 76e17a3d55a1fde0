"""The client of a measurement against servers that answer bytes of the test's own."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import pytest

from app.cli.load import step
from app.cli.load.client import Client, Origin, Reply
from app.cli.load.step import Load, Timing, failures, measured
from tests.server import PATIENCE

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
RATE = Load(rate=400)
STALL = 0.2
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
    """Measure until there was an answer: on a busy machine there may be none in 0.1 s."""

    async def run(limit: float) -> dict[str, Any]:
        async with serving(*answers) as (origin, _):
            message = origin.request("/", {}, b"END")
            timing = Timing(warm_up=0, window=limit / 2, limit=limit)
            return await measured(origin, [message], 1, load, timing)

    limit = 0.1
    while not ((found := asyncio.run(run(limit)))["images"] or found["errors"]):
        limit *= 2
        assert limit < PATIENCE
    return found


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


def measure_open(on_request: Callable[[int], bool]) -> dict[str, Any]:
    """Measure an open loop of 400 requests a second; those for which this is True are answered."""

    async def run() -> dict[str, Any]:
        count = itertools.count()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
                while True:
                    await reader.readuntil(b"END")
                    if on_request(next(count)):
                        writer.write(PLAIN)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            origin = Origin.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            timing = Timing(warm_up=0, window=STALL / 10, limit=2 * STALL)
            return await measured(origin, [origin.request("/", {}, b"END")], 1, RATE, timing)

    return asyncio.run(run())


def test_a_stall_is_paid_by_every_request_that_is_due_in_it() -> None:
    def stall_once(number: int) -> bool:
        if number == 4:
            time.sleep(STALL)  # neither the server nor the client can run: requests leave late
        return True

    found = measure_open(stall_once)
    assert found["milliseconds"]["p99"] >= STALL * 1e3 / 2
    assert found["errors"] == {}


def test_an_open_loop_sends_at_its_rate_and_counts_what_is_not_answered() -> None:
    found = measure_open(lambda number: number % 2 == 0)
    assert RATE.rate / 2 < found["sent_per_second"] < 2 * RATE.rate
    sent = found["sent_per_second"] * found["seconds"]
    assert found["unanswered"] > sent / 4
    assert found["unanswered"] + found["images"] == pytest.approx(sent, rel=0.1)
    assert not found["stable"]


def test_an_open_loop_does_not_end_when_windows_happen_to_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step, "agree", lambda _windows: True)
    found = measure_open(lambda _: True)
    assert found["seconds"] >= 2 * STALL
