"""Supervise processes: start them, restart those that end, replace them, end them in order.

What the processes do is not known here. Each gets its orders through a pipe on its standard input;
when the pipe closes, its parent has ended, and it ends at once.
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
from models.heartbeat import Heartbeat, hangs

log = logging.getLogger("darkroom.supervisor")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: `python -m module name`, its orders, and what it inherits.

    A process that is started to replace a running one waits for the orders named in `last_orders`
    until that one leaves.
    """

    name: str
    module: str
    orders: Mapping[str, Any]
    descriptors: Sequence[int] = ()
    environment: Mapping[str, str] | None = None
    patience: float = 10.0
    """Seconds in which it must end after SIGTERM."""
    replaced_at_once: bool = False
    """Whether its successor starts before the memory of a killed process is released."""
    last_orders: Sequence[str] = ()
    beats: bool = False
    """Whether it gives signs of life, and is killed when they do not come."""


# One process. Its orders stand on the first line of its standard input, later orders on lines of
# their own. The order `ready` is a descriptor into which the process writes signs of life, each a
# line: `{}` once it can work, and empty lines as heartbeats, `beat` seconds apart where the
# supervisor expects heartbeats. A process hangs if its event loop no longer beats: because a signal
# has stopped the process, a lock is never released, or a thread keeps Python's lock.

MOST = 4096
"""Bytes that are read at a time: a pipe passes on up to that many in one piece (pipe(7))."""

BEAT = 1.0
"""Seconds between two heartbeats, and between two looks at them."""

STOPPED = 10.0
"""Seconds of silence after which a process hangs that a signal has stopped."""

WORKING = 30.0
"""The same of one that can work. Its event loop is never busy for one of them; this has to hold on
a machine that is many times too slow."""

STARTING = 120.0
"""The same of one that is starting. Imports, and the driver of a GPU, keep Python's lock for up to
ten of them; the first heartbeat comes after some of that."""

