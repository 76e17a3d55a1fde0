"""The bodies of jobs that one process receives at a time, and which of them is given up."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import Request
from starlette.types import Message, Receive

from models.domain.errors import Overloaded, SlowBody
from models.domain.job_errors import TooManyJobs

ARRIVING = 16
"""Bodies of jobs that one process receives at a time."""

ARRIVING_OF_ONE = 4
"""Bodies that one client may send at a time, to all processes together: however slow they are,
other clients find places."""

SLOW = 32768
"""Bytes per second from which a body keeps its place: a body of 16 GiB just above the minimum rate
of all bodies takes half a year, and four clients with four of them would have all places."""

GRACE = 2.0
"""Seconds of waiting for a client after which its rate is known."""


class Place:
    """The place of one body; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes, self._waited = 0, 0.0
        self._since: float | None = None
        self._limit: asyncio.Timeout | None = None
        self._ended = self._shed = False

    def request(self, given: Request) -> Request:
        """Return the request, whose body is measured as it is read, and may be given up.

        Reading it raises SlowBody then.
        """
        receive = given.receive

        async def measured() -> Message:
            return await receive() if self._ended else await self._next(receive)

        return Request(given.scope, measured)

    @property
    def rate(self) -> float | None:
        """Return the bytes per second of waiting for the client.

        None for a body that is whole or given up, before GRACE, and while nothing is awaited: a
        body that waits for the disk or the database is not slow.
        """
        if self._since is None or self._shed:
            return None
        waited = self._waited + self._clock() - self._since
        return self._bytes / waited if waited >= GRACE else None

    def shed(self) -> None:
        """Give the body up: another one needs the place."""
        self._shed = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _next(self, receive: Receive) -> Message:
        self._since = self._clock()
        try:
            async with asyncio.timeout(None) as self._limit:
                message = await receive()
        except TimeoutError:
            raise _slowest() from None
        finally:
            self._waited += self._clock() - self._since
            self._since = self._limit = None
        self._bytes += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._shed and not self._ended:  # this piece came when the place was taken away
            raise _slowest()
        return message


class Places:
    """The places of one process: ARRIVING of them, and ARRIVING_OF_ONE of one client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: dict[Place, str] = {}

    @contextmanager
    def take(self, client: str) -> Iterator[Place]:
        """Hold a place; raises Overloaded and TooManyJobs.

        Nothing is awaited between the check and the count, or many bodies would pass at once. Where
        all places are taken, the slowest body loses its own, if it is slower than SLOW.
        """
        check_arriving(Counter(self._taken.values())[client])
        if len(self._taken) >= ARRIVING:
            self._make_room()
        place = Place(self._clock)
        self._taken[place] = client
        try:
            yield place
        finally:
            self._taken.pop(place, None)

    def _make_room(self) -> None:
        rates = [(rate, each) for each in self._taken if (rate := each.rate) is not None]
        slowest = min(rates, key=lambda pair: pair[0], default=None)
        if slowest is None or slowest[0] >= SLOW:
            raise Overloaded(f"{ARRIVING} bodies of jobs are arriving; try again later", 5.0)
        slowest[1].shed()
        del self._taken[slowest[1]]


def _slowest() -> SlowBody:
    return SlowBody("too many bodies of jobs arrive, and this is the slowest; send it again")


def check_arriving(arriving: int) -> None:
    """Raise TooManyJobs if a client has as many bodies under way as it may have."""
    if arriving >= ARRIVING_OF_ONE:
        raise TooManyJobs(
            f"{arriving} bodies of your jobs are arriving; send the next when one has arrived",
            retry_after=5.0,
        )
