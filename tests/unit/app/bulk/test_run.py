"""How the run of a command ends, and its records on a stream."""

import io
import json
import os
import signal
import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest

from app.bulk import engine, run
from app.bulk.run import Run, printer
from app.bulk.work import Finished
from models.exit_codes import ExitCode

RECORD: dict[str, Any] = {
    "index": 0,
    "source": "a.jpg",
    "status": "ok",
    "image": {"media_type": "image/png", "width": 3, "height": 2, "bytes": 70},
    "file": "out/a.png",
}
LINE = json.dumps(RECORD).encode() + b"\n"


def printed(*, as_json: bool) -> str:
    stream = io.StringIO()
    printer(stream, stream.write, as_json=as_json)([Finished(LINE, failed=False)])
    return stream.getvalue()


def test_a_terminal_gets_words_unless_json_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(as_json=False) == LINE.decode(), "it is no terminal"
    monkeypatch.setattr(run, "is_terminal", lambda _: True)
    assert printed(as_json=False) == "a.jpg → out/a.png  3 × 2, 70 bytes\n"
    assert printed(as_json=True) == LINE.decode()


class Ended(Exception):
    """Raised in place of the end of this process."""


class Waiting:
    """Engine that never answers."""

    identity = None
    killed = False

    def answers(self, _tasks: object) -> Any:
        """Wait as for the records of a chunk."""
        begun.set()
        yield engine.result_of(Future(), lambda: None)

    def kill(self) -> None:
        """Note the end."""
        self.killed = True


begun = threading.Event()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_a_signal_ends_a_command_that_waits_and_its_server(
    number: signal.Signals,
    code: ExitCode,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    def send() -> None:
        begun.wait()
        os.kill(os.getpid(), number)

    waiting, made = Waiting(), cast(Any, Run)(None, None, [], 1)
    keep = printer(io.StringIO(), str, as_json=True)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(engine, "start", lambda *_: waiting)
    begun.clear()
    sender, before = threading.Thread(target=send), signal.getsignal(signal.SIGTERM)
    sender.start()
    try:
        with pytest.raises(Ended) as ended:
            made.answer(iter([]), keep, "it goes on")
    finally:
        signal.signal(signal.SIGTERM, before)
        sender.join()
    assert ended.value.args == (code,)
    assert waiting.killed
    assert ("darkroom: it goes on\n" in capfd.readouterr().err) == (number == signal.SIGINT)
