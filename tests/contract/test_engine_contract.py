"""What the worker may expect of any engine. A new engine is one more entry of `ENGINES`."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from models.domain.errors import ServiceError
from models.domain.image import Image
from models.domain.job import Job, Labels
from tests.fakes import GUARD, FakeEngine, fake_job, run_batch
from workers.engines.cpu.engine import CpuEngine
from workers.filters.registry import parse_one
from workers.operations import FilterChain
from workers.scheduling.engine import BatchResult, Engine

MAX_BATCH_SIZE = 4
"""Jobs that a slot of every engine under test has room for."""

AnyEngine = Engine[Any]


class Bench:
    """An engine and jobs it understands, each with its own number from 0 to 255."""

    def __init__(self, engine: AnyEngine, job: Callable[[int], Job]) -> None:
        self.engine = engine
        self.job = job

    def run(self, numbers: Sequence[int]) -> BatchResult:
        return run_batch(self.engine, [self.job(number) for number in numbers])


def inverting(number: int) -> Job:
    """Return a job of the CPU engine whose answer tells it from others."""
    pixels = np.full((3, 2, 3), number, np.uint8)
    return Job(FilterChain((parse_one("invert", {}),)), Image(pixels))


ENGINES: dict[str, Callable[[], Bench]] = {
    "fake": lambda: Bench(FakeEngine(), fake_job),
    "cpu": lambda: Bench(CpuEngine([], most=4, threads=2), inverting),
}


def on_a_gpu() -> Bench:
    """Return the engine of the first GPU, without a network."""
    from workers.engines.cuda.engine import CudaEngine

    return Bench(CudaEngine([], 4, 1_000_000, "cuda:0"), inverting)


GPU = pytest.param(on_a_gpu, marks=pytest.mark.gpu, id="cuda")


@pytest.fixture(params=[*(pytest.param(v, id=k) for k, v in ENGINES.items()), GPU])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Yield each engine with a job that it can do; the engine is closed afterwards."""
    made: Bench = request.param()
    yield made
    made.engine.close()


def shown(value: object) -> object:
    """Return a value that can be compared."""
    return value.pixels.tobytes() if isinstance(value, Image) else value


def test_a_batch_gives_one_value_a_job_and_the_seconds_of_its_stages(bench: Bench) -> None:
    assert bench.engine.device
    for size in range(1, MAX_BATCH_SIZE + 1):
        result = bench.run(range(size))
        assert len(result.values) == size
        assert all(isinstance(value, Labels | Image | ServiceError) for value in result.values)
        stages = (result.upload, result.compute, result.download)
        assert all(0 <= seconds < GUARD for seconds in stages)


def test_values_come_in_the_order_of_the_jobs(bench: Bench) -> None:
    numbers = [200, 3, 90, 41]
    alone = [shown(bench.run([number]).values[0]) for number in numbers]
    assert [shown(value) for value in bench.run(numbers).values] == alone
    assert len(set(alone)) == len(alone)


def test_a_slot_is_used_again_and_remembers_nothing(bench: Bench) -> None:
    first = shown(bench.run([7]).values[0])
    for number in range(10):
        bench.run([number] * (number % MAX_BATCH_SIZE + 1))
    assert shown(bench.run([7]).values[0]) == first


def test_two_slots_are_under_way_at_a_time(bench: Bench) -> None:
    engine = bench.engine
    slots = [engine.acquire(), engine.acquire()]
    for slot, number in zip(slots, (1, 2), strict=True):
        engine.launch(slot, [bench.job(number)])
    values = [shown(engine.collect(slot).values[0]) for slot in slots]
    for slot in slots:
        engine.release(slot)
    assert values == [shown(bench.run([number]).values[0]) for number in (1, 2)]


def test_a_released_slot_goes_to_whoever_waits_for_one(bench: Bench) -> None:
    taken: queue.SimpleQueue[object] = queue.SimpleQueue()
    asking = threading.Thread(target=take_all, args=(bench.engine, taken))
    asking.start()
    first = taken.get(timeout=GUARD)
    slots = {id(first)}
    bench.engine.release(first)
    while id(slot := taken.get(timeout=GUARD)) not in slots:
        slots.add(id(slot))
    assert slot is first
    bench.engine.close()
    asking.join(GUARD)
    assert not asking.is_alive()


def take_all(engine: AnyEngine, taken: "queue.SimpleQueue[object]") -> None:
    """Take slots until the engine is closed."""
    while (slot := engine.acquire()) is not None:
        taken.put(slot)


def test_closing_wakes_whoever_waits_for_a_slot(bench: Bench) -> None:
    taken: queue.SimpleQueue[object] = queue.SimpleQueue()
    asking = [threading.Thread(target=take_all, args=(bench.engine, taken)) for _ in range(2)]
    for thread in asking:
        thread.start()
    bench.engine.close()
    for thread in asking:
        thread.join(GUARD)
    assert not any(thread.is_alive() for thread in asking)


def test_an_engine_that_is_closed_twice_gives_no_slot_once_the_free_ones_are_taken(
    bench: Bench,
) -> None:
    bench.engine.close()
    bench.engine.close()
    take_all(bench.engine, queue.SimpleQueue())


def test_warming_up_leaves_every_slot_free(bench: Bench) -> None:
    bench.engine.warm_up()
    bench.run([1])
    slots = [bench.engine.acquire(), bench.engine.acquire()]
    assert None not in slots
