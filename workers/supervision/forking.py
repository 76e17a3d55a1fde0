"""Start processes as forks of one that has imported what they need: that takes seconds otherwise.

What is forked becomes a child of this process, which therefore learns its exit code.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from workers.heartbeat import Heartbeat, hangs
from workers.supervision.life_signs import BEAT, STOPPED

log = logging.getLogger("darkroom.supervisor")

WITHIN = 10.0
"""Seconds that a fork server may take to fork."""

IMPORTS = 120.0
"""Seconds that a fork server may take to import. Without one, each process imports by itself."""

MOST = 1 << 16
"""Bytes of a message."""

UNKNOWN = 255
"""The exit code of a process whose own one cannot be known, as in `asyncio`."""

_SET_CHILD_SUBREAPER = 36
"""A number of prctl(2): orphans below this process become its children."""


@dataclass(frozen=True, slots=True)
class ForkSpec:
    """A fork server: `python -m module name`, the modules that it imports, and a safeguard.

    `unless` is the dotted name of a function without arguments; nothing is forked if it returns
    True when all is imported.
    """

    module: str
    name: str
    imports: Sequence[str] = ()
    unless: str = ""


class Orders:
    """The writing end of a process's standard input."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        """Write orders, which fit into the pipe; nothing is done if the process has ended."""
        if self._descriptor >= 0:  # else its number may be that of another file by now
            with contextlib.suppress(OSError):
                os.write(self._descriptor, data)

    def close(self) -> None:
        """Close it, at which the process ends."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


class ForkedProcess:
    """A process that a fork server made, with what `Child` uses of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, orders: Orders, ready: int) -> None:
        self.pid = pid
        self.stdin = orders
        self.ready = ready
        """The number that its writing end of the pipe for readiness has there."""
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._watch = os.pidfd_open(pid)
        self._loop.add_reader(self._watch, self._on_end)

    def send_signal(self, number: int) -> None:
        """Send a signal; its id is not given to another process before its end was noticed."""
        if self.returncode is None:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait for its end and return its exit code, which is negative for a signal."""
        return await asyncio.shield(self._ended)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._watch)
        os.close(self._watch)
        self.stdin.close()
        try:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # another process has adopted it, and knows its exit code
            self.returncode = UNKNOWN
        self._ended.set_result(self.returncode)


class ForkServer:
    """A started fork server; it imports first, and forks when it is `ready`."""

    def __init__(
        self, module: str, process: asyncio.subprocess.Process, control: socket.socket
    ) -> None:
        self._module = module
        self._process = process
        self._control = control
        self._turn = asyncio.Lock()
        self._failed = False
        self._imported = asyncio.create_task(self._reply())

    @classmethod
    async def start(cls, spec: ForkSpec, program: str) -> "ForkServer":
        """Start one by `program`, whose first argument is the name of its module."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                words = (sys.executable, "-P", "-c", program, spec.module, spec.name)
                process = await asyncio.create_subprocess_exec(
                    *words, stdin=theirs.fileno(), start_new_session=True
                )
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        ours.send(json.dumps({"imports": [*spec.imports], "unless": spec.unless}).encode())
        return cls(spec.module, process, ours)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether its end has not been noticed."""
        return self._process.returncode is None

    @property
    def was_ready(self) -> bool:
        """Return whether it has imported everything and may fork."""
        done = self._imported.done() and not self._imported.cancelled()
        return done and self._imported.result() is not None

    @property
    def trusted(self) -> bool:
        """Return whether it could fork and what it forked could work: another one can then too."""
        return self.was_ready and not self._failed

    @property
    def ready(self) -> bool:
        """Return whether it can fork."""
        return self.alive and self.trusted

    def distrust(self) -> None:
        """End it for good, because a process that it forked ended before it could work."""
        self._failed = True
        self._kill()

    async def settled(self) -> None:
        """Wait until it is ready or has ended; end it if it hangs in its imports."""
        heart = Heartbeat(BEAT)
        while not self._imported.done():
            await asyncio.wait([self._imported], timeout=BEAT)
            if hangs(self.pid, heart.silence(), STOPPED, IMPORTS):
                log.error("the fork server of %s hangs in its imports; it is ended", self._module)
                self.distrust()
                return

    async def fork(self, module: str, name: str, ready: int) -> ForkedProcess:
        """Return a new process that runs `module` under `name`; raises OSError.

        It has `ready`, the writing end of a pipe, under the number that is its own `ready`.
        """
        async with self._turn:
            reading, writing = os.pipe()
            os.set_inheritable(writing, False)
            data = json.dumps({"server": self._module, "module": module, "name": name}).encode()
            try:
                with _adopting:
                    with contextlib.suppress(BrokenPipeError):  # it has ended, as the reply tells
                        socket.send_fds(self._control, [data], [reading, ready])
                    async with asyncio.timeout(WITHIN):
                        reply = await self._reply()
                if not isinstance(reply, list) or not isinstance(reply[0], int):
                    raise OSError(f"nothing was forked: {reply}")
                return ForkedProcess(reply[0], Orders(writing), reply[1])
            except BaseException as error:
                os.close(writing)
                if not isinstance(error, OSError):  # a late reply would be taken for another's
                    self._kill()
                if isinstance(error, TimeoutError):
                    raise OSError("the fork server does not answer") from None
                raise
            finally:
                os.close(reading)

    async def close(self) -> None:
        """End it; what it has forked continues."""
        self._imported.cancel()
        self._kill()
        await self._process.wait()
        self._control.close()

    async def _reply(self) -> object:
        """Return the next message, None at the end of the connection."""
        loop = asyncio.get_running_loop()
        try:
            return json.loads(await loop.sock_recv(self._control, MOST) or b"null")
        except OSError:
            return None

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)


class _Adopting:
    """Let orphans become children of this process while any `with` block is open. Linux only.

    Several fork servers may fork at a time; the block that ends last turns the one switch off.
    """

    def __init__(self) -> None:
        self._open = 0

    def __enter__(self) -> None:
        if _prctl(_SET_CHILD_SUBREAPER, 1):
            raise OSError(ctypes.get_errno(), "orphans cannot be adopted")
        self._open += 1

    def __exit__(self, *_error: object) -> None:
        self._open -= 1
        if not self._open:
            _prctl(_SET_CHILD_SUBREAPER, 0)


def _prctl(option: int, value: int) -> int:
    """Call prctl(2), which macOS lacks."""
    return int(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0))


_adopting = _Adopting()
