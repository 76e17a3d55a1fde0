"""The end of a request: its absolute deadline, and the disconnect of its client."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.types import Scope

from app.http.headers import header
from models.domain.alarms import Timeout, interrupted
from models.domain.deadline import Deadline
from models.domain.errors import Cancelled, FieldError, InvalidParameter
from models.settings import Settings

HEADER = "X-Deadline-Ms"
DIGITS = 12
"""Largest number of digits of a deadline in milliseconds (31 years)."""

T = TypeVar("T")


def deadline_of(scope: Scope, settings: Settings) -> Deadline:
    """Return the deadline by `X-Deadline-Ms`, capped by the server, or by default, from now."""
    return Deadline.after(seconds_of(scope, settings), time.monotonic())


def seconds_of(scope: Scope, settings: Settings) -> float:
    """Return the seconds that `X-Deadline-Ms` gives, or those by default; the server has a cap."""
    given = header(scope, b"x-deadline-ms")
    if given is None:
        return settings.default_deadline
    if not (given.isascii() and given.isdigit() and len(given) <= DIGITS and int(given) > 0):
        message = "a positive whole number of milliseconds"
        wrong = FieldError(HEADER, message, given)
        raise InvalidParameter(f"{HEADER} is not a positive whole number", [wrong])
    return min(int(given) / 1000, settings.max_deadline)


async def disconnected(request: Request) -> None:
    """Return when the client has disconnected; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, and cancel it if the client leaves; the body must have been read.

    Raises Cancelled once the cancelled work has ended.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Cancelled("the client left")
    finally:
        for each in (working, leaving):
            each.cancel()
        await asyncio.wait((working, leaving))


async def before(deadline: Deadline, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; raises DeadlineExceeded at the deadline, and Draining if the server ends."""
    try:
        async with Timeout(deadline):
            return await work
    except TimeoutError:
        raise interrupted() from None
