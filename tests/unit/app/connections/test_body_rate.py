"""Bodies that come too slowly."""

from typing import Any

import pytest

from app.connections.limits import BodyRate
from app.http.request import STREAM
from models.domain.alarms import alarms
from tests.connection import connected

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"


class Pace:
    """The state of a stream."""

    def __init__(self, in_flight: int, inside_item: bool) -> None:
        self.in_flight = in_flight
        self.inside_item = inside_item


def late(*pieces: tuple[float, int], rate: int = 1024, stream: Pace | None = None) -> str:
    """Return the message for a body of pieces that each take some seconds to arrive.

    The body is looked at every half second of waiting; the application takes 60 s for each piece,
    and does not wait for a piece that takes no time. A piece of 0 bytes does not arrive.
    """
    body, now, looked = BodyRate({} if stream is None else {STREAM: stream}), 0.0, 0.25
    for seconds, size in pieces:
        now += 60.0
        if seconds:
            body.wait(now)
        while seconds > 0:
            step = min(seconds, 0.5 - looked % 0.5)
            now, looked, seconds = now + step, looked + step, seconds - step
            if looked % 0.5 == 0 and (error := body.late(now, 30.0, rate)) is not None:
                return error.detail
        if size:
            body.piece(size, now)
    return ""


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([(0.5, 1)] * 100, "per second are expected"),
        ([(0.125, 1)] * 160, "per second are expected"),
        ([(0.5, 5000)] * 100, ""),
        ([(0.5, 1)] * 19, ""),
        ([(9.0, 20_000), (9.0, 20_000)], ""),
        ([(8.0, 1), (0.0, 20_000)] * 9, ""),
        ([(0.0, 1)] * 100, ""),
        ([(12.0, 0)], "per second"),
    ],
    ids=["trickle", "drops", "quick", "short", "pauses", "bursts", "at once", "silence"],
)
def test_a_body_needs_the_rate_while_the_application_waits(
    pieces: list[tuple[float, int]], message: str
) -> None:
    found = late(*pieces)
    assert message in found
    assert bool(message) == bool(found)


def test_without_a_rate_only_silence_is_slow() -> None:
    assert late(*[(0.5, 1)] * 100, rate=0) == ""
    assert late((31.0, 0), rate=0) == "no body data for 30 seconds; send it again"


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
def test_a_stream_may_pause_while_answers_are_owed_and_between_images(
    in_flight: int, inside_item: bool, seconds: float, message: str
) -> None:
    found = late((seconds, 0), stream=Pace(in_flight, inside_item))
    assert message in found
    assert bool(message) == bool(found)


@pytest.mark.parametrize("ends", [False, True])
async def test_an_application_is_told_that_its_body_is_late_or_the_server_ends(ends: bool) -> None:
    told = list[str]()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        try:
            while (await receive())["more_body"]:
                pass
        except Exception as error:
            told.append(str(error))
        await send({"type": "http.response.start", "status": 408, "headers": []})
        await send({"type": "http.response.body", "body": b"slow"})

    line = connected(app, body_timeout=30.0)
    await line.send(HEAD + bytes(20_000))
    assert await line.wait(11) == b""  # what came without a wait counts
    if ends:
        alarms().end()
    assert (await line.wait(0 if ends else 31)).startswith(b"HTTP/1.1 408")
    assert ("the server is shutting down" if ends else "no body data for 30 seconds") in told[0]
    assert line.transport.half_closed
