"""One process of a supervisor: its orders, its readiness and its end.

The orders stand on the first line of its standard input, later ones on lines of their own. Their
entry `ready` is a descriptor into which the process writes once it can work what it measured while
it started (`life_signs.py`). Processes of the same pool that start later get that as their order
`measured`, and need not measure it again; new settings begin without. Their entry `beat` has the
seconds between two heartbeats, where these are expected.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.supervision.life_signs import BEAT, LifeSigns
from workers.supervision.process_spec import ProcessSpec

log = logging.getLogger("darkroom.supervisor")

LOOK = 0.1
"""Seconds between two looks at whether a process is ending."""

ROOT = str(Path(__file__).resolve().parents[2])
"""The folder that this package was imported from."""

PROGRAM = f"""\
import runpy, sys
sys.path.insert(0, {ROOT!r})
import app, models, workers
sys.path.append(sys.path.pop(0))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""The program of a child; its first argument is the name of a module, which runs as by `python -m`,
but with the packages of its parent, even those of a checkout that is not installed."""


class Child:
    """A started process; `ready` is set once it can work. It is killed if it `beats` and hangs."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        ready: int,
        measured: dict[str, Any],
        *,
        beats: bool = False,
    ) -> None:
        self.name = name
        self._measured = measured
        self._process = process
        self._urgency = 0
        self.ready = asyncio.Event()
        self._signs = LifeSigns(self.pid, ready, self._on_ready, self._on_hang, beats=beats)

    @classmethod
    async def start(cls, member: ProcessSpec, *, replaces: bool = False) -> "Child":
        """Start a member; one that `replaces` a running process gets its last orders by `take`."""
        reading, writing = os.pipe()
        try:
            process = await _started(member, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            # The child has the only writing end from here on, so reading finds the end of the pipe
            # as soon as the child has ended, however it did.
            os.close(writing)
        child = cls(member.name, process, reading, member.measured, beats=member.beats)
        later = member.last_orders if replaces else ()
        given = {name: order for name, order in member.orders.items() if name not in later}
        measured = {"measured": member.measured} if member.measured else {}
        how = {"beat": BEAT} if member.beats else {}
        child.tell({**given, **measured, **how, "ready": writing})
        log.info("%s is process %s", child.name, child.pid)
        return child

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether its end has not been noticed."""
        return self._process.returncode is None

    @property
    def works(self) -> bool:
        """Return whether it has not ended and its memory is not being released.

        The exit code of a process that was killed is known when its memory is released, which took
        up to 1.9 s with a GPU (H200). The kernel has taken its address space away before
        (proc(5): statm).
        """
        if not self.alive:
            return False
        with contextlib.suppress(OSError):  # a system without /proc
            return not Path(f"/proc/{self.pid}/statm").read_bytes().startswith(b"0 ")
        return True

    def take(self, member: ProcessSpec) -> None:
        """Give a process that replaces another one its last orders, if there are any."""
        if member.last_orders:
            self.tell({name: member.orders[name] for name in member.last_orders})

    def tell(self, orders: Mapping[str, Any]) -> None:
        """Write orders on a line of their own."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(orders).encode() + b"\n")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def urge(self, urgency: int) -> None:
        """Ask it to end: SIGTERM at urgency 1, and a SIGINT more at each higher one.

        No signal of an urgency is sent twice, and SIGTERM always comes first: a process takes a
        second signal as the wish to skip its grace time, and a third as the wish to drop work.
        """
        for number in range(self._urgency, urgency):
            self.send(signal.SIGINT if number else signal.SIGTERM)
        self._urgency = max(self._urgency, urgency)

    @property
    def asked(self) -> bool:
        """Return whether it was asked to end."""
        return self._urgency > 0

    async def wait(self) -> int:
        """Wait for its end and return its exit code."""
        code = await self._process.wait()
        self._signs.close()
        return code

    async def until_ending(self) -> int | None:
        """Wait until it does not work any more; return its exit code, or None if that is still to
        come.
        """
        ended = asyncio.ensure_future(self.wait())
        try:
            while self.works:
                await asyncio.wait([ended], timeout=LOOK)
            await asyncio.wait([ended], timeout=LOOK)  # enough for a process without a GPU
            return ended.result() if ended.done() else None
        finally:
            ended.cancel()

    async def until_ready(self, seconds: float) -> bool:
        """Wait until it is ready; return False after `seconds`, or at once when it has ended."""
        waits = [asyncio.ensure_future(self.ready.wait()), asyncio.ensure_future(self.wait())]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return self.ready.is_set() and self.alive

    def _on_ready(self, measured: dict[str, Any]) -> None:
        self._measured.update(measured)
        self.ready.set()
        log.info("process %s can work as %s", self.pid, self.name)

    def _on_hang(self, silence: float) -> None:
        text = "%s (process %s) has given no sign of life for %.0f s and is killed"
        log.error(text, self.name, self.pid, silence)
        self.send(signal.SIGKILL)


async def _started(member: ProcessSpec, ready: int) -> asyncio.subprocess.Process:
    """Start a process of a member, which inherits the descriptor `ready` too.

    In a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone. With `-P`
    nothing is imported from the current folder, where others may have put a file; a checkout that
    is not installed is found after everything else.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-c",
        PROGRAM,
        member.module,
        member.name,
        stdin=asyncio.subprocess.PIPE,
        pass_fds=(*member.descriptors, ready),
        env=member.environment,
        start_new_session=True,
    )
