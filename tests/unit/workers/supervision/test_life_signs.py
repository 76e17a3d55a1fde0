"""The signs of life of processes: which end a process, and which do not."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workers.supervision.test_child import FakeProcess
from tests.unit.workers.supervision.test_supervisor import LONG, lived, member, supervise
from workers.supervision import supervisor
from workers.supervision.supervisor import BEAT, STARTING, STOPPED, WORKING, Child, Supervisor


class Signs:
    """The signs of a process of which a test writes the messages, and looks when it wants to."""

    def __init__(self, pid: int) -> None:
        reading, self._writing = os.pipe()
        self._process = FakeProcess(pid=pid)
        process: Any = self._process
        self.child = Child("one", process, reading, beats=True)

    @property
    def hung(self) -> bool:
        """Return whether the process was killed because it hangs."""
        return signal.SIGKILL in self._process.signals

    async def write(self, message: bytes) -> None:
        os.write(self._writing, message)
        await asyncio.sleep(0)  # the loop finds that the pipe can be read
        await asyncio.sleep(0)

    def look(self, seconds: float) -> None:
        """Look as often as in `seconds`, or until it hangs."""
        for _ in range(round(seconds / BEAT)):
            if not self.hung:
                self.child._look()

    def close(self) -> None:
        self.child._hear_no_more()
        os.close(self._writing)


def run(test: Callable[[Signs], Any]) -> None:
    async def prepared() -> None:
        signs = Signs(os.getpid())
        try:
            await test(signs)
        finally:
            signs.close()

    asyncio.run(prepared())


def test_a_process_that_beats_never_hangs() -> None:
    async def test(signs: Signs) -> None:
        await signs.write(b"{}\n")
        for _ in range(10):
            signs.look(WORKING - BEAT)
            await signs.write(b"\n")
        assert signs.child.ready.is_set()
        assert not signs.hung

    run(test)


def test_a_process_that_can_work_hangs_after_fewer_seconds_than_one_that_starts() -> None:
    async def test(signs: Signs) -> None:
        await signs.write(b"\n")
        signs.look(STARTING - BEAT)
        assert not signs.hung
        await signs.write(b"{}\n")
        signs.look(WORKING - BEAT)
        assert not signs.hung
        signs.look(BEAT)
        assert signs.hung

    run(test)


def test_a_process_that_is_stopped_hangs_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.heartbeat.is_stopped", lambda _pid: True)

    async def test(signs: Signs) -> None:
        signs.look(STOPPED - BEAT)
        assert not signs.hung
        signs.look(BEAT)
        assert signs.hung

    run(test)


def test_a_process_is_looked_at_no_more_when_it_has_ended() -> None:
    async def test(signs: Signs) -> None:
        timer = signs.child._timer
        assert timer is not None
        os.close(signs._writing)
        signs.child._receive()
        signs._writing = os.open(os.devnull, os.O_WRONLY)
        assert timer.cancelled()

    run(test)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second of silence be a fault, looked for often."""
    for name, value in (("BEAT", 0.02), ("STARTING", 60.0), ("WORKING", 1.0)):
        monkeypatch.setattr(supervisor, name, value)


@pytest.mark.usefixtures("hasty")
def test_a_process_that_gives_no_sign_of_life_is_replaced(tmp_path: Path) -> None:
    lives, ended = tmp_path / "lives", list[int]()
    spec = replace(member(lives, seconds=LONG), beats=True)
    made = Supervisor([[spec]], ended.append)
    assert supervise(made, lambda: len(lived(lives)) >= 2) == 0
    first, second, *_ = [int(line.split()[1]) for line in lived(lives)]
    assert first in ended
    assert first != second


@pytest.mark.usefixtures("hasty")
def test_a_process_that_is_not_asked_for_signs_of_life_needs_none(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    other = replace(member(lives, "other", seconds=LONG), beats=True)
    made = Supervisor([[member(lives, "quiet", seconds=LONG), other]])
    assert supervise(made, lambda: _count(lives, "other") >= 3) == 0
    assert _count(lives, "quiet") == 1


def _count(lives: Path, name: str) -> int:
    return sum(line.split()[0] == name for line in lived(lives))
