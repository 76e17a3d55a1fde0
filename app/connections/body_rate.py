"""Require a minimum rate from a client that sends a body."""

import asyncio
import time
from collections.abc import Generator
from typing import Any

from starlette.types import Message, Receive

from models.domain.errors import SlowBody

WINDOW = 10.0
"""Seconds of waiting over which the rate is measured; the first check comes at their end."""


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
    After the body there is no timeout.
    """

    __slots__ = ("_bytes", "_rate", "_reading", "_receive", "_seconds", "_window")

    def __init__(self, receive: Receive, seconds: float, rate: int) -> None:
        self._receive = receive
        self._seconds = seconds
        self._rate = rate
        self._reading = True
        self._bytes = 0
        self._window = WINDOW

    async def __call__(self) -> Message:
        """Return the next message; raises SlowBody."""
        if not self._reading:
            return await self._receive()
        end = time.monotonic() + self._seconds
        while True:
            start = time.monotonic()
            message = await self._next(min(end - start, self._window if self._rate else end))
            now = time.monotonic()
            self._window -= now - start
            if message is not None:
                self._bytes += len(message.get("body", b""))
                self._reading = message.get("more_body", False)
            if self._reading and self._rate and self._window <= 0:
                self._close_window()
            if message is not None:
                return message
            if now >= end:
                raise SlowBody(f"no body data for {self._seconds:g} seconds; send it again")

    async def _next(self, seconds: float) -> Message | None:
        receiving = self._receive().__await__()
        try:
            waits_for = next(receiving)  # most bodies have arrived already, and need no timer
        except StopIteration as there:
            message: Message = there.value
            return message
        try:
            async with asyncio.timeout(seconds):
                return await _Begun(receiving, waits_for)
        except TimeoutError:
            return None

    def _close_window(self) -> None:
        if self._bytes < self._rate * WINDOW:
            raise SlowBody(
                f"{self._bytes} bytes of the body came in {WINDOW:g} seconds; at least "
                f"{self._rate} per second are expected (DARKROOM_MIN_BODY_RATE); send it again"
            )
        self._bytes, self._window = 0, WINDOW
