"""The turns that other tasks of an event loop get beside some work, for tests of long work."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def turns_beside(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Return the result of the work, and how often another task had its turn meanwhile."""
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(neighbour())
    try:
        return await work, turns
    finally:
        task.cancel()
