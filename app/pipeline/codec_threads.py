"""Threads that decode and encode what takes little time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from models.thread_priority import lower_priority

T = TypeVar("T")


class CodecThreads:
    """At most `most` threads, and as many of a lower priority for work in the background."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = 0
        """Calls that have not ended, without those in the background."""
        self._front = ThreadPoolExecutor(most, "codec")
        self._behind = ThreadPoolExecutor(most, "codec-behind", lower_priority)

    async def run(self, function: Callable[..., T], *args: object, background: bool = False) -> T:
        """Run a function on a thread and return its result.

        Work that was cancelled before it began is never done. Work that has begun cannot be
        stopped, and uses memory that its caller holds: the caller is cancelled when it has ended.
        """
        pool = self._behind if background else self._front
        self.busy += not background
        call = pool.submit(function, *args)
        ended = asyncio.wrap_future(call)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            call.cancel()
            while not ended.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((ended,))
            if not ended.cancelled():
                ended.exception()  # asyncio would log an error that nothing has asked for
            raise
        finally:
            self.busy -= not background
            del call, ended  # the traceback of an error refers to this frame, and they to the error

    def close(self) -> None:
        """End the threads; nothing may be submitted any more."""
        self._front.shutdown()
        self._behind.shutdown()
