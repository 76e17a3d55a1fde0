"""A service in this process: files take the path of uploads, with the same engine and records."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

from app.admission import Permit
from app.intake.item import Item
from app.pipeline.results.outcomes import Answer
from app.service import Service
from models.exit_codes import ExitCode

AHEAD = 32
"""Files in work at a time: enough to fill micro-batches, few enough to hold in memory."""

GOES_ON = "interrupted; the same command goes on with the images that are left"
"""The hint of commands that write files."""

ItemWork = Callable[[Service, Item, Permit], Awaitable[Answer]]


def run(answering: Coroutine[Any, Any, int], hint: str = "") -> int:
    """Run to the end and return the exit code; Ctrl-C or SIGTERM ends this process at once.

    After Ctrl-C the `hint` is printed to standard error, if there is one.

    Nothing is waited for then, in contrast to asyncio.run: not for the threads that load a network
    or compute. Blocks that clean up are left first, so no half-written file stays.
    """
    signal.signal(signal.SIGTERM, _terminated)
    loop = asyncio.new_event_loop()
    try:
        with _woken_by_signals(loop):
            return loop.run_until_complete(answering)
    except KeyboardInterrupt:
        if hint:
            os.write(sys.stderr.fileno(), f"\ndarkroom: {hint}\n".encode())
        os._exit(ExitCode.INTERRUPTED)
    except SystemExit:
        os._exit(ExitCode.TERMINATED)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let signals wake the event loop, so that Python raises their exceptions at once.

    A signal that comes just before the loop begins to wait, or to another thread, does not
    interrupt the wait by itself: Ctrl-C would have no effect until something else happens.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        loop.add_reader(ours, ours.recv, 4096)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(ours)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.TERMINATED)
