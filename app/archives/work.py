"""Run work on archives on threads, and end it when its request has ended.

A compressed TAR of some megabytes can take minutes to read, and a thread cannot be interrupted. So
the work looks at `ArchiveLimits.stop` often, and has threads of its own: those of `asyncio` stay
free for uploads and downloads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

T = TypeVar("T")


async def on_thread(threads: ThreadPoolExecutor, work: Callable[[], T], stop: Event) -> T:
    """Return what `work` returns on one of `threads`.

    If the caller is cancelled, `stop` is set, and this waits until the work has ended: the files
    that it reads may be closed afterwards.
    """
    running = threads.submit(work)
    ending = asyncio.wrap_future(running)
    try:
        await asyncio.wait([ending])
    except asyncio.CancelledError:
        stop.set()
        if not running.cancel():
            await asyncio.wait([ending])
            ending.exception()  # it is retrieved, or asyncio would log it
        raise
    return ending.result()
