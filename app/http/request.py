"""Read a request: its headers, its deadline, and whether its client has left."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, TypeVar

from starlette.types import Scope

from models.domain.alarms import Timeout, interrupted
from models.domain.deadline import Deadline
from models.domain.errors import Cancelled, FieldError, InvalidParameter
from models.settings import Settings

T = TypeVar("T")

MOST_TYPES = 32
"""Content-Type headers that are remembered: clients choose them, and a header may have 64 KiB."""


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this name, which is in lower case; None if there is no header."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


def content_type(scope: Scope) -> str:
    """Return the media type of the body with its parameters, empty if the client sent none."""
    return header(scope, b"content-type") or ""


@lru_cache(MOST_TYPES)
def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


HEADER = "X-Deadline-Ms"
DIGITS = 12
"""Largest number of digits of a deadline in milliseconds (31 years)."""


def deadline_of(scope: Scope, settings: Settings) -> Deadline:
    """Return the deadline by `X-Deadline-Ms`, capped by the server, or by default, from now."""
    return Deadline.after(seconds_of(scope, settings), time.monotonic())


def seconds_of(scope: Scope, settings: Settings) -> float:
    """Return the seconds that `X-Deadline-Ms` gives, or the default; the server has a cap."""
    given = header(scope, b"x-deadline-ms")
    if given is None:
        return settings.default_deadline
    if not (given.isascii() and given.isdigit() and len(given) <= DIGITS and int(given) > 0):
        message = "a positive whole number of milliseconds"
        wrong = FieldError(HEADER, message, given)
        raise InvalidParameter(f"{HEADER} is not a positive whole number", [wrong])
    return min(int(given) / 1000, settings.max_deadline)


async def before(deadline: Deadline, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; raises DeadlineExceeded at the deadline, and Draining if the server ends."""
    try:
        with Timeout(deadline):
            return await work
    except TimeoutError:
        raise interrupted() from None


DEPARTURE = "departure"
"""The key of a request's scope under which its Departure stands, if its server tells of it."""


class Departure:
    """Calls a function when the client of a request leaves; belongs to one event loop."""

    __slots__ = ("_call", "_happened")

    def __init__(self) -> None:
        self._call: Callable[[], object] | None = None
        self._happened = False

    def happen(self) -> None:
        """Note that the client has left."""
        self._happened = True
        call, self._call = self._call, None
        if call is not None:
            call()

    def watch(self, call: Callable[[], object]) -> Callable[[], object]:
        """Call `call` once when the client leaves, or in the next turn of the event loop if it has
        left already. A call of the result ends this watch, and so does another watch.
        """
        self._call = call
        if self._happened:
            asyncio.get_running_loop().call_soon(self.happen)
        return self._stop

    def _stop(self) -> None:
        self._call = None


def departure_of(scope: Scope) -> Departure:
    """Return the Departure of a request; a server that tells of none cancels the request itself."""
    found: Departure | None = scope.get(DEPARTURE)
    return found or Departure()


async def unless_left(departure: Departure, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` in the caller's own task; a client that leaves ends it with Cancelled."""
    task, gone = asyncio.current_task(), False
    assert task is not None

    def leave() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    stop = departure.watch(leave)
    try:
        return await work
    except asyncio.CancelledError:
        # uncancel returns how many other requests to cancel this task remain. With any, a timeout
        # or a shutdown has cancelled it too, and must see its own CancelledError.
        if gone and not task.uncancel():
            raise Cancelled("the client left") from None
        raise
    finally:
        stop()


STREAM = "stream"
"""The key of a request's scope under which its StreamWindow stands if its body is a stream."""


class StreamWindow:
    """Room for `size` items, from before an item is read until its answer has been sent.

    `in_flight` counts items that were read and are not answered; while there are some, the client
    may be waiting for the server. `inside_item` is true while an item has arrived in part. `left`
    is set when the client has left.
    """

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self.in_flight = 0
        self.inside_item = False
        self.left = asyncio.Event()

    async def room(self) -> None:
        """Wait for room for the next item, and take it."""
        await self._room.acquire()

    def begin(self) -> None:
        """Count an item that was read; it has room already."""
        self.in_flight += 1

    def end(self) -> None:
        """Give the room of an item back, because its answer has been sent."""
        self.in_flight -= 1
        self._room.release()
