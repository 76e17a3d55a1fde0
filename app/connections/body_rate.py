"""Require a minimum rate from a client that sends a body."""

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

from starlette.types import Message, Receive

from models.domain.alarms import Timeout, alarms, interrupted
from models.domain.deadline import Deadline
from models.domain.errors import SlowBody

WINDOW = 10.0
"""Seconds of waiting over which the rate is measured; the first check comes at their end."""


_NO_SCOPE: Mapping[str, Any] = {}

STREAM = "stream"
"""The key of a request's scope under which its StreamPace stands if its body is a stream."""


TURNS = "turns"
"""The key of a request's scope under which its Turns stand, if its server has some."""


class Turns(Protocol):
    """What lets requests go on that have waited for a body, some in each turn of the event loop."""

    def add(self, thing: Callable[[], None], rank: int) -> None:
        """Call `thing` now or later; rank 1 is that of all requests but health checks."""


class StreamPace(Protocol):
    """The state of a request whose images are answered while others still come."""

    in_flight: int
    """Images that were read and are not answered: the client may be waiting for the server."""
    inside_item: bool
    """Whether an image has arrived in part."""
    left: asyncio.Event
    """Set when the client has left."""


def stream_of(scope: Mapping[str, Any]) -> StreamPace | None:
    """Return the state of a request that is a stream, None for all others."""
    stream: StreamPace | None = scope.get(STREAM)
    return stream


async def _turn(scope: Mapping[str, Any]) -> None:
    """Wait for the turn of a request."""
    turns: Turns | None = scope.get(TURNS)
    if turns is None:
        return
    waiter = asyncio.get_running_loop().create_future()

    def go_on() -> None:
        if not waiter.done():
            waiter.set_result(None)

    turns.add(go_on, 1)
    await waiter


def owes_answers(scope: Mapping[str, Any]) -> bool:
    """Return whether a request is a stream whose client may be waiting for answers."""
    stream = stream_of(scope)
    return stream is not None and stream.in_flight > 0


class _Begun:
    """Awaitable for the result of a coroutine that already waits for a future of its event loop."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Generator[Any, Any, Message], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Message]:
        # What `yield from` does (PEP 380), written out, because the first future was taken out of
        # the coroutine before it was known whether a timeout is needed.
        waits_for = self._waits_for
        while True:
            try:
                try:
                    given = yield waits_for
                except (
                    BaseException
                ) as error:  # passed on to the coroutine, as a task does with a cancellation
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(given)
            except StopIteration as end:
                message: Message = end.value
                return message


class PatientReceive:
    """`receive` of an application with a timeout of `seconds` for each chunk of the body.

    In each window of waiting at least `rate` bytes per second must arrive. Only time in which the
    application waits for the client counts: a slow application does not make the client fail.
    After the body there is no timeout. A request that has waited goes on in its turn (see TURNS):
    bodies of a thousand clients may come at the same moment. A stream (see STREAM) may pause while
    it waits for answers, and needs the rate only inside an image.
    """

    __slots__ = (
        *("_bytes", "_rate", "_reading", "_receive", "_scope", "_seconds", "_waited", "_window"),
    )

    def __init__(
        self, receive: Receive, seconds: float, rate: int, scope: Mapping[str, Any] = _NO_SCOPE
    ) -> None:
        self._receive = receive
        self._scope = scope
        self._seconds = seconds
        self._rate = rate
        self._reading = True
        self._waited = False
        self._bytes = 0
        self._window = WINDOW

    async def __call__(self) -> Message:
        """Return the next message; raises SlowBody, and Draining if the server ends."""
        if not self._reading:
            return await self._receive()
        end = time.monotonic() + self._seconds
        while True:
            start = time.monotonic()
            seconds = min(end - start, self._window if self._rate else end)
            message = await self._next(Deadline(start + seconds))
            now = time.monotonic()
            self._window -= now - start
            if message is not None:
                self._bytes += len(message.get("body", b""))
                self._reading = message.get("more_body", False)
            if self._reading and self._rate and self._window <= 0:
                self._close_window()
            if message is not None:
                if self._waited:
                    self._waited = False
                    await _turn(self._scope)
                return message
            if alarms().ended:
                raise interrupted()
            if now >= end and owes_answers(self._scope):
                end = now + self._seconds
            elif now >= end:
                raise SlowBody(f"no body data for {self._seconds:g} seconds; send it again")

    async def _next(self, deadline: Deadline) -> Message | None:
        receiving = self._receive().__await__()
        try:
            waits_for = next(receiving)  # most bodies have arrived already, and need no timer
        except StopIteration as there:
            message: Message = there.value
            return message
        try:
            async with Timeout(deadline):
                self._waited = True
                return await _Begun(receiving, waits_for)
        except TimeoutError:
            return None

    def _close_window(self) -> None:
        stream = stream_of(self._scope)
        due = stream is None or (stream.inside_item and not stream.in_flight)
        if due and self._bytes < self._rate * WINDOW:
            raise SlowBody(
                f"{self._bytes} bytes of the body came in {WINDOW:g} seconds; at least "
                f"{self._rate} per second are expected (DARKROOM_MIN_BODY_RATE); send it again"
            )
        self._bytes, self._window = 0, WINDOW
