"""A front end's line to one worker: survives the worker, finds the next one at the same address."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from models.job import Job, Outcome
from workers import wire
from workers.arena import Arena, Slot
from workers.wire import Batched, Cancel, Done, FromWorker, LoadReport, Submit, Welcome

RETRY = 0.05
"""Seconds between two tries to reach a worker that is starting."""


@dataclass(eq=False, slots=True)
class Pending:
    """A job on its way: its slot, its waiter, and how many workers were lost with it so far."""

    number: int
    job: Job
    slot: Slot
    waiter: "asyncio.Future[Outcome]"
    link: "Link | None" = None
    losses: int = 0


class Link:
    """One worker's address; `pending` are the jobs that the worker there has not answered.

    `on_done` gets every answer, `on_up` is called when a worker welcomes us, `on_lost` with the
    jobs it takes along.
    """

    def __init__(
        self,
        address: str,
        arena: Arena,
        on_done: Callable[[Pending, Done], None],
        on_up: Callable[[], None],
        on_lost: Callable[[list[Pending]], None],
        on_batch: Callable[[Batched], None],
    ) -> None:
        self._address = address
        self._arena = arena
        self._on_done, self._on_up = on_done, on_up
        self._on_lost, self._on_batch = on_lost, on_batch
        self._protocol: wire.FrameProtocol[FromWorker] | None = None
        self._gone = asyncio.Event()
        self.pending: dict[int, Pending] = {}
        self.welcome: Welcome | None = None
        self.load = LoadReport(0, 0, 0, 0.0)
        self.up = False
        self._task = asyncio.create_task(self._keep())

    def submit(self, pending: Pending, frame: Submit) -> None:
        """Hand a job and its slot over. Only while the link is up."""
        assert self._protocol is not None
        pending.link = self
        self.pending[pending.number] = pending
        self._protocol.send([frame])

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
            except OSError:
                await asyncio.sleep(RETRY)
                continue
            self._gone.clear()
            _, self._protocol = await loop.create_unix_connection(
                lambda: wire.FrameProtocol(wire.FROM_WORKER, self._on_frames, self._lost),
                sock=connection,
            )
            await self._gone.wait()

    async def _call(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, self._address)
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
                    self._on_batch(frame)
                case Welcome():
                    self.welcome, self.up = frame, True
                    self._on_up()

    def _lost(self) -> None:
        self._protocol, self.up = None, False
        self.load = LoadReport(0, 0, 0, 0.0)
        taken, self.pending = list(self.pending.values()), {}
        self._gone.set()
        self._on_lost(taken)
