"""How servers that are measured end, and how their log is read, with programs in their place."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.cli.load import ending, trial
from models.exit_codes import ExitCode
from tests.server import gone, until

FOREVER = """\
import os, pathlib, sys, time
path = pathlib.Path({path!r})
path.with_suffix(".new").write_text(str(os.getpid()))
path.with_suffix(".new").rename(path)
time.sleep(1000)
"""
"""A program in place of a server: it writes its process id to a file and never becomes ready."""

KILLED = """\
import asyncio
from app.cli.load import trial
head, found, _ = trial.PROGRAM.partition("sys.path")
assert found
trial.PROGRAM = head + {program!r}
asyncio.run(trial.rate({{}}, [b""], 1, 1000.0))
"""
"""A measurement whose server is replaced, but for the lines before it imports anything."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_server_that_is_measured(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pid"
    monkeypatch.setattr(trial, "PROGRAM", FOREVER.format(path=str(path)))

    def send() -> None:
        until(path.exists)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    sender = threading.Thread(target=send)
    before = signal.signal(number, signal.SIG_DFL)  # tests that nohup starts ignore SIGHUP
    try:
        sender.start()
        with pytest.raises(SystemExit) as ended:
            ending.run(trial.rate({}, [b""], 1, 1000.0))
        sender.join()
    finally:
        signal.signal(number, before)
    assert ended.value.code == ExitCode.TERMINATED
    assert gone(int(path.read_text()))


def test_a_server_that_ignores_sigint_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pid"
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    monkeypatch.setattr(trial, "PROGRAM", stubborn + FOREVER.format(path=str(path)))
    monkeypatch.setattr(trial, "STOP", 0.0)

    async def scenario() -> None:
        measuring = asyncio.create_task(trial.rate({}, [b""], 1, 1000.0))
        await asyncio.to_thread(until, path.exists)
        measuring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await measuring

    asyncio.run(scenario())
    assert gone(int(path.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent")
def test_a_server_ends_with_a_measurement_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    program = KILLED.format(program=FOREVER.format(path=str(path)))
    with subprocess.Popen([sys.executable, "-c", program]) as measuring:
        until(path.exists)
        measuring.kill()
    until(lambda: gone(int(path.read_text())))


def test_a_long_line_of_the_log_is_skipped() -> None:
    async def scenario() -> str | None:
        log = asyncio.StreamReader()
        log.feed_data(b"x" * 200_000 + b"\n")
        log.feed_eof()
        return await trial._until_ready(log, 1000.0)

    assert asyncio.run(scenario()) is None
