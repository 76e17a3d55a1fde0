"""Alarms ring once, in order, and all of them need one timer of the event loop."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from models.domain.alarms import Alarms, Timeout
from models.domain.deadline import NEVER, Deadline
from tests.fakes import FakeClock


class FakeLoop:
    """A clock and the timers that were started, as an event loop has them."""

    def __init__(self) -> None:
        self.clock = FakeClock(100.0)
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.started = 0

    def time(self) -> float:
        return self.clock.now

    def call_at(self, at: float, call: Callable[[], None]) -> Any:
        self.started += 1
        self.timers.append(timer := (at, call))
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def call_soon(self, call: Callable[[], None]) -> None:
        self.timers.append((self.clock.now, call))

    def turn(self, seconds: float) -> None:
        """Let time pass, and run the timers that are due."""
        self.clock.advance(seconds)
        for timer in [each for each in self.timers if each[0] <= self.clock.now]:
            self.timers.remove(timer)
            timer[1]()


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def alarms(loop: FakeLoop) -> Alarms:
    return Alarms(cast(asyncio.AbstractEventLoop, loop))


def test_alarms_ring_once_in_the_order_of_their_deadlines_and_not_before(
    loop: FakeLoop, alarms: Alarms
) -> None:
    rang: list[tuple[str, float]] = []
    alarms.set(Deadline(130.0), lambda: rang.append(("late", loop.clock.now)))
    alarms.set(Deadline(101.0), lambda: rang.append(("early", loop.clock.now)))
    loop.turn(0.9)
    assert not rang
    loop.turn(0.1)
    loop.turn(30.0)
    loop.turn(10.0)
    assert rang == [("early", 101.0), ("late", 131.0)]


def test_a_cancelled_alarm_does_not_ring_nor_does_one_that_another_cancels(
    loop: FakeLoop, alarms: Alarms
) -> None:
    rang: list[object] = []
    alarms.set(Deadline(101.0), lambda: rang.append(second.cancel()))
    second = alarms.set(Deadline(101.0), lambda: rang.append("second"))
    third = alarms.set(Deadline(101.0), lambda: rang.append("third"))
    assert (third.cancel(), third.cancel()) == (True, False)
    loop.turn(2.0)
    assert rang == [True]


def test_an_alarm_that_never_comes_starts_no_timer(loop: FakeLoop, alarms: Alarms) -> None:
    alarm = alarms.set(NEVER, lambda: None)
    assert not loop.timers
    assert alarm.cancel()


def test_at_the_end_all_alarms_ring_that_end_early_and_so_do_later_ones(
    loop: FakeLoop, alarms: Alarms
) -> None:
    rang: list[str] = []
    alarms.set(Deadline(130.0), lambda: rang.append("request"))
    alarms.set(Deadline(130.0), lambda: rang.append("job"), ends_early=False)
    assert alarms.set(Deadline(130.0), lambda: rang.append("cancelled")).cancel()
    alarms.end()
    assert rang == ["request"]
    alarms.set(NEVER, lambda: rang.append("later"))
    assert alarms.set(NEVER, lambda: rang.append("cancelled")).cancel()
    loop.turn(0.0)
    assert rang == ["request", "later"]
    loop.turn(30.0)
    assert rang == ["request", "later", "job"]


async def test_a_block_that_takes_too_long_ends_with_a_timeout() -> None:
    with pytest.raises(TimeoutError), Timeout(Deadline(0.0)):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        with Timeout(NEVER):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
