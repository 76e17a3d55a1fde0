"""Bodies that come too slowly."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app.http.request import STREAM
from models.domain.alarms import alarms
from models.domain.errors import ServiceError
from tests.connection import Line, connected

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"


class Upload:
    """A body that an application reads; `told` is the error that the application gets."""

    def __init__(self, stream: Any = None, **limits: Any) -> None:
        self.told, self._stream = "", stream
        self.line: Line = connected(self, body_timeout=30.0, **limits)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._stream is not None:
            scope[STREAM] = self._stream
        try:
            while (await receive()).get("more_body"):
                pass
        except ServiceError as error:
            self.told = error.detail
        await send({"type": "http.response.start", "status": 408, "headers": []})
        await send({"type": "http.response.body", "body": b"slow"})

    async def message(self, *pieces: tuple[float, int]) -> str:
        """Return the error for pieces that each take some seconds to arrive, or never if empty."""
        await self.line.send(HEAD)
        for seconds, size in pieces:
            while seconds > 0:
                await self.line.wait(min(seconds, 0.5))
                seconds -= 0.5
            await self.line.send(bytes(size))
        self.line.protocol.connection_lost(None)
        return self.told


@pytest.mark.parametrize(
    ("pieces", "rate", "message"),
    [
        ([(0.5, 1)] * 100, 1024, "per second are expected"),
        ([(0.125, 1)] * 160, 1024, "per second are expected"),
        ([(0.5, 5000)] * 100, 1024, ""),
        ([(0.5, 1)] * 19, 1024, ""),
        ([(9.0, 20_000), (9.0, 20_000)], 1024, ""),
        ([(8.0, 1), (0.0, 20_000)] * 9, 1024, ""),
        ([(12.0, 0)], 1024, "per second are expected"),
        ([(0.5, 1)] * 100, 0, ""),
        ([(31.0, 0)], 0, "no body data for 30 seconds; send it again"),
    ],
)
async def test_a_body_needs_the_rate_while_the_application_waits(
    pieces: list[tuple[float, int]], rate: int, message: str
) -> None:
    found = await Upload(min_rate=rate).message(*pieces)
    assert message in found
    assert bool(message) == bool(found)


@pytest.mark.parametrize(
    ("in_flight", "inside_item", "seconds", "message"),
    [
        (1, True, 100, ""),
        (1, False, 100, ""),
        (0, False, 25, ""),
        (0, True, 25, "per second are expected"),
        (0, False, 40, "no body data for 30 seconds"),
    ],
)
async def test_a_stream_may_pause_while_answers_are_owed_and_between_images(
    in_flight: int, inside_item: bool, seconds: float, message: str
) -> None:
    stream = SimpleNamespace(in_flight=in_flight, inside_item=inside_item)
    found = await Upload(stream).message((seconds, 0))
    assert message in found
    assert bool(message) == bool(found)


async def test_a_late_body_is_answered_with_408_that_can_be_read() -> None:
    line = Upload().line
    await line.send(HEAD + bytes(20_000))
    assert await line.wait(11) == b""  # bytes that came with the head count too
    assert (await line.wait(31)).startswith(b"HTTP/1.1 408")
    assert line.transport.half_closed


async def test_an_application_that_waits_for_a_body_is_told_that_the_server_ends() -> None:
    upload = Upload()
    await upload.line.send(HEAD)
    alarms().end()
    await upload.line.wait(0)
    assert "the server is shutting down" in upload.told


async def test_a_slow_application_does_not_make_the_client_late() -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"slow"})

    go, line = asyncio.Event(), connected(app, body_timeout=30.0)
    await line.send(HEAD + b"x")
    assert await line.wait(60) == b""
    go.set()
    assert (await line.wait(0)).startswith(b"HTTP/1.1 200")
