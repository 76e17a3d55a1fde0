"""A front end's jobs that workers have, their slots, and its connections to the workers."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded, ServiceError, TooManyPixels
from models.domain.fair_queue import FairQueue, Lack
from models.domain.image import Pixels
from models.domain.job import Failed, Job
from models.exit_codes import ExitCode
from workers.ipc import frames
from workers.ipc.arena import LARGE, Arena, ArenaAllocator, ArenaSlot
from workers.ipc.conversion import content_of, encode_source
from workers.ipc.frames import (
    FROM_WORKER,
    Batched,
    Cancel,
    Done,
    FrameProtocol,
    FromWorker,
    Leaving,
    LoadReport,
    Shape,
    Submit,
    Welcome,
)

RETRY = 0.02
"""Seconds between two tries to reach a worker that is starting."""

FAREWELL = 1.0
"""Seconds in which a worker must read pending bytes when the front end closes."""

log = logging.getLogger("darkroom.link")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker ended before it answered; `launched`: its device had been given the job."""

    launched: bool


@dataclass(eq=False, slots=True)
class Pending:
    """A submitted job, with its `slot` until that is free again.

    `losses` counts the workers that died with it on their device; after the first it is computed
    `alone`. `worker` is the number of the worker that has it.
    """

    number: int
    job: Job
    slot: ArenaSlot | None
    waiter: "asyncio.Future[Done | Failed | Lost]"
    line: "WorkerLine | None" = None
    losses: int = 0
    alone: bool = False
    worker: int = 0

    def fail(self, error: ServiceError) -> None:
        """Answer with an error, unless there is an answer, or it has to be sent again."""
        if not self.waiter.done():
            self.waiter.set_result(Failed(error))

    def expire(self) -> None:
        """Answer that the deadline has passed."""
        self.fail(DeadlineExceeded("the request's deadline passed"))


class ArenaSlots:
    """Queue for the slots of an arena, first come, first served; belongs to one event loop."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._room = ArenaAllocator(arena.size)
        self._queue = FairQueue[int, ArenaSlot](
            lambda n_bytes, _: self._room.take(n_bytes) or Lack.ALL, self._returned
        )

    @property
    def waiting(self) -> int:
        """Return how many jobs wait for a slot."""
        return len(self._queue)

    async def take(self, n_bytes: int, deadline: Deadline) -> ArenaSlot:
        """Return a slot of at least `n_bytes` bytes; wait for it, at most until the deadline."""
        if n_bytes > self._room.size:
            raise TooManyPixels(f"an image of {n_bytes:,} bytes has no room on this server")
        if (slot := self._queue.take_now(None, n_bytes)) is not None:
            return slot  # without the 5 µs of a timeout
        try:
            async with asyncio.timeout_at(deadline.alarm):
                return await self._queue.take(None, n_bytes)
        except TimeoutError:
            raise DeadlineExceeded("the request's deadline passed") from None

    def free(self, slot: ArenaSlot) -> None:
        """Take a slot back; large ones give their memory back to the kernel."""
        self._returned(slot)
        self._queue.wake()

    def release(self, pending: Pending) -> None:
        """Take a job's slot back if it still has one."""
        slot, pending.slot = pending.slot, None
        if slot is not None:
            self.free(slot)

    async def copied(self, pending: Pending, copy: Callable[..., T], *arguments: object) -> T:
        """Run a function that copies to or from a job's slot, on a thread if that takes
        milliseconds.

        If it is cancelled meanwhile, the slot is taken back as soon as the copy has ended.
        """
        slot = pending.slot
        assert slot is not None
        if slot.size < LARGE:
            return copy(*arguments)
        copying = asyncio.ensure_future(asyncio.to_thread(copy, *arguments))
        try:
            # Cancelling cannot stop the thread, which still writes into the slot. The shield keeps
            # the future of the copy, by which the slot is freed when the thread has ended.
            return await asyncio.shield(copying)
        except asyncio.CancelledError:
            pending.slot = None
            copying.add_done_callback(lambda _: self.free(slot))
            raise

    def write(self, pending: Pending) -> None:
        """Copy the job's pixels, or its file, into its slot."""
        assert pending.slot is not None
        shape, _ = encode_source(pending.job.image)
        content = content_of(pending.job.image).reshape(shape)
        self._arena.pixels(pending.slot, shape)[...] = content

    def read(self, pending: Pending, shape: Shape) -> Pixels:
        """Return a copy of the pixels, or of the file, in the job's slot."""
        assert pending.slot is not None
        return self._arena.pixels(pending.slot, shape).copy()

    def refuse(self, error: ServiceError) -> None:
        """Raise an error in every job that still waits."""
        self._queue.refuse(error)

    def _returned(self, slot: ArenaSlot) -> None:
        self._arena.forget(slot)
        self._room.give_back(slot)


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


class WorkerLine:
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
        self._lines: list[WorkerLine] = []
        self._task = asyncio.create_task(self._keep())

    @property
    def lines(self) -> list[WorkerLine]:
        """Return the lines that have not ended, oldest first, and the last ones."""
        return self._lines

    @property
    def line(self) -> WorkerLine | None:
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

    async def _connected(self) -> WorkerLine:
        line, connection = (
            WorkerLine(self._hooks),
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        )
        loop = asyncio.get_running_loop()
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, self._address)
            if not frames.same_user(connection):
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
