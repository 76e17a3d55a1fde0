"""The tasks and wake-ups that an ordinary photo costs the event loop: they depend on no machine.

A task takes about 10 µs, and a wake-up from a thread 20 to 50.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple, TypeVarTuple, Unpack

import pytest

from tests.bench.load import FORM, multipart
from tests.in_process import ask, served
from tests.pictures import jpeg

Args = TypeVarTuple("Args")

REQUESTS = 12
"""The first ones fill tables, and now and then one meets a measurement that is due."""


class Costs(NamedTuple):
    """What one request cost the event loop."""

    tasks: int
    wakes: int


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


def costs(path: str, body: bytes, kind: str) -> Costs:
    """Return the tasks and the wake-ups by threads: the fewest of some requests."""

    async def requests() -> Costs:
        loop, found = asyncio.get_running_loop(), list[Costs]()
        assert isinstance(loop, CountingLoop)
        async with served() as app:
            for _ in range(REQUESTS):
                loop.tasks = loop.wakes = 0
                assert await ask(app, path, body, content_type=kind) == 200
                found.append(Costs(loop.tasks, loop.wakes))
        return min(found)

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(requests())


@pytest.mark.parametrize(
    ("path", "wakes"),
    [("/classify?top_k=1", 2), ("/filter?name=gaussian_blur&sigma=2&format=jpeg", 3)],
)
def test_a_photo_costs_no_task_and_one_wake_up_for_each_thread_that_it_needs(
    path: str, wakes: int
) -> None:
    """Decoding, computing and encoding wake the loop once each."""
    assert costs(path, jpeg(1, 640, 480), "image/jpeg") == (0, wakes)


def test_each_photo_of_a_form_costs_one_task_and_two_wake_ups() -> None:
    body = multipart([jpeg(n, 640, 480) for n in range(16)])
    found = costs("/classify?top_k=1", body, FORM)
    assert found.tasks == 16
    assert found.wakes <= 32
