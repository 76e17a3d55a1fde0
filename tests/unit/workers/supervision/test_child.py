"""One process: the signals that ask it to end, and its signs of life."""

import asyncio
import os
import signal
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest

from models.heartbeat import BEAT
from workers.supervision.supervisor import (
    STARTING,
    WORKING,
    Child,
    ProcessSpec,
    Supervisor,
)

TERM, INT = signal.SIGTERM, signal.SIGINT


@dataclass
class FakeProcess:
    """A process that notes its signals, and ends at SIGTERM if it `obeys`."""

    obeys: bool = False
    pid: int = field(default_factory=os.getpid)
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


class Fake:
    """A child over a fake process; a test writes its messages, and looks when it wants to."""

    def __init__(self, *, obeys: bool = False) -> None:
        ours, self.channel = socket.socketpair()
        self.process = FakeProcess(obeys)
        process: Any = self.process
        self.child = Child("one", process, ours)

    async def write(self, message: bytes) -> None:
        self.channel.send(message)
        await asyncio.sleep(0)  # the loop finds that the socket can be read
        await asyncio.sleep(0)

    def hangs_after(self, seconds: float) -> bool:
        """Look as often as in `seconds`; return whether the process was killed."""
        for _ in range(round(seconds / BEAT)):
            if signal.SIGKILL not in self.process.signals:
                self.child._look()
        return signal.SIGKILL in self.process.signals


@pytest.mark.parametrize(
    ("told", "signals"),
    [
        ([TERM], [TERM]),
        ([INT], [TERM, INT]),
        ([TERM, TERM], [TERM, INT]),
        ([INT, INT], [TERM, INT, INT]),
    ],
)
def test_a_sigint_or_a_second_signal_skips_the_grace_time(
    told: list[signal.Signals], signals: list[signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        fakes: list[Fake] = []

        async def start(_spec: ProcessSpec) -> Child:
            fakes.append(Fake(obeys=True))
            return fakes[-1].child

        monkeypatch.setattr(Child, "start", start)
        running = asyncio.create_task(Supervisor([[ProcessSpec("one", "none", {})]]).run())
        while not fakes:  # noqa: ASYNC110 (the supervisor starts it in its first turns)
            await asyncio.sleep(0)
        for each in told:
            signal.raise_signal(each)
        await running
        fakes[0].channel.close()
        assert fakes[0].process.signals == signals

    asyncio.run(test())


async def test_a_process_that_can_work_hangs_sooner_than_a_process_that_starts() -> None:
    fake = Fake()
    await fake.write(b"\n")
    assert not fake.hangs_after(STARTING - BEAT)
    await fake.write(b"{}\n")
    assert fake.child.ready.is_set()
    for _ in range(10):
        assert not fake.hangs_after(WORKING - BEAT)
        await fake.write(b"\n")
    assert fake.hangs_after(WORKING)
    fake.process.ended.set()
    await fake.child.wait()
    fake.channel.close()
