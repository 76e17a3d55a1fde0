"""Supervise processes: start them, restart those that end, replace them, end them in order.

What the processes do is not known here. Each gets its orders through a pipe on its standard input;
when the pipe closes, its parent has ended, and it ends at once.
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from models.exit_codes import ExitCode
from workers.supervision.child import Child
from workers.supervision.process_spec import ProcessSpec
from workers.supervision.rolling import Rolling

__all__ = ["Groups", "ProcessSpec", "Supervisor"]

log = logging.getLogger("darkroom.supervisor")

PAUSES = (0.0, 0.5, 2.0, 10.0)
"""Seconds before each restart of a process; they begin anew once it has run for `STABLE`. The first
restart follows at once, because clients wait for it."""
STABLE = 60.0

PATIENCE = 90.0
"""Seconds after which a server begins although some processes cannot work. A first start on a GPU,
which compiles all kernels, takes half of that."""

LOOK = 0.05
"""Seconds between two checks whether all members can work for the first time."""

Groups = Sequence[Sequence[ProcessSpec]]


@dataclass(eq=False)
class Supervisor:
    """Supervisor of the processes in `groups`, which end from the last to the first group.

    `on_exit` gets the id of each process that ended, `on_stop` is called when the shutdown begins,
    `on_ready` once, when all members can work for the first time. On SIGUSR2 all members are
    replaced, one after the other; on SIGHUP as well, by those that `reload` returns, unless it
    raises ValueError.
    """

    groups: Groups
    on_exit: Callable[[int], None] = lambda _pid: None
    on_stop: Callable[[], None] = lambda: None
    reload: Callable[[], Groups] | None = None
    on_ready: Callable[[], None] = lambda: None
    _running: dict[str, Child] = field(default_factory=dict)
    _members: dict[str, ProcessSpec] = field(default_factory=dict)
    _releasing: set[asyncio.Task[None]] = field(default_factory=set)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _urgency: int = 0
    _code: int = 0

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a process can never run; return the exit code."""
        loop = asyncio.get_running_loop()
        self._members = {member.name: member for group in self.groups for member in group}
        self._rolling = Rolling(self._running, self._members, self._noted)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told, number)
        for number in (signal.SIGHUP, signal.SIGUSR2):
            loop.add_signal_handler(number, self._renew, number)
        keepers = {name: asyncio.create_task(self._keep(name)) for name in self._members}
        announcing = asyncio.create_task(self._announce())
        await self._stop.wait()
        announcing.cancel()
        self.on_stop()
        await self._rolling.close()
        for group in reversed(self.groups):
            await asyncio.gather(*(self._end(each, keepers[each.name]) for each in group))
        await asyncio.gather(self._rolling.ended(), *self._releasing)
        return self._code

    def stop(self) -> None:
        """Begin the shutdown, as SIGTERM does."""
        self._told(signal.SIGTERM)

    async def _announce(self) -> None:
        """Call `on_ready` once all members can work, or without some of them after `PATIENCE`."""
        since = time.monotonic()
        while not self._can_begin(time.monotonic() - since):  # noqa: ASYNC110 (many events)
            await asyncio.sleep(LOOK)
        try:
            self.on_ready()
        except OSError as error:  # another program listens at the address meanwhile
            log.critical("the server cannot begin: %s", error)
            self._code = ExitCode.FAILED
            self._told(signal.SIGTERM)

    def _told(self, number: signal.Signals) -> None:
        """Begin the shutdown at the first signal; a SIGINT or a later signal skips grace times.

        Each SIGINT after that makes the end more urgent. Only processes that were asked to end are
        urged here, so that the groups end in their order; the others are urged when they are asked.
        """
        if number is signal.SIGINT:
            self._code = self._code or ExitCode.INTERRUPTED
            self._urgency = max(2, self._urgency + 1)
        else:
            self._urgency = max(self._urgency, 2 if self._stop.is_set() else 1)
        for child in [child for name in self._members for child in self._processes(name)]:
            if child.asked:
                child.urge(self._urgency)
        self._stop.set()

    def _renew(self, number: signal.Signals) -> None:
        """Replace all members, on SIGHUP by members with the present settings."""
        members = list(self._members.values())
        if number is signal.SIGHUP:
            if self.reload is None:
                return
            try:
                found = {member.name: member for group in self.reload() for member in group}
            except Exception as error:  # the server is protected: nothing changes
                log.error("nothing was reloaded: %s", error)
                return
            members = [found[name] for name in self._members if name in found]
        self._rolling.begin(members)

    def _can_begin(self, waited: float) -> bool:
        """Return whether all members can work; after `PATIENCE` one of each group is enough."""
        enough = any if waited > PATIENCE else all
        return all(enough([self._works(each.name) for each in group]) for group in self.groups)

    def _works(self, name: str) -> bool:
        child = self._running.get(name)
        return child is not None and child.ready.is_set() and child.works

    async def _keep(self, name: str) -> None:
        """Start a process, and again whenever it ends."""
        deaths, proven = 0, False
        while not self._stop.is_set():
            started, code = time.monotonic(), await self._life(name)
            if self._stop.is_set():
                return
            lived = time.monotonic() - started > STABLE
            proven, deaths = proven or lived, 0 if lived else deaths + 1
            if code == ExitCode.WRONG_USAGE and not proven:
                self._code = ExitCode.WRONG_USAGE
                self._stop.set()
                return
            pause = PAUSES[min(max(deaths - 1, 0), len(PAUSES) - 1)]
            log.error("%s died (%s); starting it again in %g s", name, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)

    async def _life(self, name: str) -> object:
        """Run a process and its replacements to the end; return the exit code, or the error."""
        member = self._members[name]
        try:
            child = self._running[name] = await _start(member)
        except OSError as error:  # no memory, no descriptors: it may work later
            return error
        if self._stop.is_set():
            child.urge(self._urgency or 1)
        code = await self._ended(child, member)
        while self._running[name] is not child:  # it was replaced
            child = self._running[name]
            code = await self._ended(child, member)
        del self._running[name]
        if code is None:
            releasing = asyncio.create_task(self._released(child))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)
            return "its exit code comes when its memory is released"
        self._noted(child)
        return code

    async def _ended(self, child: Child, member: ProcessSpec) -> int | None:
        """Wait for the end of a process and return its exit code.

        Without waiting for its memory, it is None for a killed process that had worked, if its
        successor may start beside that.
        """
        if member.replaced_at_once:
            code = await child.until_ending()
            if code is not None or (child.ready.is_set() and not child.asked):
                return code
        return await child.wait()

    async def _released(self, child: Child) -> None:
        await child.wait()
        self._noted(child)

    def _noted(self, child: Child) -> None:
        try:
            self.on_exit(child.pid)
        except Exception:  # the restart is protected
            log.warning("the end of %s could not be noted", child.name, exc_info=True)

    async def _end(self, member: ProcessSpec, keeper: "asyncio.Task[None]") -> None:
        """Send SIGTERM to the processes of a member, and SIGKILL if they do not end in time."""
        for child in self._processes(member.name):
            child.urge(self._urgency or 1)
        done, _ = await asyncio.wait([keeper], timeout=member.patience)
        if not done:
            log.error("%s did not end within %s s and is killed", member.name, member.patience)
            for child in self._processes(member.name):
                child.send(signal.SIGKILL)
            self._code = 1
        await asyncio.gather(keeper, return_exceptions=True)

    def _processes(self, name: str) -> list[Child]:
        """Return the processes of a member: those that leave, and the one in their place."""
        running = self._running.get(name)
        return self._rolling.leaving(name) + ([] if running is None else [running])


async def _start(member: ProcessSpec) -> Child:
    return await Child.start(member)
