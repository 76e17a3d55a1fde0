"""Threads that decode and encode what takes little time."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class CodecThreads:
    """A pool of `threads` threads, whose work never outlives the coroutine that waits for it."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "codec")

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function on a thread and return its result.

        Work that was cancelled before it began is never done. Work that has begun cannot be
        stopped, and uses memory that its caller holds: the caller is cancelled when it has ended.
        """
        work = self._pool.submit(function, *args)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            await _end_of(work)
            raise

    def close(self) -> None:
        """End the threads; nothing may be submitted any more."""
        self._pool.shutdown()


async def _end_of(work: "Future[Any]") -> None:
    """Wait until the work is done or was never begun, however often the caller is cancelled."""
    if work.cancelled():
        return
    ending = asyncio.wrap_future(work)
    while not ending.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ending])
    ending.exception()  # or the loop reports an error that no caller has seen
