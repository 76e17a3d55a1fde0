"""The answers of a request as their work gives them; the work ends early when the client leaves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request

from app.http.request_lifetime import disconnected, until_disconnect
from app.pipeline.outcomes import Answer

StartWork = Callable[[], Coroutine[Any, Any, Answer]]
"""Starts the work on one item; called only once somebody listens."""


async def all_answers(request: Request, works: Sequence[StartWork]) -> list[Answer]:
    """Every answer, in input order."""

    async def together() -> list[Answer]:
        if len(works) == 1:
            return [await works[0]()]
        return await asyncio.gather(*(work() for work in works))

    return await until_disconnect(request, together())


async def as_completed(request: Request, works: Sequence[StartWork]) -> AsyncIterator[Answer]:
    """Each answer as it finishes; none is started before the first is asked for."""
    watch = asyncio.ensure_future(disconnected(request))
    pending = {asyncio.ensure_future(work()) for work in works}
    try:
        while pending and not watch.done():
            waited_for: set[asyncio.Future[Any]] = {*pending, watch}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in pending if each.done()]:
                pending.discard(task)
                yield task.result()
    finally:
        for left in (watch, *pending):
            left.cancel()
        await asyncio.gather(watch, *pending, return_exceptions=True)
