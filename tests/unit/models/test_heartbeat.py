"""Silence is counted in looks, and a stopped process is recognised."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from models.heartbeat import hangs, is_stopped
from tests.server import until


@pytest.fixture
def pid() -> Iterator[int]:
    """Start a process that waits for its standard input."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_a_process_that_a_signal_has_stopped_hangs_sooner(pid: int) -> None:
    assert not is_stopped(pid)
    assert not hangs(pid, 9.0, stopped=1.0, running=10.0)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid))
    assert hangs(pid, 1.0, stopped=1.0, running=10.0)
    assert not hangs(pid, 0.5, stopped=1.0, running=10.0)
    os.kill(pid, signal.SIGCONT)
    until(lambda: not is_stopped(pid))
    assert hangs(pid, 10.0, stopped=1.0, running=10.0)
