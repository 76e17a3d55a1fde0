"""The backend whose workers are further processes of this host.

A job goes to the worker with the least unanswered work. Jobs that a lost worker
had not answered go to another worker or to its successor, while their deadline allows: the work is
pure, so a second run is safe. A job that the device had been given when its worker died is computed
alone the next time, and fails if that worker dies too: only this job can be the cause.
"""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, cast

import msgspec
import numpy as np

from models.domain.alarms import alarms
from models.domain.backend import Load, combined
from models.domain.errors import (
    DeadlineExceeded,
    Draining,
    InternalError,
    Quarantined,
    ServiceError,
    WorkerLost,
)
from models.domain.image import Pixels
from models.domain.job import Completed, Failed, Job, Outcome, Result, Vector
from workers.ipc import frames
from workers.ipc.arena import LARGE, Arena, ArenaSlot, ArenaSlots
from workers.ipc.frames import (
    FROM_WORKER,
    Batched,
    Cancel,
    Done,
    FrameProtocol,
    FromWorker,
    JpegHeader,
    Leaving,
    LoadReport,
    Shape,
    Submit,
    Welcome,
    bytes_for,
    encode_operation,
    encode_source,
)

log = logging.getLogger("darkroom.processes")

MAX_LOSSES = 2
RETRY = 0.02
"""Seconds between two tries to reach a worker that is starting."""

FORBIDDEN = 2.0
"""Seconds until the next try to reach a worker that this process may not reach."""

STOPPED = "the server stopped before the image was done; try again"

T = TypeVar("T")


class UnansweredWork(Protocol):
    """The pixels that each worker has been given and has not answered, by all front ends."""

    def add_work(self, worker: int, pixels: int) -> None:
        """Add to a worker's work; the sum of what this process adds is 0 once all is answered."""

    def work_of(self, worker: int) -> int:
        """Return the work of a worker, over all processes that give it some."""


@dataclass(eq=False, slots=True)
class Pending:
    """A submitted job, with its `slot` until that is free again, and the `line` to its worker.

    `waiter` gets the worker's answer, an error, or None when the job has to be sent again. `losses`
    counts the workers that died with the job on their device; after the first it is computed alone.
    """

    number: int
    job: Job
    content: Pixels
    jpeg: JpegHeader | None
    slot: ArenaSlot | None
    waiter: "asyncio.Future[Done | Failed | None]"
    line: "WorkerLine | None" = None
    losses: int = 0

    def fail(self, error: ServiceError) -> None:
        """Answer with an error, unless there is an answer, or it has to be sent again."""
        if not self.waiter.done():
            self.waiter.set_result(Failed(error))

    def expire(self) -> None:
        """Answer that the deadline has passed."""
        self.fail(DeadlineExceeded("the request's deadline passed"))


