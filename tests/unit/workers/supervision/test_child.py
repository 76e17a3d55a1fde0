"""The signals that ask one process to end."""

import asyncio
import os
import signal
from dataclasses import dataclass, field

import pytest

from workers.supervision.supervisor import Child, ProcessSpec, Supervisor

TERM, INT = signal.SIGTERM, signal.SIGINT


@dataclass
class FakeProcess:
    """A process that notes its signals, and ends at SIGKILL or, if `obeys`, at SIGTERM."""

    obeys: bool = False
    pid: int = 4711
    returncode: int | None = None
    signals: list[signal.Signals] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if self.obeys and number is TERM:
            self.ended.set()

    async def wait(self) -> int:
        await self.ended.wait()
        return 0


def child(process: FakeProcess) -> Child:
    reading, writing = os.pipe()
    os.close(writing)
    return Child("one", process, reading)  # type: ignore[arg-type]  # a fake process


@pytest.mark.parametrize(
    ("urgencies", "signals"),
    [
        ([1], [TERM]),
        ([1, 1], [TERM]),
        ([2], [TERM, INT]),
        ([1, 2], [TERM, INT]),
        ([2, 2, 1], [TERM, INT]),
        ([3], [TERM, INT, INT]),
    ],
)
def test_each_urgency_is_sent_once_and_sigterm_first(
    urgencies: list[int], signals: list[signal.Signals]
) -> None:
    async def test() -> list[signal.Signals]:
        process = FakeProcess()
        asked = child(process)
        for each in urgencies:
            asked.urge(each)
        process.ended.set()
        await asked.wait()
        return process.signals

    assert asyncio.run(test()) == signals


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[FakeProcess]:
    """Let the supervisor start fake processes, and list them."""
    found: list[FakeProcess] = []

    async def start(_member: ProcessSpec) -> Child:
        found.append(FakeProcess(obeys=True))
        return child(found[-1])

    monkeypatch.setattr(Child, "start", start)
    return found


def supervised(started: list[FakeProcess], *signals: signal.Signals) -> list[signal.Signals]:
    """Send signals in one turn of the event loop; return those that the one process got."""

    async def test() -> None:
        running = asyncio.create_task(Supervisor([[ProcessSpec("one", "none", {})]]).run())
        while not started:  # noqa: ASYNC110 (the supervisor starts it in its first turns)
            await asyncio.sleep(0)
        for each in signals:
            signal.raise_signal(each)
        await running

    asyncio.run(test())
    return started[0].signals


def test_two_signals_at_once_skip_the_grace_time_and_no_more(started: list[FakeProcess]) -> None:
    assert supervised(started, TERM, TERM) == [TERM, INT]


def test_a_single_sigint_skips_the_grace_time(started: list[FakeProcess]) -> None:
    assert supervised(started, INT) == [TERM, INT]


def test_a_single_sigterm_leaves_the_grace_time(started: list[FakeProcess]) -> None:
    assert supervised(started, TERM) == [TERM]
