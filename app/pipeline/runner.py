"""Run the images of one request side by side; yield each answer as it finishes.

The caller iterates, so nothing starts before the first answer is asked for. However the iteration
ends, all work of the request has ended too when the generator is closed.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from app.http.request import StreamWindow

T = TypeVar("T")
ItemT = TypeVar("ItemT")


async def run(
    work: Callable[[ItemT], Coroutine[Any, Any, T]], items: Sequence[ItemT]
) -> AsyncGenerator[T, None]:
    """Yield what `work` returns for each item.

    One item needs no task of its own: it is worked on while its answer is awaited.
    """
    if len(items) == 1:
        yield await work(items[0])
        return
    tasks = _Tasks()
    for item in items:
        tasks.start(work(item))
    try:
        for _ in items:
            yield (await tasks.next()).result()
    finally:
        await tasks.cancel()


async def run_window(
    work: Callable[[ItemT], Coroutine[Any, Any, T]],
    items: AsyncGenerator[ItemT, None],
    window: StreamWindow,
    ended: Callable[[ItemT], None],
) -> AsyncGenerator[T, None]:
    """Yield what `work` returns for each item of a stream, as many at a time as the window has.

    The next item is asked for when there is room for it; an item has its room until the caller asks
    for the result after its own. `ended` is called for each item, also if its work never began.
    """
    tasks = _Tasks()

    async def read() -> None:
        while True:
            await window.room()
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            window.begin()
            tasks.start(work(item)).add_done_callback(partial(_call, ended, item))

    reading = tasks.start(read())
    try:
        while tasks.running:
            done = await tasks.next()
            if done is reading:
                reading.result()
                continue
            yield done.result()
            window.end()
    finally:
        await tasks.cancel()
        await items.aclose()


class _Tasks:
    """Tasks in the order of their ends, for one reader: a third of the cost of asyncio's queue."""

    def __init__(self) -> None:
        self.running: set[asyncio.Future[Any]] = set()
        self._ended: deque[asyncio.Future[Any]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        task = self._loop.create_task(coroutine)
        self.running.add(task)
        task.add_done_callback(self._end)
        return task

    async def next(self) -> asyncio.Future[Any]:
        """Return the next task that has ended."""
        while not self._ended:
            self._reader = self._loop.create_future()
            await self._reader
        done = self._ended.popleft()
        self.running.discard(done)
        return done

    async def cancel(self) -> None:
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        # A cancelled task keeps its frames, and the frame of a stream's reader keeps this object.
        self.running.clear()
        self._ended.clear()

    def _end(self, task: "asyncio.Future[Any]") -> None:
        self._ended.append(task)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def _call(ended: Callable[[ItemT], None], item: ItemT, _task: object) -> None:
    ended(item)
