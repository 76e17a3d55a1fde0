"""A tree of processes: starts them, starts those that die again, ends them in order.

Knows nothing of what they do. Each has a pipe to this process as its standard input, in which its
orders stand on the first line; when the pipe closes its parent is gone, and it ends at once.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.exit_codes import ExitCode

log = logging.getLogger("darkroom.supervisor")

PAUSES = (0.1, 0.5, 2.0, 10.0)
"""Seconds before a process that died is started again; counted anew once it lived `STABLE`."""
STABLE = 60.0

ROOT = str(Path(__file__).resolve().parents[1])
"""The folder that this package was imported from."""


@dataclass(frozen=True, slots=True)
class Member:
    """One process: `python -m module name`, its orders, and what it inherits."""

    name: str
    module: str
    orders: Mapping[str, Any]
    descriptors: Sequence[int] = ()
    environment: Mapping[str, str] | None = None
    patience: float = 10.0
    """Seconds it may take to end after SIGTERM."""


@dataclass(eq=False)
class Supervisor:
    """Runs `members`; they end from the last to the first group.

    `on_exit` gets each dead pid, `on_stop` is called when the end begins.
    """

    groups: Sequence[Sequence[Member]]
    on_exit: Callable[[int], None] = lambda pid: None
    on_stop: Callable[[], None] = lambda: None
    _running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _hurried: bool = False
    _code: int = 0

    async def run(self) -> int:
        """Until SIGTERM or SIGINT, or a process that can never run; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told, number)
        keepers = {
            member.name: asyncio.create_task(self._keep(member))
            for group in self.groups
            for member in group
        }
        await self._stop.wait()
        self.on_stop()
        for group in reversed(self.groups):
            await asyncio.gather(*(self._end(member, keepers[member.name]) for member in group))
        return self._code

    def _told(self, number: signal.Signals) -> None:
        """The first signal begins the end; SIGINT, or a later one, hurries it."""
        if number is signal.SIGINT:
            self._code = self._code or ExitCode.INTERRUPTED
        self._hurried = self._hurried or number is signal.SIGINT or self._stop.is_set()
        if self._stop.is_set():
            for member in (each for group in self.groups for each in group):
                self._send(member, signal.SIGINT)
        self._stop.set()

    async def _keep(self, member: Member) -> None:
        """Start a process, and again whenever it died."""
        deaths, proven = 0, False
        while not self._stop.is_set():
            started, code = time.monotonic(), await self._life(member)
            if self._stop.is_set():
                return
            lived = time.monotonic() - started > STABLE
            proven, deaths = proven or lived, 0 if lived else deaths + 1
            if code == ExitCode.WRONG_USAGE and not proven:
                self._code = ExitCode.WRONG_USAGE
                self._stop.set()
                return
            pause = PAUSES[min(deaths, len(PAUSES) - 1)]
            log.error("%s died (%s); starting it again in %s s", member.name, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)

    async def _life(self, member: Member) -> object:
        """One process from its start to its end; its exit code, or why there is none."""
        try:
            process = self._running[member.name] = await _start(member)
        except OSError as error:  # no memory, no descriptors: it may work later
            return error
        if self._stop.is_set():
            self._ask(member)
        code = await process.wait()
        del self._running[member.name]
        try:
            self.on_exit(process.pid)
        except Exception:  # the restart is protected
            log.warning("the end of %s could not be noted", member.name, exc_info=True)
        return code

    async def _end(self, member: Member, keeper: "asyncio.Task[None]") -> None:
        """Ask it to end, and SIGKILL it if it does not listen."""
        self._ask(member)
        done, _ = await asyncio.wait([keeper], timeout=member.patience)
        if not done:
            log.error("%s did not end within %s s and is killed", member.name, member.patience)
            self._send(member, signal.SIGKILL)
            self._code = 1
        await asyncio.gather(keeper, return_exceptions=True)

    def _ask(self, member: Member) -> None:
        """SIGTERM is for all to end; SIGINT, to those who know it, not to be slow about it."""
        self._send(member, signal.SIGTERM)
        if self._hurried:
            self._send(member, signal.SIGINT)

    def _send(self, member: Member, number: signal.Signals) -> None:
        process = self._running.get(member.name)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


async def _start(member: Member) -> asyncio.subprocess.Process:
    """In a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone.

    With `-P` nothing is imported from the current folder, where anybody may have put a file.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        member.module,
        member.name,
        stdin=asyncio.subprocess.PIPE,
        pass_fds=tuple(member.descriptors),
        env=_environment(member),
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(member.orders).encode() + b"\n")
    log.info("%s is process %s", member.name, process.pid)
    return process


def _environment(member: Member) -> dict[str, str]:
    """The member's, by which it finds this package again where the parent found it.

    An installed package and a checkout in PYTHONPATH are found anyway. A checkout that was found
    only because it is the current folder is named.
    """
    environment = dict(os.environ if member.environment is None else member.environment)
    if ROOT not in sys.path[1:]:
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{known}" if known else ROOT
    return environment
