"""A front end's line to one worker: survives the worker, finds the next one at the same address."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from models.exit_codes import ExitCode
from models.job import Failed, Job
from workers import wire
from workers.arena import Arena, Slot
from workers.wire import Batched, Cancel, Done, FromWorker, LoadReport, Submit, Welcome

RETRY = 0.05
"""Seconds between two tries to reach a worker that is starting."""

log = logging.getLogger("darkroom.link")


@dataclass(eq=False, slots=True)
class Pending:
    """A job on its way; `slot` until it is free again, `losses` the workers that died with it."""

    number: int
    job: Job
    slot: Slot | None
    waiter: "asyncio.Future[Done | Failed]"
    link: "Link | None" = None
    losses: int = 0


class Link:
    """One worker's address; `pending` are the jobs that the worker there has not answered.

    `on_done` gets every answer; `on_welcome` says whether the worker that is there now will do;
    `on_lost` gets the jobs a worker takes along.
    """

    def __init__(
        self,
        address: str,
        arena: Arena,
        on_done: Callable[[Pending, Done], None],
        on_welcome: Callable[[Welcome], bool],
        on_lost: Callable[[list[Pending]], None],
        on_batch: Callable[[Batched], None],
        end_process: Callable[[], object] = lambda: os._exit(ExitCode.BROKEN),
    ) -> None:
        self._address = address
        self._arena = arena
        self._on_done, self._on_welcome = on_done, on_welcome
        self._on_lost, self._on_batch = on_lost, on_batch
        self._end_process = end_process
        self._protocol: wire.FrameProtocol[FromWorker] | None = None
        self._gone = asyncio.Event()
        self.pending: dict[int, Pending] = {}
        self.welcome: Welcome | None = None
        self.load = LoadReport(0, 0, 0, 0.0)
        self.up = False
        self._task = asyncio.create_task(self._keep())

    @property
    def takes_jpegs(self) -> bool:
        """Whether the worker there had better get JPEGs encoded."""
        return self.welcome is not None and self.welcome.takes_jpegs

    def submit(self, pending: Pending, frame: Submit) -> None:
        """Hand a job and its slot over. Only while the link is up."""
        assert self._protocol is not None
        self._protocol.send([frame])
        pending.link = self
        self.pending[pending.number] = pending

    def cancel(self, pending: Pending) -> None:
        """Nobody waits for it any more; its slot comes back with its `Done`."""
        if self._protocol is not None and pending.number in self.pending:
            self._protocol.send([Cancel(pending.number)])

    async def close(self) -> None:
        """Hang up for good."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._protocol is not None:
            self._protocol.close()
            await self._gone.wait()

    async def _keep(self) -> None:
        """Connect, and again whenever the worker is lost."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection = await self._call()
            except PermissionError as error:
                log.critical("%s", error)
                await asyncio.sleep(100 * RETRY)
                continue
            except OSError:
                await asyncio.sleep(RETRY)
                continue
            self._gone.clear()
            _, self._protocol = await loop.create_unix_connection(
                lambda: wire.FrameProtocol(
                    wire.FROM_WORKER, self._on_frames, self._lost, self._broken
                ),
                sock=connection,
            )
            await self._gone.wait()
            await asyncio.sleep(RETRY)

    async def _call(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, self._address)
            if not wire.same_user(connection):
                raise PermissionError("another user's process is at the worker's address")
            socket.send_fds(connection, [b"a"], [self._arena.fd])
        except OSError:
            connection.close()
            raise
        return connection

    def _on_frames(self, frames: list[FromWorker]) -> None:
        for frame in frames:
            match frame:
                case Done():
                    self._on_done(self.pending.pop(frame.number), frame)
                case LoadReport():
                    self.load = frame
                case Batched():
                    self._observe(frame)
                case Welcome():
                    self.welcome = frame
                    self.up = True
                    self.up = self._on_welcome(frame)

    def _observe(self, frame: Batched) -> None:
        try:
            self._on_batch(frame)
        except Exception:  # the answers of the same read are protected
            log.warning("a batch could not be observed", exc_info=True)

    def _broken(self, error: Exception) -> None:
        """We cannot tell any more which slots the worker still uses: this process must end."""
        log.critical("a worker said what cannot be read", exc_info=error)
        self._end_process()

    def _lost(self) -> None:
        self._protocol, self.up = None, False
        self.load = LoadReport(0, 0, 0, 0.0)
        taken, self.pending = list(self.pending.values()), {}
        self._gone.set()
        self._on_lost(taken)
