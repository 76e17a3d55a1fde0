"""What an ordinary photo costs the event loop, in counts that do not depend on the machine.

A call of a Python function takes about 1 µs, a task 10, and a wake-up from a thread 20 to 50.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import FrameType
from typing import Any, TypeVarTuple, Unpack

import pytest

from tests.bench.plan import BOUNDARY, multipart
from tests.in_process import ask, served
from tests.pictures import jpeg

Args = TypeVarTuple("Args")

REQUESTS = 12
"""The first ones fill tables, and now and then one meets a measurement that is due."""


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts its tasks and how often threads wake it."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = self.wakes = 0

    def create_task(self, *args: Any, **options: Any) -> Any:
        self.tasks += 1
        return super().create_task(*args, **options)

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


async def costs(path: str, body: bytes, kind: str) -> tuple[int, int, int]:
    """Return the calls of Python functions on the event loop, counting each time that a coroutine
    goes on, the tasks, and the wake-ups by threads: the fewest of some requests.
    """
    loop, calls, found = asyncio.get_running_loop(), 0, []
    assert isinstance(loop, CountingLoop)

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async with served() as app:
        for _ in range(REQUESTS):
            calls = loop.tasks = loop.wakes = 0
            sys.setprofile(note)
            try:
                assert await ask(app, path, body, content_type=kind) == 200
            finally:
                sys.setprofile(None)
            found.append((calls, loop.tasks, loop.wakes))
    return min(found)


def run(work: Coroutine[Any, Any, tuple[int, int, int]]) -> tuple[int, int, int]:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(work)


@pytest.mark.parametrize(
    ("path", "most_calls", "wakes"),
    [("/classify?top_k=1", 700, 2), ("/filter?name=gaussian_blur&sigma=2&format=jpeg", 870, 3)],
)
def test_a_photo_costs_few_calls_one_task_and_one_wake_up_for_each_thread_that_it_needs(
    path: str, most_calls: int, wakes: int
) -> None:
    """Decoding, computing and encoding wake the loop once each; a task watches the client."""
    found = run(costs(path, jpeg(1, 640, 480), "image/jpeg"))
    assert found[1:] == (1, wakes)
    assert found[0] <= most_calls


def test_each_photo_of_a_form_costs_one_task_and_at_most_two_wake_ups() -> None:
    """Calls are not bounded here: how many there are depends on how the photos meet in batches."""
    body = multipart([jpeg(n, 640, 480) for n in range(16)])
    kind = f"multipart/form-data; boundary={BOUNDARY.decode()}"
    _, tasks, wakes = run(costs("/classify?top_k=1", body, kind))
    assert tasks == 17
    assert wakes <= 32
