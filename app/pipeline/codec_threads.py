"""Threads that decode and encode what takes little time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from models.thread_priority import lower_priority

T = TypeVar("T")


class CodecThreads:
    """At most `most` threads, and as many of a lower priority for work in the background.

    The work never outlives the coroutine that waits for it.
    """

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
        if background:
            return await _result(self._behind.submit(function, *args))
        self.busy += 1
        try:
            return await _result(self._front.submit(function, *args))
        finally:
            self.busy -= 1

    def close(self) -> None:
        """End the threads; nothing may be submitted any more."""
        self._front.shutdown()
        self._behind.shutdown()


async def _result(call: "Future[T]") -> T:
    """Wait for a call; asyncio's own futures of threads would not wait for one that is cancelled,
    and take three times as long.
    """
    try:
        await _end(call)
    except asyncio.CancelledError:
        while not call.cancel() and not call.done():
            with suppress(asyncio.CancelledError):
                await _end(call)
        raise
    try:
        return call.result()
    finally:
        del call  # the traceback of an error refers to this frame, and the call to the error


def _end(call: "Future[Any]") -> "asyncio.Future[None]":
    """Return what is done when a call has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    call.add_done_callback(partial(_tell, loop, ended))
    return ended


def _tell(loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]", _call: object) -> None:
    with suppress(RuntimeError):  # the event loop was closed
        loop.call_soon_threadsafe(_set, ended)


def _set(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
