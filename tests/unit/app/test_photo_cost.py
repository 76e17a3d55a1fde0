"""What an ordinary photo costs the event loop, in counts that do not depend on the machine.

A call of a Python function takes about 1 µs, a task 10, and a wake-up from a thread 20 to 50.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVarTuple, Unpack

import pytest

import app
from tests.bench.plan import BOUNDARY, multipart
from tests.in_process import ask, served
from tests.pictures import jpeg

Args = TypeVarTuple("Args")

REQUESTS = 12
"""The first ones fill tables, and now and then one meets a measurement that is due."""

_ROOT = Path(app.__file__).parents[1]

OWN = tuple(f"{_ROOT / room}/" for room in ("app/intake", "app/pipeline", "models"))
"""The rooms that read an image, decode it and wait for its result. How often their functions are
called hardly depends on how images meet in batches; calls in admission and responses do."""


class Costs(NamedTuple):
    """What one request cost the event loop; `own` are the calls within the rooms OWN."""

    calls: int
    tasks: int
    wakes: int
    own: int


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


async def costs(path: str, body: bytes, kind: str) -> Costs:
    """Return the calls of Python functions on the event loop, counting each time that a coroutine
    goes on, the tasks, and the wake-ups by threads: the fewest of some requests.
    """
    loop, calls, own = asyncio.get_running_loop(), 0, 0
    found: list[Costs] = []
    assert isinstance(loop, CountingLoop)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls, own
        if event == "call":
            calls += 1
            own += frame.f_code.co_filename.startswith(OWN)

    async with served() as app:
        for _ in range(REQUESTS):
            calls = own = loop.tasks = loop.wakes = 0
            sys.setprofile(note)
            try:
                assert await ask(app, path, body, content_type=kind) == 200
            finally:
                sys.setprofile(None)
            found.append(Costs(calls, loop.tasks, loop.wakes, own))
    return min(found)._replace(own=min(each.own for each in found))


def run(work: Coroutine[Any, Any, Costs]) -> Costs:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(work)


@pytest.fixture(autouse=True)
def _no_log_lines() -> Iterator[None]:
    """Log no requests, whatever earlier tests of this process have configured: a line costs calls
    that depend on where it goes.
    """
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(level)


@pytest.mark.parametrize(
    ("path", "most_calls", "wakes"),
    [("/classify?top_k=1", 615, 2), ("/filter?name=gaussian_blur&sigma=2&format=jpeg", 797, 3)],
)
def test_a_photo_costs_few_calls_one_task_and_one_wake_up_for_each_thread_that_it_needs(
    path: str, most_calls: int, wakes: int
) -> None:
    """Decoding, computing and encoding wake the loop once each; a task watches the client."""
    found = run(costs(path, jpeg(1, 640, 480), "image/jpeg"))
    assert (found.tasks, found.wakes) == (1, wakes)
    assert found.calls <= most_calls


def test_each_photo_of_a_form_costs_one_task_two_wake_ups_and_few_calls() -> None:
    """All calls vary by a tenth and more, as the photos meet in batches. Those within OWN are 141
    for a photo, on one busy core 143: their bound fails when they grow by a twentieth.
    """
    body = multipart([jpeg(n, 640, 480) for n in range(16)])
    kind = f"multipart/form-data; boundary={BOUNDARY.decode()}"
    found = run(costs("/classify?top_k=1", body, kind))
    assert found.tasks == 17
    assert found.wakes <= 32
    assert found.own <= 16 * 147
