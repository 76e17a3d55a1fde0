"""Run the images of one request side by side; yield each answer as it finishes.

The caller iterates, so nothing starts before the first answer is asked for. However the iteration
ends, all work of the request has ended too when the generator is closed.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from models.domain.errors import Cancelled

T = TypeVar("T")
ItemT = TypeVar("ItemT")

Left = Callable[[], Coroutine[Any, Any, object]]
"""Return when the client has left, so that the answers are not needed any more."""


async def run(
    work: Callable[[ItemT], Coroutine[Any, Any, T]], items: Sequence[ItemT], left: Left
) -> AsyncGenerator[T, None]:
    """Yield what `work` returns for each item; raises Cancelled when the client leaves.

    One item needs no task of its own: it is worked on while its answer is awaited.
    """
    if len(items) == 1:
        yield await until(left, work(items[0]))
        return
    finished: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
    watch = asyncio.ensure_future(left())
    # The watch is in the same queue as the work, so that one wait notices both; its end, whatever
    # is in the queue before it, ends the iteration.
    tasks = [watch, *(asyncio.ensure_future(work(item)) for item in items)]
    for task in tasks:
        task.add_done_callback(finished.put_nowait)
    try:
        for _ in items:
            done = await finished.get()
            if watch.done():
                raise Cancelled("the client left")
            yield done.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(left: Left, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` in the caller's own task; cancel it and raise Cancelled when the client leaves.

    A sibling task waits for the client to leave: asking from time to time would cost more and
    notice it later.
    """
    task, gone = asyncio.current_task(), False
    assert task is not None

    async def watch() -> None:
        nonlocal gone
        await left()
        gone = True
        task.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        return await work
    except asyncio.CancelledError:
        # uncancel returns how many other requests to cancel this task remain. With any, a timeout
        # or a shutdown has cancelled it too, and must see its own CancelledError.
        if gone and not task.uncancel():
            raise Cancelled("the client left") from None
        raise
    finally:
        watching.cancel()
