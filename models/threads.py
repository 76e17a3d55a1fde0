"""Run work on threads, and give threads that compute in the background a lower priority."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

T = TypeVar("T")

NICER = 5
"""How much nicer these threads are than others. Linux gives such a thread a third of the time of
another one, and runs another one that wakes up in its place. A lower priority can harm others on a
machine that other programs keep busy, because a thread that holds the interpreter's lock must get
on for them. Beside a job, on two such cores, the p99 of requests was 1.42 and 1.19 times its value
alone with 5; 1.05, 0.87 and 13.2 times with 10; 2.0 times with 19; and 4 to 10 times with
SCHED_IDLE."""

STEP = 0.0003
"""Seconds of work of a thread between two pauses of `giving_way`."""


def giving_way(items: Iterable[T]) -> Iterator[T]:
    """Yield items to a thread that works on each of them in Python, and pause as long as it works.

    A thread that needs the interpreter's lock gets it from Python code after 5 ms. A forward pass
    needs the lock after each layer, so it waits that long a hundred times beside long Python code.
    """
    begun = time.monotonic()
    for item in items:
        yield item
        if (worked := time.monotonic() - begun) >= STEP:
            time.sleep(worked)
            begun = time.monotonic()


async def run_to_end(
    pool: ThreadPoolExecutor,
    function: Callable[..., T],
    *args: object,
    stop: Callable[[], None] = lambda: None,
) -> T:
    """Run a function on a thread of a pool and return its result.

    Work that was cancelled before it began is never done. Work that has begun uses what its caller
    holds: `stop` asks the work to end, and the caller is cancelled when the work has ended.
    """
    call = pool.submit(function, *args)
    ended = asyncio.wrap_future(call)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        stop()
        call.cancel()
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((ended,))
        if not ended.cancelled():
            ended.exception()  # asyncio would log an error that nothing has asked for
        raise
    finally:
        del call, ended  # the traceback of an error refers to this frame, and they to the error


def lower_priority() -> bool:
    """Let the calling thread yield to further threads; return whether the system can do so.

    The priority of the thread cannot be raised again.
    """
    if sys.platform != "linux":  # elsewhere priorities belong to processes
        return False
    try:
        thread = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICER
        os.setpriority(os.PRIO_PROCESS, thread, niceness)  # Linux takes 19 for more than 19
    except OSError:
        return False
    return True


@cache
def can_lower_priority() -> bool:
    """Return whether `lower_priority` works here, by a thread that tries it."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(lower_priority()))
    thread.start()
    thread.join()
    return found == [True]