class WorkerLine(FrameProtocol[FromWorker]):
    """Connection to a process of worker number `worker`; `pending` are the jobs that it has.

    `up` says that it accepts jobs. `over` is set when it accepts no more jobs, `gone` when the
    connection has ended: a worker that leaves answers the jobs that it has in between.
    """

    def __init__(self, backend: "ProcessBackend", worker: int) -> None:
        super().__init__(FROM_WORKER)
        self._backend = backend
        self.worker = worker
        self.pending: dict[int, Pending] = {}
        self.load = Load("none", 0, 0, 0.0, alive=False)
        self.up = False
        self.over, self.gone = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add this connection to the lines of the backend."""
        super().connection_made(transport)
        self._backend.lines.append(self)

    def on_frame(self, frame: FromWorker) -> None:
        """Pass a frame on to the backend."""
        self._backend.on_frame(self, frame)

    def on_lost(self) -> None:
        """Hand back the jobs that the worker had not answered; it no longer touches their slots."""
        self.up = False
        self.over.set()
        self.gone.set()
        self._backend.on_lost(self)


class ProcessBackend:
    """Backend on worker processes at Unix socket `addresses`; belongs to a single event loop.

    `work` is the unanswered work of all front ends. `on_batch` is called for each finished batch
    that a worker reports to this front end. `lines` are the open connections; a worker that leaves
    and its successor have a connection each.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        arena_bytes: int,
        work: UnansweredWork,
        drain_timeout: float | None = None,
        on_batch: Callable[[Batched], None] = lambda _batched: None,
    ) -> None:
        self._arena = Arena.create(arena_bytes)
        self._slots = ArenaSlots(self._arena)
        self._parked: list[Pending] = []
        self._drain_timeout = drain_timeout
        self._closing, self._held = False, 0
        self._idle = asyncio.Event()
        self._work = work
        self._welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._welcomes: dict[int, Welcome] = {}
        """The last welcome of each worker."""
        self._current: Welcome | None = None
        self._load: Load | None = None
        self.submitted = 0
        self.on_batch = on_batch
        self.lines: list[WorkerLine] = []
        self._keeping = [asyncio.create_task(self._keep(*each)) for each in enumerate(addresses)]

    async def welcome(self, patience: float = 0.0) -> Welcome:
        """Return the first welcome of a worker, waiting for it.

        Then wait for the welcomes of all other workers, at most `patience` seconds.
        """
        first = await asyncio.shield(self._welcomed)
        end = time.monotonic() + patience
        while time.monotonic() < end and len(self._welcomes) < len(self._keeping):  # noqa: ASYNC110
            await asyncio.sleep(RETRY)
        return first

    @property
    def current(self) -> Welcome:
        """Return the last welcome of a worker; call this after `welcome`."""
        return self._current or self._welcomed.result()

    async def run(self, job: Job) -> Completed:
        """Return the answer of a job; a hung worker is answered with 504 at the deadline."""
        if self._closing:
            raise Draining("this server is stopping; ask another one")
        self._held += 1
        try:
            outcome = await self._answer(job)
        finally:
            self._held -= 1
            if not self._held:
                self._idle.set()
        if isinstance(outcome, Failed):
            try:
                raise outcome.error
            finally:  # the error's traceback holds this frame, which must not hold the image
                del outcome, job
        return outcome

    def load(self) -> Load:
        """Return the load of the workers by their last reports, added up once for each report.

        Jobs that have not been sent to a worker yet are queued jobs too.
        """
        waiting, load = len(self._parked) + self._slots.waiting, self._load
        if load is None or waiting or not load.alive or self._closing:
            load = self._combined(range(len(self._keeping)))
            load = replace(load, queued_jobs=load.queued_jobs + waiting)
            self._load = None if waiting else load
        return load

    def loads(self) -> list[Load]:
        """Return the load of each device, of all workers on it that have been welcomed."""
        found: dict[str, list[int]] = {}
        for worker, welcome in sorted(self._welcomes.items()):
            found.setdefault(welcome.device, []).append(worker)
        return [replace(self._combined(each), device=device) for device, each in found.items()]

    def _combined(self, workers: Collection[int]) -> Load:
        """Return the load of some workers together."""
        lines = [each for each in self.lines if each.worker in workers]
        up = [] if self._closing else [each.load for each in lines if each.up]
        devices = [self._welcomes[each].device for each in workers if each in self._welcomes]
        return combined([each.load for each in lines], up, ", ".join(devices) or "none")

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, then close the connections."""
        if self._closing:
            return
        self._closing = True
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout if self._held else 0):
                await self._idle.wait()
        for pending in [*self._parked, *(p for line in self.lines for p in line.pending.values())]:
            pending.fail(WorkerLost(STOPPED))
        self._slots.refuse(WorkerLost(STOPPED))
        for each in self._keeping:
            each.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        lines = [*self.lines]
        for line in lines:
            line.abort()
        await asyncio.gather(*(line.gone.wait() for line in lines))
        self._arena.close()

    # Connections.

    async def _keep(self, worker: int, address: str) -> None:
        """Connect to a worker, and again whenever it leaves or is lost; no error ends this loop."""
        while True:
            line = WorkerLine(self, worker)
            try:
                await self._connect(line, address)
                await line.over.wait()
            except PermissionError as error:
                log.critical("a worker could not be connected to: %s", error)
                await asyncio.sleep(FORBIDDEN)
            except OSError:  # no worker is there, or not yet
                pass
            except Exception:  # the next try is protected
                log.exception("a worker could not be connected to")
            await asyncio.sleep(RETRY)

    async def _connect(self, line: WorkerLine, address: str) -> None:
        loop, connection = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, address)
            if not frames.same_user(connection):
                raise PermissionError("another user's process is at the worker's address")
            # A descriptor must accompany at least one byte of data on a stream socket (unix(7)).
            socket.send_fds(connection, [b"a"], [self._arena.fd])
            await loop.create_unix_connection(lambda: line, sock=connection)
        except BaseException:  # the socket must be closed in every case
            connection.close()
            raise

    # The way of a job.

    async def _answer(self, job: Job) -> Outcome:
        """Send a job, again whenever its worker is lost; return the answer.

        It is sent again from its image: a filter may have been writing over the slot.
        """
        content, jpeg = encode_source(job.image)
        slot = await self._slots.take(bytes_for(job, content), job.deadline)
        self.submitted += 1
        loop = asyncio.get_running_loop()
        pending = Pending(self.submitted, job, content, jpeg, slot, loop.create_future())
        del content  # the pixels have one owner
        alarm = alarms().set(job.deadline, pending.expire, ends_early=False)
        large = slot.size >= LARGE
        try:
            while True:
                if large:
                    await self._in_thread(pending, self._write, pending)
                else:
                    self._write(pending)
                if not pending.waiter.done():
                    self._send(pending)
                done = await pending.waiter
                if isinstance(done, Failed):
                    return done
                if isinstance(done, Done):
                    if large:
                        return await self._in_thread(pending, self._outcome, pending, done)
                    return self._outcome(pending, done)
                pending.line = None
                if self._closing:
                    return Failed(WorkerLost(STOPPED))
                if pending.losses == MAX_LOSSES:
                    text = f"{MAX_LOSSES} processes ended while they computed this image"
                    return Failed(Quarantined(f"{text}; convert it, or send another image"))
                pending.waiter = loop.create_future()
                if job.deadline.expired(time.monotonic()):  # the alarm of the job may have rung
                    pending.expire()
        finally:
            alarm.cancel()
            self._abandon(pending)

    def _send(self, pending: Pending) -> None:
        """Send a job to the worker with the least unanswered work; park it while there is none.

        Join the shortest queue, over all front ends (Gupta et al., 2007, "Analysis of
        join-the-shortest-queue routing for web server farms",
        https://doi.org/10.1016/j.peva.2007.06.012). The queue of a slower GPU gets shorter slowly,
        so this GPU gets fewer images.
        """
        up = [line for line in self.lines if line.up]
        if not up:
            self._parked.append(pending)
            return
        job, slot = pending.job, pending.slot
        assert slot is not None
        # The mark of the last job in this slot must be gone before a worker has this one, or its
        # crash would make an innocent job a suspect.
        self._arena.mark(slot, False)
        frame = Submit(
            pending.number,
            slot,
            cast(Shape, pending.content.shape),
            encode_operation(job.operation),  # an error here must leave no work with a worker
            job.deadline.at,
            job.lane,
            pending.jpeg,
            pending.losses > 0,
            job.counted,
        )
        line = up[0]
        if len(up) > 1:
            line = min(up, key=lambda each: self._work.work_of(each.worker))
        self._work.add_work(line.worker, job.image.n_pixels)
        pending.line = line
        line.pending[pending.number] = pending
        line.send(frame)

    def _abandon(self, pending: Pending) -> None:
        """Stop waiting for a job, answered or not; a worker gives the slot back with its `Done`."""
        if pending in self._parked:
            self._parked.remove(pending)
        if pending.line is not None and pending.number in pending.line.pending:
            pending.line.send(Cancel(pending.number))
        else:
            self._release(pending)

    def _release(self, pending: Pending) -> None:
        """Free the slot of a job if the job still has one."""
        slot, pending.slot = pending.slot, None
        if slot is not None:
            self._slots.free(slot)

    # Copies into and out of slots.

    async def _in_thread(self, pending: Pending, copy: Callable[..., T], *arguments: object) -> T:
        """Run a function that copies for milliseconds to or from a job's slot, on a thread.

        If it is cancelled meanwhile, the slot is taken back as soon as the copy has ended.
        """
        slot = pending.slot
        assert slot is not None
        copying = asyncio.ensure_future(asyncio.to_thread(copy, *arguments))
        try:
            # Cancelling cannot stop the thread, which still writes into the slot. The shield keeps
            # the future of the copy, by which the slot is freed when the thread has ended.
            return await asyncio.shield(copying)
        except asyncio.CancelledError:
            pending.slot = None
            copying.add_done_callback(lambda _: self._slots.free(slot))
            raise

    def _write(self, pending: Pending) -> None:
        """Copy the job's pixels, or its file, into its slot."""
        assert pending.slot is not None
        content = pending.content
        self._arena.pixels(pending.slot, cast(Shape, content.shape))[...] = content

    def _outcome(self, pending: Pending, done: Done) -> Outcome:
        """Return a copy of a worker's answer."""
        if done.error is not None:
            return Failed(frames.decode_error(done.error))
        assert done.trace is not None
        assert pending.slot is not None
        result: Result | None = done.labels
        if done.vector is not None:
            result = Vector(np.frombuffer(done.vector, np.float32))
        elif done.shape is not None:
            lying = self._arena.pixels(pending.slot, done.shape).copy()
            result = frames.decode_source(lying, done.jpeg)
        assert result is not None
        return Completed(result, done.trace)

    # Reports of lines.

    def on_frame(self, line: WorkerLine, frame: FromWorker) -> None:
        """Take an answer, a report of load or of a batch, a welcome or a farewell of a worker."""
        if isinstance(frame, Done):
            if (pending := line.pending.pop(frame.number, None)) is None:
                log.error("a worker answered job %d, which it does not have", frame.number)
            else:
                self._on_done(line, pending, frame)
            return
        if isinstance(frame, Batched):
            self.on_batch(frame)
            return
        self._load = None  # it is added up again when it is read
        if isinstance(frame, LoadReport):
            line.load = frame.load
        elif isinstance(frame, Leaving):
            line.up = False
            line.over.set()
        else:
            self._on_welcome(line, frame)

    def _on_done(self, line: WorkerLine, pending: Pending, done: Done) -> None:
        """Accept a slot that a worker gave back; a leaving worker did nothing with it."""
        self._work.add_work(line.worker, -pending.job.image.n_pixels)
        if pending.waiter.done():
            self._release(pending)
        elif done.error is not None and done.error[0] in (Draining.code, WorkerLost.code):
            line.up = False
            self._load = None
            self._lose(pending, done.error[0] == WorkerLost.code)
        else:
            pending.waiter.set_result(done)

    def _on_welcome(self, line: WorkerLine, welcome: Welcome) -> None:
        """Send the parked jobs to a worker that equals the first worker.

        Clients have seen the labels of the first worker. If this worker has other labels, this
        front end finishes its work and ends, and its successor learns the new labels.
        """
        self._welcomes[line.worker] = welcome
        if not self._welcomed.done():
            self._welcomed.set_result(welcome)
        elif identity_of(welcome) != identity_of(self._welcomed.result()):
            log.error("the worker came back with other weights; this front end must start anew")
            signal.raise_signal(signal.SIGTERM)
            return
        line.up = True
        reasons = dict.fromkeys(each.degraded for each in self._welcomes.values() if each.degraded)
        self._current = msgspec.structs.replace(welcome, degraded="; ".join(reasons) or None)
        parked, self._parked = self._parked, []
        for pending in parked:
            try:
                self._send(pending)
            except Exception:  # the other jobs are protected
                log.exception("an image could not be sent to a worker")
                pending.fail(InternalError("the image could not be sent; it has been logged"))

    def on_lost(self, line: WorkerLine) -> None:
        """Take the jobs of a lost worker, which no longer touches their slots."""
        self._load = None
        self.lines.remove(line)
        taken, line.pending = list(line.pending.values()), {}
        for pending in taken:
            self._work.add_work(line.worker, -pending.job.image.n_pixels)
            if pending.waiter.done():
                pending.line = None
                self._release(pending)
            else:
                self._lose(pending, died=True)

    def _lose(self, pending: Pending, died: bool) -> None:
        """Let a job be sent again; count a worker that died after its device got the job."""
        assert pending.slot is not None
        pending.losses += died and self._arena.launched(pending.slot)
        pending.waiter.set_result(None)


def identity_of(welcome: Welcome) -> object:
    """Return the networks, weights and labels, which must not change in a server's life."""
    return [each.identity for each in welcome.networks]