LOOK = 0.1
"""Seconds between two looks at whether a process is ending, or all can work."""

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
    """A started process, whose signs of life come by the descriptor `signs`.

    `ready` is set once it can work. It is killed if it `beats` and hangs.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, signs: int, *, beats: bool = False
    ) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self._process, self._signs = process, signs
        self._urgency = 0
        self._patience, self._heart = STARTING, Heartbeat(BEAT)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(signs, self._receive)
        self._timer = self._loop.call_later(BEAT, self._look) if beats else None

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
        child = cls(member.name, process, reading, beats=member.beats)
        later = member.last_orders if replaces else ()
        given = {name: order for name, order in member.orders.items() if name not in later}
        how = {"beat": BEAT} if member.beats else {}
        child.tell({**given, **how, "ready": writing})
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
        self._hear_no_more()
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

    def _receive(self) -> None:
        """Read signs of life."""
        if not (found := os.read(self._signs, MOST)):
            self._hear_no_more()
            return
        self._heart.beat()
        if b"}" in found and not self.ready.is_set():
            self._patience = WORKING
            self.ready.set()
            log.info("process %s can work as %s", self.pid, self.name)

    def _look(self) -> None:
        """Kill the process if it hangs."""
        silence = self._heart.silence()
        if hangs(self.pid, silence, STOPPED, self._patience):
            text = "%s (process %s) has given no sign of life for %.0f s and is killed"
            log.error(text, self.name, self.pid, silence)
            self.send(signal.SIGKILL)
        else:
            self._timer = self._loop.call_later(BEAT, self._look)

    def _hear_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._signs >= 0:
            self._loop.remove_reader(self._signs)
            os.close(self._signs)
            self._signs = -1


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


# All processes.

START = 300.0
"""Seconds that a process which replaces another one may take until it can work."""

LEAVE = {"leave": True}
"""The order to take nothing new, to finish what was accepted, and to end."""

PAUSES = (0.0, 0.5, 2.0, 10.0)
"""Seconds before each restart of a process; they begin anew once it has run for `STABLE`. The first
restart follows at once, because clients wait for it."""
STABLE = 60.0

PATIENCE = 90.0
"""Seconds after which a server begins although some processes cannot work. A first start on a GPU,
which compiles all kernels, takes half of that."""

Groups = Sequence[Sequence[ProcessSpec]]


@dataclass(eq=False)
class Supervisor:
    """Supervisor of the processes in `groups`, which end from the last to the first group.

    `on_exit` gets the id of each process that ended, `on_stop` is called when the shutdown begins,
    `on_ready` once, when all members can work for the first time. On SIGUSR2 all members are
    replaced, one after the other; on SIGHUP as well, by those that `reload` returns, unless it
    raises ValueError. The new process can work before the old one leaves. A replacement that fails
    ends the round: the processes that have not been replaced continue.
    """

    groups: Groups
    on_exit: Callable[[int], None] = lambda _pid: None
    on_stop: Callable[[], None] = lambda: None
    reload: Callable[[], Groups] | None = None
    on_ready: Callable[[], None] = lambda: None
    _running: dict[str, Child] = field(default_factory=dict)
    _members: dict[str, ProcessSpec] = field(default_factory=dict)
    _rounds: set[asyncio.Task[None]] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: dict[Child, asyncio.Task[None]] = field(default_factory=dict)
    """The processes that another one has replaced and that have not ended."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _urgency: int = 0
    _code: int = 0

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a process can never run; return the exit code."""
        loop = asyncio.get_running_loop()
        self._members = {member.name: member for group in self.groups for member in group}
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told, number)
        for number in (signal.SIGHUP, signal.SIGUSR2):
            loop.add_signal_handler(number, self._renew, number)
        keepers = {name: asyncio.create_task(self._keep(name)) for name in self._members}
        announcing = asyncio.create_task(self._announce())
        await self._stop.wait()
        announcing.cancel()
        self.on_stop()
        for each in self._rounds:  # each ends the process that it was starting
            each.cancel()
        await asyncio.gather(*self._rounds, return_exceptions=True)
        for group in reversed(self.groups):
            await asyncio.gather(*(self._end(each, keepers[each.name]) for each in group))
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
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

    def _can_begin(self, waited: float) -> bool:
        """Return whether all members can work; after `PATIENCE` one of each group is enough."""
        enough = any if waited > PATIENCE else all
        return all(enough([self._works(each.name) for each in group]) for group in self.groups)

    def _works(self, name: str) -> bool:
        child = self._running.get(name)
        return child is not None and child.ready.is_set() and child.works

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

    # Keeping a member running.

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
        """Run a process and its replacements to the end; return the exit code, or the error.

        The exit code of a killed process that had worked is not waited for, if its successor may
        start beside the release of its memory.
        """
        member = self._members[name]
        try:
            child = self._running[name] = await Child.start(member)
        except OSError as error:  # no memory, no descriptors: it may work later
            return error
        if self._stop.is_set():
            child.urge(self._urgency or 1)
        while True:
            code = await (child.until_ending() if member.replaced_at_once else child.wait())
            if code is None and (not child.ready.is_set() or child.asked):
                code = await child.wait()
            if self._running[name] is child:
                break
            child = self._running[name]  # it was replaced
        del self._running[name]
        if code is None:
            self._watch_end(child)
            return "its exit code comes when its memory is released"
        self._noted(child)
        return code

    def _watch_end(self, child: Child, patience: float | None = None) -> "asyncio.Task[None]":
        """Wait for the end of a process that another one has replaced; kill it after `patience`."""

        async def ended() -> None:
            try:
                async with asyncio.timeout(patience):
                    await child.wait()
            except TimeoutError:
                log.error("%s did not leave within %s s and is killed", child.name, patience)
                child.send(signal.SIGKILL)
                await child.wait()
            self._noted(child)

        task = self._ending[child] = asyncio.create_task(ended())
        task.add_done_callback(lambda _: self._ending.pop(child))
        return task

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
        ending = [child for child in self._ending if child.name == name]
        return ending + ([] if running is None else [running])

    # Rolling replacement.

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
        task = asyncio.create_task(self._round(members))
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    async def _round(self, members: Sequence[ProcessSpec]) -> None:
        async with self._turn:
            log.info("replacing %d processes", len(members))
            for member in members:
                if not await self._replaced(member):
                    log.error("%s could not be replaced; the rest stays as it is", member.name)
                    return
            log.info("all processes have been replaced")

    async def _replaced(self, member: ProcessSpec) -> bool:
        """Replace the process of `member`; return whether the new one works in its place."""
        old = self._running.get(member.name)
        try:
            new = await Child.start(member, replaces=True)
        except OSError as error:  # no memory, no descriptors: a later round may work
            log.error("%s could not be started: %s", member.name, error)
            return False
        works = False
        try:
            works = await new.until_ready(START)
            if works:
                self._members[member.name] = member
        finally:
            # It died meanwhile, or the old one did, whose successor has its place.
            useless = not works or old is None or self._running.get(member.name) is not old
            if useless:
                new.send(signal.SIGKILL)
                await new.wait()
                self._noted(new)
        if useless or old is None:
            return works
        # From here on the supervisor watches the new process under this name. It is registered
        # before the old one is told to leave, so that an end of the old one is not taken for a
        # failure and restarted.
        self._running[member.name] = new
        old.tell(LEAVE)
        new.take(member)
        await asyncio.shield(self._watch_end(old, member.patience))
        return True
