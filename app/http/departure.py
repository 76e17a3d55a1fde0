"""Tell that the client of a request has left, without a task that waits for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request

from app.http.request_lifetime import disconnected
from models.domain.errors import Cancelled

DEPARTURE = "departure"
"""The key of a request's scope under which its Departure stands, if its server tells of it."""

T = TypeVar("T")


class Departure:
    """Calls one function when the client of a request leaves; belongs to one event loop."""

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


class ClientLeft:
    """Waits until the client of a request has left; the request's body must have been read.

    `departure` tells the same by a call, which needs no task. It is None if the server of the
    request does not tell.
    """

    __slots__ = ("_request", "departure")

    def __init__(self, request: Request) -> None:
        self._request = request
        self.departure: Departure | None = request.scope.get(DEPARTURE)

    def __call__(self) -> Coroutine[Any, Any, None]:
        """Return a coroutine that ends when the client has left."""
        return disconnected(self._request)


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, and cancel it if the client leaves, where the server tells by a Departure.

    Part of the body may be unread. Raises Cancelled once the cancelled work has ended.
    """
    departure: Departure | None = request.scope.get(DEPARTURE)
    if departure is None:
        return await work
    working, gone = asyncio.ensure_future(work), False

    def leave() -> None:
        nonlocal gone
        gone = working.cancel()

    stop = departure.watch(leave)
    try:
        return await working
    except asyncio.CancelledError:
        # A timeout or a shutdown that has cancelled this task too must see its own CancelledError.
        task = asyncio.current_task()
        if gone and not (task and task.cancelling()):
            raise Cancelled("the client left") from None
        raise
    finally:
        stop()
