"""A tree of processes: starts them, starts those that die again, ends them in order.

Knows nothing of what they do. Each has a pipe to this process as its standard input, in which its
orders stand on the first line; when the pipe closes its parent is gone, and it ends at once.
"""

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger("darkroom.supervisor")

WRONG_USAGE = 2
"""The exit code of a process that will never run, however often it is started."""

PAUSES = (0.1, 0.5, 2.0, 10.0)
"""Seconds before a process that died is started again; counted anew once it lived `STABLE`."""
STABLE = 60.0


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
    """Runs `members`; they end from the last to the first group. `on_exit` gets each dead pid."""

    groups: Sequence[Sequence[Member]]
    on_exit: Callable[[int], None] = lambda pid: None
    _running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _stopping: bool = False
    _code: int = 0

    async def run(self) -> int:
        """Until SIGTERM or SIGINT, or a process that can never run; the exit code."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        keepers = {
            member.name: asyncio.create_task(self._keep(member, stop))
            for group in self.groups
            for member in group
        }
        await stop.wait()
        self._stopping = True
        for group in reversed(self.groups):
            await asyncio.gather(*(self._end(member, keepers[member.name]) for member in group))
        return self._code

    async def _keep(self, member: Member, stop: asyncio.Event) -> None:
        """Start a process, and again whenever it died."""
        deaths = 0
        while not self._stopping:
            started = time.monotonic()
            process = self._running[member.name] = await _start(member)
            code = await process.wait()
            del self._running[member.name]
            self.on_exit(process.pid)
            if self._stopping:
                return
            if code == WRONG_USAGE:
                self._code = code
                stop.set()
                return
            deaths = 0 if time.monotonic() - started > STABLE else deaths + 1
            pause = PAUSES[min(deaths, len(PAUSES) - 1)]
            log.error("%s died (%s); starting it again in %s s", member.name, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    async def _end(self, member: Member, keeper: "asyncio.Task[None]") -> None:
        """SIGTERM, and SIGKILL for who does not listen."""
        process = self._running.get(member.name)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        done, _ = await asyncio.wait([keeper], timeout=member.patience)
        if not done and (process := self._running.get(member.name)) is not None:
            log.error("%s did not end within %s s and is killed", member.name, member.patience)
            process.kill()
            self._code = 1
        await asyncio.gather(keeper, return_exceptions=True)


async def _start(member: Member) -> asyncio.subprocess.Process:
    """In a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        member.module,
        member.name,
        stdin=asyncio.subprocess.PIPE,
        pass_fds=tuple(member.descriptors),
        env=member.environment,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(member.orders).encode() + b"\n")
    log.info("%s is process %s", member.name, process.pid)
    return process
