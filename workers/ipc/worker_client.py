"""A front end's connections to the worker at one address, renewed when the worker changes."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from models.exit_codes import ExitCode
from workers.ipc import frame_protocol
from workers.ipc.arena import Arena
from workers.ipc.frame_protocol import FrameProtocol
from workers.ipc.frames import (
    FROM_WORKER,
    Batched,
    Cancel,
    Done,
    FromWorker,
    Leaving,
    LoadReport,
    Submit,
    Welcome,
)
from workers.ipc.pending import Pending

RETRY = 0.02
"""Seconds between two tries to reach a worker that is starting."""

FAREWELL = 1.0
"""Seconds in which a worker must read pending bytes when the front end closes."""

log = logging.getLogger("darkroom.link")


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks for the events of a worker.

    `on_done` gets every answer. `on_welcome` returns whether the new worker is acceptable.
    `on_lost` gets the jobs that a worker had not answered when its connection ended. `on_load` is
    called whenever a worker reports another load, comes, leaves or is lost.
    """

    on_done: Callable[[Pending, Done], None]
    on_welcome: Callable[[Welcome], bool]
    on_lost: Callable[[list[Pending]], None]
    on_batch: Callable[[Batched], None]
    end_process: Callable[[], object] = lambda: os._exit(ExitCode.BROKEN)
    on_load: Callable[[], None] = lambda: None


class Line:
    """Connection to one worker process; `pending` are the jobs that it has not answered.

    `over` is set when it accepts no more jobs, `gone` when the connection has ended. `left` says
    that the worker told that it leaves.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.pending: dict[int, Pending] = {}
        self.welcome: Welcome | None = None
        self.load = LoadReport(0, 0, 0, 0.0)
        self.up = self.left = False
        self.over, self.gone = asyncio.Event(), asyncio.Event()
        self.protocol: FrameProtocol[FromWorker] = FrameProtocol(
            FROM_WORKER, self._on_frames, self._on_lost, self._on_broken
        )

    @property
    def device(self) -> str:
        """Return the device of the worker; empty before its welcome."""
        return "" if self.welcome is None else self.welcome.device

    def submit(self, pending: Pending, frame: Submit) -> None:
        """Hand over a job and its slot; call it only while the connection is up."""
        self.protocol.send_soon(frame)
        pending.line = self
        self.pending[pending.number] = pending

    def cancel(self, pending: Pending) -> None:
        """Cancel a job; its slot comes back with its `Done`."""
        if pending.number in self.pending:
            self.protocol.send_soon(Cancel(pending.number))

    async def close(self) -> None:
        """Close the connection; do not wait for a worker that does not read its pending bytes."""
        self.protocol.close()
        try:
            async with asyncio.timeout(FAREWELL):
                await self.gone.wait()
        except TimeoutError:
            self.protocol.abort()
            await self.gone.wait()

    def _on_frames(self, frames: list[FromWorker]) -> None:
        for frame in frames:
            try:
                self._on_frame(frame)
            except Exception:  # the answers of the same read are protected
                log.exception("a worker's %s could not be handled", type(frame).__name__)

    def _on_frame(self, frame: FromWorker) -> None:
        match frame:
            case Done():
                pending = self.pending.pop(frame.number, None)
                if pending is None:
                    log.error("a worker answered job %d, which it does not have", frame.number)
                else:
                    self._hooks.on_done(pending, frame)
            case LoadReport():
                self.load = frame
                self._hooks.on_load()
            case Batched():
                self._hooks.on_batch(frame)
            case Leaving():
                self.up, self.left = False, True
                self._hooks.on_load()
                self.over.set()
            case Welcome():
                self.welcome = frame
                self.up = True
                self.up = self._hooks.on_welcome(frame)
                self._hooks.on_load()

    def _on_broken(self, error: Exception) -> None:
        """End this process: it cannot know any more which slots the worker still uses."""
        log.critical("a worker sent what cannot be read", exc_info=error)
        self._hooks.end_process()

    def _on_lost(self) -> None:
        self.up = False
        self.over.set()
        self.gone.set()
        self._hooks.on_load()
        taken, self.pending = list(self.pending.values()), {}
        self._hooks.on_lost(taken)


class WorkerConnection:
    """Connection to the worker at one address, renewed whenever that worker leaves or is lost.

    A worker that leaves keeps its line until it has answered everything.
    """

    def __init__(self, address: str, arena: Arena, hooks: Hooks) -> None:
        self._address = address
        self._arena = arena
        self._hooks = hooks
        self._lines: list[Line] = []
        self._task = asyncio.create_task(self._keep())

    @property
    def lines(self) -> list[Line]:
        """Return the lines that have not ended, oldest first, and the last ones."""
        return self._lines

    @property
    def line(self) -> Line | None:
        """Return the line to the worker that accepts jobs, or None while there is none."""
        return self._lines[-1] if self._lines and self._lines[-1].up else None

    @property
    def welcome(self) -> Welcome | None:
        """Return the welcome of the present worker, else of the last one."""
        return next((each.welcome for each in reversed(self._lines) if each.welcome), None)

    async def close(self) -> None:
        """Close all connections permanently."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._lines if not each.gone.is_set()))

    async def _keep(self) -> None:
        """Connect, and again whenever the worker has gone; no error ends this loop."""
        while True:
            try:
                line = await self._connected()
            except PermissionError as error:
                log.critical("%s", error)
                await asyncio.sleep(100 * RETRY)
            except OSError:  # no worker is there, or not yet
                await asyncio.sleep(RETRY)
            except Exception:  # the next try is protected
                log.exception("a worker could not be connected to")
                await asyncio.sleep(RETRY)
            else:
                await line.over.wait()
                await asyncio.sleep(RETRY)

    async def _connected(self) -> Line:
        line, connection = Line(self._hooks), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        loop = asyncio.get_running_loop()
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, self._address)
            if not frame_protocol.same_user(connection):
                raise PermissionError("another user's process is at the worker's address")
            # A descriptor must accompany at least one byte of data on a stream socket (unix(7)).
            socket.send_fds(connection, [b"a"], [self._arena.fd])
            # The line is listed before its transport exists: the first read may bring `Welcome`,
            # and its hook looks at all lines. The last line stays for its `welcome`.
            left = [each for each in self._lines[:-1] if not each.gone.is_set()]
            self._lines = [*left, *self._lines[-1:], line]
            await loop.create_unix_connection(lambda: line.protocol, sock=connection)
        except BaseException:  # the socket must be closed in every case
            connection.close()
            self._lines = [each for each in self._lines if each is not line]
            raise
        return line
