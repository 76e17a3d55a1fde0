"""How a command ends that runs a service in its own process."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from app.bulk.engines import local_service
from models.exit_codes import ExitCode


class Ended(Exception):
    """Raised in place of the end of this process."""


def when_it_waits(thread: int, number: signal.Signals) -> None:
    """Send this thread a signal once another one has been asleep for a while."""
    asleep = 0
    while asleep < 100:
        stat = Path(f"/proc/self/task/{thread}/stat").read_text()
        asleep = asleep + 1 if stat.rpartition(")")[2].split()[0] == "S" else 0
    signal.pthread_kill(threading.get_ident(), number)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="Linux shows threads in /proc")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_a_signal_that_another_thread_takes_ends_a_command_that_waits(
    number: signal.Signals,
    code: ExitCode,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    before = signal.getsignal(signal.SIGTERM)
    sender = threading.Thread(target=when_it_waits, args=(threading.get_native_id(), number))

    async def never() -> int:
        sender.start()
        await asyncio.Event().wait()
        return ExitCode.OK

    try:
        with pytest.raises(Ended) as ended:
            local_service.run(never(), "it goes on")
    finally:
        signal.signal(signal.SIGTERM, before)
        sender.join()
    assert ended.value.args == (code,)
    assert ("darkroom: it goes on\n" in capfd.readouterr().err) == (number == signal.SIGINT)
