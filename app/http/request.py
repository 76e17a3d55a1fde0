"""Read a request: its headers, its deadline, and whether its client has left."""

import asyncio
import re
import time
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

from starlette.types import Scope

from models.domain.alarms import Timeout, interrupted
from models.domain.deadline import Deadline
from models.domain.errors import Cancelled, InvalidParameter
from models.domain.job import Lane
from models.settings import Settings

T = TypeVar("T")

MOST_TYPES = 32
"""Content-Type headers that are remembered: clients choose them, and a header may have 64 KiB."""


FIELDS = "fields"
"""The key of a scope under which stand the headers that were read, and the first header of each
name: the protocol puts them there, or `header` for other servers and other headers."""


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this name, which is in lower case; None if there is no header."""
    headers, (known, fields) = scope["headers"], scope.get(FIELDS, (None, {}))
    if known is not headers:
        fields = dict(reversed(headers))
        scope[FIELDS] = headers, fields
    value: bytes | None = fields.get(name)
    return None if value is None else value.decode("latin-1")


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
    return Deadline(time.monotonic() + seconds_of(scope, settings))


def seconds_of(scope: Scope, settings: Settings) -> float:
    """Return the seconds that `X-Deadline-Ms` gives, or the default; the server has a cap."""
    given = header(scope, b"x-deadline-ms")
    if given is None:
        return settings.default_deadline
    if not (given.isascii() and given.isdigit() and len(given) <= DIGITS and int(given) > 0):
        text = "a positive whole number of milliseconds is needed"
        raise InvalidParameter.of(HEADER, text, given)
    return min(int(given) / 1000, settings.max_deadline)


_URGENCY = re.compile(r"(?:^|,)[ \t]*u[ \t]*=[ \t]*([0-7])[ \t]*(?=$|[,;])")
ORDINARY = 3
"""The urgency of a request that names none; 0 is the most urgent (RFC 9218, section 4.1)."""


def lane_of(scope: Scope) -> Lane:
    """Return the lane that the `Priority` header asks for: bulk for less than ordinary urgency.

    The header cannot ask for more than an ordinary request has, and a header that is no such field
    has no effect, as RFC 9218 wants it.
    """
    found = _URGENCY.search(header(scope, b"priority") or "")
    return Lane.BULK if found and int(found[1]) > ORDINARY else Lane.INTERACTIVE


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
    """Cancels the task that answers a request when the client leaves.

    A context manager, without effect outside its block: its block ends with Cancelled then.
    """

    __slots__ = ("_left", "_task")

    def __init__(self) -> None:
        self._left = False
        self._task: asyncio.Task[Any] | None = None

    def happen(self) -> None:
        """Note that the client has left."""
        if not self._left and self._task is not None:
            self._task.cancel()
        self._left = True

    def __enter__(self) -> None:
        if self._left:
            raise Cancelled("the client left")
        self._task = asyncio.current_task()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._task = self._task, None
        assert task is not None
        # uncancel returns how many other requests to cancel this task remain. With any, a timeout
        # or a shutdown has cancelled it too, and must see its own CancelledError.
        if self._left and not task.uncancel() and kind is asyncio.CancelledError:
            raise Cancelled("the client left") from None


def departure_of(scope: Scope) -> Departure:
    """Return the Departure of a request; a server that tells of none cancels the request itself."""
    found: Departure | None = scope.get(DEPARTURE)
    return found or Departure()


STREAM = "stream"
"""The key of a request's scope under which its StreamWindow stands if its body is a stream."""


class StreamWindow:
    """Room for `size` items, from before an item is read until its answer has been sent.

    `in_flight` counts items that were read and are not answered; while there are some, the client
    may be waiting for the server. `inside_item` is true while an item has arrived in part.
    """

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self.in_flight = 0
        self.inside_item = False

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
