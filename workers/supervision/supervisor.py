"""Supervise processes: start, restart and replace them, and end them in order.

The work of the processes is not known here. Each process has a socket as its standard input: its
orders come on it, and its signs of life go back. When the socket closes, its parent has ended, and
it ends at once.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.exit_codes import ExitCode
from models.heartbeat import BEAT, Heartbeat, hangs

log = logging.getLogger("darkroom.supervisor")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process: `python -m module name`, its orders, and the descriptors that it inherits."""

    name: str
    module: str
    orders: Mapping[str, Any]
    descriptors: Sequence[int] = ()
    environment: Mapping[str, str] | None = None
    patience: float = 10.0
    """Seconds in which it must end after SIGTERM."""


Groups = Sequence[Sequence[ProcessSpec]]

MOST = 4096
"""Bytes of signs of life that are read at a time."""

STOPPED = 10.0
"""Seconds of silence after which a process hangs that a signal has stopped."""

WORKING = 30.0
"""The same of a process that can work. Its event loop is never busy for a second; this has to hold
on a machine that is many times too slow."""

STARTING = 120.0
"""The same of a process that is starting. Imports, and the driver of a GPU, keep Python's lock for
up to ten seconds; the first heartbeat comes after some of that."""

LOOK = 0.1
"""Seconds between two looks at whether processes can work."""

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
but with the packages of its parent, even the packages of a checkout that is not installed."""


def command(module: str, name: str) -> list[str]:
    """Return the command of a child, in which `name` is for lists of processes.

    With `-P` nothing is imported from the current folder, where anybody may have put a file.
    """
    return [sys.executable, "-P", "-c", PROGRAM, module, name]


class Child:
    """A started process at the other end of `channel`, a socket; it is killed if it hangs.

    Orders go to the process as JSON, and later an order to leave. Signs of life come back: `{}`
    once it can work, which sets `ready`, and empty lines as heartbeats, `BEAT` seconds apart. A
    process hangs if its event loop no longer beats: because a signal has stopped the process, a
    lock is never released, or a thread keeps Python's lock.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, channel: socket.socket
    ) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self._process, self._channel = process, channel
        self.urgency = 0
        """How urgently it was asked to end: not, with its grace time, or without."""
        self._patience, self._heart = STARTING, Heartbeat(BEAT)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel, self._receive)
        self._timer = self._loop.call_later(BEAT, self._look)

    @classmethod
    async def start(cls, spec: ProcessSpec, **orders: object) -> "Child":
        """Start a process by its own and by further orders.

        It is in a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *command(spec.module, spec.name),
                    stdin=theirs.fileno(),
                    pass_fds=spec.descriptors,
                    env=spec.environment,
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        child = cls(spec.name, process, ours)
        child.tell({**spec.orders, **orders})
        log.info("%s is process %s", child.name, child.pid)
        return child

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def tell(self, orders: Mapping[str, Any]) -> None:
        """Write its first orders, or any to let it leave, unless the process has ended."""
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(orders).encode() + b"\n")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def urge(self, urgency: int) -> None:
        """Ask it to end: SIGTERM at urgency 1, and a SIGINT more at each higher urgency.

        No signal of an urgency is sent twice, and SIGTERM always comes first: a process takes a
        second signal as the wish to skip its grace time, and a third as the wish to drop work.
        """
        for number in range(self.urgency, urgency):
            self.send(signal.SIGINT if number else signal.SIGTERM)
        self.urgency = max(self.urgency, urgency)

    async def wait(self) -> int:
        """Wait for its end and return its exit code."""
        code = await self._process.wait()
        self._hear_no_more()
        return code

    def _receive(self) -> None:
        """Read signs of life."""
        try:
            found = self._channel.recv(MOST)
        except OSError:  # the process ended before it had read its orders
            found = b""
        if not found:
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
        self._timer.cancel()
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._channel.close()


START = 300.0
"""Seconds that a process which replaces another process may take until it can work."""

LEAVE = {"leave": True}
"""The order to take nothing new, to finish the accepted work, and to end."""

PAUSES = (0.0, 0.5, 2.0, 10.0)
"""Seconds before each restart of a process; they begin anew once it has run for `STABLE`. The first
restart follows at once, because clients wait for it."""
STABLE = 60.0

PATIENCE = 90.0
"""Seconds after which a server begins although some processes cannot work. A first start on a GPU,
which compiles all kernels, takes half of that."""


class Supervisor:
    """Supervisor of the processes in `groups`, which end from the last to the first group.

    `on_exit` gets the id of each process that ended, `on_stop` is called when the shutdown begins,
    `on_ready` once, when all processes can work for the first time. On SIGHUP and SIGUSR2 all
    processes are replaced by the processes that `renewed` returns for the signal, unless it raises
    an error. The new process, which has the order `replaces`, can work before the old one leaves.
    The last group is replaced one process after the other; the old processes of the groups before
    it leave only after that, because the old processes of the last group need them. A replacement
    that fails ends the round: the processes that have not been replaced continue, and if no process
    of the last group was replaced, the old processes of the groups before it continue too.
    """

    def __init__(
        self,
        groups: Groups,
        on_exit: Callable[[int], None] = lambda _pid: None,
        on_stop: Callable[[], None] = lambda: None,
        renewed: Callable[[signal.Signals], Groups] | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._groups = groups
        self._on_exit, self._on_stop, self._on_ready = on_exit, on_stop, on_ready
        self._renewed = renewed or (lambda _number: groups)
        self._specs = {spec.name: spec for group in groups for spec in group}
        self._running: dict[str, Child] = {}
        """The process of each name, without processes that replace it or were replaced."""
        self._children: set[Child] = set()
        """All processes that have not ended."""
        self._keepers: dict[str, list[asyncio.Task[None]]] = {name: [] for name in self._specs}
        self._wanted: asyncio.Queue[Groups] = asyncio.Queue()
        """The processes of each round of replacements to come."""
        self._stop = asyncio.Event()
        self._urgency = 0
        self._code = 0

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a process can never run; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told, number)
        for number in (signal.SIGHUP, signal.SIGUSR2):
            loop.add_signal_handler(number, self._renew, number)
        for name in self._specs:
            self._begin(name)
        tasks = [asyncio.create_task(each) for each in (self._announce(), self._replace())]
        await self._stop.wait()
        self._on_stop()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for group in reversed(self._groups):
            await asyncio.gather(*map(self._end, group))
        return self._code

    async def _announce(self) -> None:
        """Call `on_ready` once all processes can work, or without some of them after `PATIENCE`."""
        since = time.monotonic()
        while not self._can_begin(time.monotonic() - since):  # noqa: ASYNC110 (many events)
            await asyncio.sleep(LOOK)
        try:
            self._on_ready()
        except OSError as error:  # another program listens at the address meanwhile
            log.critical("the server cannot begin: %s", error)
            self._code = ExitCode.FAILED
            self._told(signal.SIGTERM)

    def _can_begin(self, waited: float) -> bool:
        """Return whether all processes can work; after `PATIENCE`, a process of each group."""
        working = {name for name, child in self._running.items() if child.ready.is_set()}
        enough = any if waited > PATIENCE else all
        return all(enough(spec.name in working for spec in group) for group in self._groups)

    def _told(self, number: signal.Signals) -> None:
        """Begin the shutdown at the first signal; a SIGINT or a later signal skips grace times.

        Each SIGINT after that makes the end more urgent. Only processes that were asked to end are
        urged here, so that the groups end in their order; further processes are urged when they are
        asked.
        """
        if number is signal.SIGINT:
            self._code = self._code or ExitCode.INTERRUPTED
            self._urgency = max(2, self._urgency + 1)
        else:
            self._urgency = max(self._urgency, 2 if self._stop.is_set() else 1)
        for child in self._children:
            if child.urgency:
                child.urge(self._urgency)
        self._stop.set()

    # Keeping a process running.

    def _begin(self, name: str, child: Child | None = None) -> "asyncio.Task[None]":
        """Begin to keep a process of this name, which runs already if it is given."""
        task = asyncio.create_task(self._keep(name, child))
        self._keepers[name].append(task)
        return task

    async def _keep(self, name: str, child: Child | None) -> None:
        """Watch a process, and start it again whenever it ends, unless another has its name."""
        deaths, proven = 0, child is not None  # which could work before it replaced another
        while True:
            started = time.monotonic()
            code: object
            try:
                if child is None:
                    child = self._running[name] = await self._start(self._specs[name])
                code = await self._ended(child)
                if self._running.get(name) is not child:
                    return
                del self._running[name]
            except OSError as error:  # no memory, no descriptors: it may work later
                code = error
            if self._stop.is_set():
                return
            child = None
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
                return

    async def _start(self, spec: ProcessSpec, **orders: object) -> Child:
        child = await Child.start(spec, **orders)
        self._children.add(child)
        if self._stop.is_set():
            child.urge(self._urgency or 1)
        return child

    async def _ended(self, child: Child) -> int:
        """Wait for the end of a process, note it, and return the exit code."""
        code = await child.wait()
        self._children.remove(child)
        try:
            self._on_exit(child.pid)
        except Exception:  # the restart is protected
            log.warning("the end of %s could not be noted", child.name, exc_info=True)
        return code

    async def _end(self, spec: ProcessSpec) -> None:
        """Send SIGTERM to all processes of a name, and SIGKILL if they do not end."""
        for child in [each for each in self._children if each.name == spec.name]:
            child.urge(self._urgency or 1)
        _, late = await asyncio.wait(self._keepers[spec.name], timeout=spec.patience)
        if late:
            log.error("%s did not end within %s s and is killed", spec.name, spec.patience)
            for child in [each for each in self._children if each.name == spec.name]:
                child.send(signal.SIGKILL)
            self._code = 1
            await asyncio.wait(late)

    # Rolling replacement.

    def _renew(self, number: signal.Signals) -> None:
        """Plan a round of replacements by the processes that `renewed` returns."""
        try:
            groups = self._renewed(number)
        except Exception as error:  # the server is protected: nothing changes
            log.error("nothing was reloaded: %s", error)
        else:
            self._wanted.put_nowait(groups)

    async def _replace(self) -> None:
        """Replace processes in rounds, which follow each other."""
        while True:
            *first, last = await self._wanted.get()
            log.info("replacing %d processes", sum(map(len, (*first, last))))
            known, before = dict(self._specs), dict[str, Child]()
            for specs in (*first, *([spec] for spec in last)):
                old = await self._succeeded(specs)
                if old is None:
                    text = "%s could not be replaced; the rest stays as it is"
                    log.error(text, ", ".join(spec.name for spec in specs))
                    if specs == [*last[:1]]:
                        for name, child in before.items():
                            self._take_back(known[name], child)
                    break
                if specs in first:
                    before |= old
                else:
                    await self._left(*specs)
            else:
                for group in reversed(first):
                    await asyncio.gather(*map(self._left, group))
                log.info("all processes have been replaced")

    def _take_back(self, spec: ProcessSpec, old: Child) -> None:
        """Kill the process that has the name of an old process, which continues or starts again."""
        new, self._specs[spec.name] = self._running.pop(spec.name, None), spec
        if old in self._children:
            self._running[spec.name] = old
        else:
            self._begin(spec.name)
        if new is not None:
            new.send(signal.SIGKILL)

    async def _succeeded(self, specs: Sequence[ProcessSpec]) -> dict[str, Child] | None:
        """Start processes, which all take the names of running processes once all can work.

        Return the processes that had the names, or None: then the new processes are ended, and the
        running processes keep the names.
        """
        new: dict[str, Child] = {}
        keepers, end = [], time.monotonic() + START
        for spec in specs:
            try:
                new[spec.name] = await self._start(spec, replaces=True)
            except OSError as error:  # no memory, no descriptors: a later round may work
                log.error("%s could not be started: %s", spec.name, error)
                break
            keepers.append(self._begin(spec.name, new[spec.name]))
        alive, able = len(new) == len(specs), False
        while alive and not able and time.monotonic() < end:
            await asyncio.sleep(LOOK)
            alive = self._children.issuperset(new.values())
            # A process that died meanwhile is first started again: its keeper would do that later.
            able = all(name in self._running and new[name].ready.is_set() for name in new)
        if alive and able:
            # From here on the keepers of the new processes restart them. An end of the old ones,
            # which are told to leave later, is not taken for a failure.
            old = {name: self._running[name] for name in new}
            self._running.update(new)
            self._specs.update((spec.name, spec) for spec in specs)
            return old
        for child in new.values():
            child.send(signal.SIGKILL)
        if keepers:
            await asyncio.wait(keepers)
        return None

    async def _left(self, spec: ProcessSpec) -> None:
        """Let the processes leave whose name another process has taken."""
        name, (*leaving, keeper) = spec.name, self._keepers[spec.name]
        old = [c for c in self._children if c.name == name and c is not self._running.get(name)]
        for child in old:
            child.tell(LEAVE)
        if leaving:
            _, late = await asyncio.wait(leaving, timeout=spec.patience)
            if late:
                log.error("%s did not leave within %s s and is killed", name, spec.patience)
                for child in old:
                    child.send(signal.SIGKILL)
                await asyncio.wait(late)
        self._keepers[name] = [keeper]
