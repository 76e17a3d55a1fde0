"""How long a replica is remembered that does not report, and whose weights count."""

import asyncio

from tests.worker_fixture import wait_until
from workers.cluster.control import MOST_MESSAGES, Control
from workers.cluster.messages import Report
from workers.cluster.replicas import SILENT, Replicas
from workers.ipc.frames import LoadReport


class Clock:
    """Time that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def report(name: str, sequence: int, identity: str = "a") -> Report:
    return Report(name, sequence, "cpu", identity, 2, LoadReport(0, 0, 0, 1.0))


def test_a_replica_that_is_late_is_remembered_while_others_answer() -> None:
    clock = Clock()
    replicas = Replicas(clock=clock)
    replicas.all_reported([report("a", 1), report("b", 1)], complete=True)
    clock.now = SILENT - 1
    replicas.all_reported([report("a", 2)], complete=False)
    assert replicas.busy_images == 4
    clock.now = SILENT + 1
    replicas.all_reported([report("a", 3)], complete=False)
    assert replicas.busy_images == 2


def test_a_replica_that_ray_does_not_know_any_more_is_forgotten_at_once() -> None:
    replicas = Replicas()
    replicas.all_reported([report("a", 1), report("b", 1)], complete=True)
    replicas.all_reported([report("a", 2)], complete=True)
    assert replicas.busy_images == 2


def test_all_replicas_are_remembered_while_none_answers() -> None:
    clock = Clock()
    replicas = Replicas(clock=clock)
    replicas.all_reported([report("a", 1)], complete=True)
    replicas.all_reported([], complete=False)
    assert replicas.busy_images == 2


def test_the_first_report_may_be_of_other_weights_than_the_front_end_names() -> None:
    replicas = Replicas(identity="a")
    replicas.reported(report("new", 1, "b"))
    assert replicas.changed


class Slow:
    """Replicas that answer no message about dropped jobs until they are told to."""

    def __init__(self) -> None:
        self.told: list[list[int]] = []
        self.answer = asyncio.Event()

    async def ask_all(self, method: str, *arguments: object) -> list[bytes | None]:
        if method == "cancel":
            numbers = arguments[1]
            assert isinstance(numbers, list)
            self.told.append(numbers)
            await self.answer.wait()
        return []


def test_messages_to_slow_replicas_are_bounded_and_all_jobs_are_told() -> None:
    async def test() -> None:
        workers = Slow()
        control = Control(workers, Replicas(), "front", 1.0)  # type: ignore[arg-type]  # a stand-in
        for number in range(50):
            control.drop(number)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(workers.told) == MOST_MESSAGES
        workers.answer.set()
        await wait_until(lambda: sum(map(len, workers.told)) == 50)
        assert len(workers.told) == MOST_MESSAGES + 1
        await control.aclose()

    asyncio.run(test())
