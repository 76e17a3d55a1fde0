"""The backend whose workers are other processes of this host.

A job goes to the worker with the least unanswered work. Jobs that a lost worker
had not answered go to another worker or to its successor, while their deadline allows: the work is
pure, so a second run is safe. A job that the device had been given when its worker died is computed
alone the next time, and fails if that worker dies too: only this job can be the cause. Its content
is then refused.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from models.domain.alarms import alarms
from models.domain.backend import Load
from models.domain.errors import (
    DeadlineExceeded,
    Draining,
    InternalError,
    ServiceError,
    WorkerLost,
)
from models.domain.job import Completed, Failed, Job, Outcome, Result, Vector
from models.exit_codes import ExitCode
from workers.backends.absence import Absence, combined
from workers.backends.quarantine import Quarantine
from workers.ipc import frames
from workers.ipc.arena import LARGE, Arena, ArenaSlot, ArenaSlots
from workers.ipc.frames import (
    FROM_WORKER,
    Batched,
    Cancel,
    Done,
    FrameProtocol,
    FromWorker,
    Leaving,
    LoadReport,
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

FAREWELL = 1.0
"""Seconds in which a worker must read pending bytes when the front end closes."""

T = TypeVar("T")


class UnansweredWork(Protocol):
    """The pixels that each worker has been given and has not answered, by all front ends."""

    def add(self, worker: int, pixels: int) -> None:
        """Add to a worker's work; the sum of what this process adds is 0 once all is answered."""

    def totals(self) -> Sequence[int]:
        """Return the work of each worker, over all processes that give it some."""


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


class WorkerLine(FrameProtocol[FromWorker]):
    """Connection to a worker process; `pending` are the jobs that it has not answered.

    `over` is set when it accepts no more jobs, `gone` when the connection has ended. `left` says
    that the worker told that it leaves.
    """

    def __init__(self, backend: "ProcessBackend") -> None:
        super().__init__(FROM_WORKER)
        self._backend = backend
        self.pending: dict[int, Pending] = {}
        self.welcome: Welcome | None = None
        self.load = Load("none", 0, 0, 0, 0.0, alive=False)
        self.up = self.left = False
        self.over, self.gone = asyncio.Event(), asyncio.Event()

    async def end(self) -> None:
        """Close the connection; do not wait for a worker that does not read its pending bytes."""
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self.gone.wait()
        self.abort()
        await self.gone.wait()

    def on_frame(self, frame: FromWorker) -> None:
        """Pass on an answer, a report of load or of a batch, a welcome or a farewell."""
        if isinstance(frame, Done):
            if (pending := self.pending.pop(frame.number, None)) is None:
                log.error("a worker answered job %d, which it does not have", frame.number)
            else:
                self._backend.on_done(pending, frame)
            return
        if isinstance(frame, Batched):
            self._backend.on_batch(frame)
            return
        if isinstance(frame, LoadReport):
            self.load = frame.load
        elif isinstance(frame, Leaving):
            self.up, self.left = False, True
            self.over.set()
        else:
            self.welcome = frame
            self.up = True
            self.up = self._backend.on_welcome(frame)
        self._backend.forget_load()

    def on_broken(self, error: Exception) -> None:
        """End this process: it cannot know any more which slots the worker still uses."""
        log.critical("a worker sent what cannot be read", exc_info=error)
        os._exit(ExitCode.BROKEN)

    def on_lost(self) -> None:
        """Hand back the jobs that the worker had not answered; it no longer touches their slots."""
        self.up = False
        self.over.set()
        self.gone.set()
        taken, self.pending = list(self.pending.values()), {}
        self._backend.forget_load()
        self._backend.on_lost(taken)


class WorkerConnection:
    """Connection to the worker at an address, renewed whenever that worker leaves or is lost.

    `lines` are the lines that have not ended, oldest first, and the last: a worker that leaves
    keeps its line until it has answered everything.
    """

    def __init__(self, address: str, arena: Arena, backend: "ProcessBackend") -> None:
        self._address = address
        self._arena = arena
        self._backend = backend
        self.lines: list[WorkerLine] = []
        self._task = asyncio.create_task(self._keep())

    @property
    def line(self) -> WorkerLine | None:
        """Return the line to the worker that accepts jobs, or None while there is none."""
        return self.lines[-1] if self.lines and self.lines[-1].up else None

    @property
    def welcome(self) -> Welcome | None:
        """Return the welcome of the present worker, else of the last worker."""
        return next((each.welcome for each in reversed(self.lines) if each.welcome), None)

    @property
    def hands_over(self) -> bool:
        """Return whether the last worker told that it leaves, and none was welcomed after it."""
        return next(
            (each.left for each in reversed(self.lines) if each.welcome or each.left), False
        )

    async def close(self) -> None:
        """Close all connections permanently."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(each.end() for each in self.lines if not each.gone.is_set()))

    async def _keep(self) -> None:
        """Connect, and again whenever the worker has gone; no error ends this loop."""
        while True:
            line = WorkerLine(self._backend)
            try:
                await self._connect(line)
                await line.over.wait()
            except PermissionError as error:
                log.critical("a worker could not be connected to: %s", error)
                await asyncio.sleep(FORBIDDEN)
            except OSError:  # no worker is there, or not yet
                pass
            except Exception:  # the next try is protected
                log.exception("a worker could not be connected to")
            await asyncio.sleep(RETRY)

    async def _connect(self, line: WorkerLine) -> None:
        loop, connection = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, self._address)
            if not frames.same_user(connection):
                raise PermissionError("another user's process is at the worker's address")
            # A descriptor must accompany at least one byte of data on a stream socket (unix(7)).
            socket.send_fds(connection, [b"a"], [self._arena.fd])
            # The line is listed before its transport exists: the first read may bring `Welcome`,
            # which the backend compares with those of all lines.
            left = [each for each in self.lines[:-1] if not each.gone.is_set()]
            self.lines = [*left, *self.lines[-1:], line]
            await loop.create_unix_connection(lambda: line, sock=connection)
        except BaseException:  # the socket must be closed in every case
            connection.close()
            self.lines = [each for each in self.lines if each is not line]
            raise


class ProcessBackend:
    """Backend on worker processes at Unix socket `addresses`; belongs to a single event loop.

    `work` is the unanswered work of all front ends. `on_batch` is called for each finished batch
    that a worker reports to this front end.
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
        self._absence = Absence()
        self._quarantine = Quarantine()
        self._work = work
        self._welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._current: Welcome | None = None
        self._device, self.submitted = "none", 0
        self._load: Load | None = None
        self.on_batch = on_batch
        self._links = [WorkerConnection(address, self._arena, self) for address in addresses]

    async def welcome(self, patience: float = 0.0) -> Welcome:
        """Return the first welcome of a worker, waiting for it.

        Then wait for the welcomes of all other workers, at most `patience` seconds.
        """
        first = await asyncio.shield(self._welcomed)
        end = time.monotonic() + patience
        while time.monotonic() < end and not all([link.welcome for link in self._links]):  # noqa: ASYNC110
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
            await self._quarantine.check(job.image)
            slot = await self._slots.take(bytes_for(job), job.deadline)
            outcome = await self._answer(job, slot)
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
            lines = [each for link in self._links for each in link.lines if not each.gone.is_set()]
            up = [] if self._closing else [link.line.load for link in self._links if link.line]
            load = combined([each.load for each in lines], up, self._device)
            load = replace(
                load,
                queued_jobs=load.queued_jobs + waiting,
                service_rate=self._absence.rate(load.service_rate, load.alive),
                back_in=None if self._closing else self._back_in(load.alive),
            )
            self._load = None if waiting else load
        return load

    def loads(self) -> list[Load]:
        """Return the load of each device, of all workers on it that have been welcomed."""
        found: dict[str, list[WorkerConnection]] = {}
        for link in self._links:
            if link.welcome is not None:
                found.setdefault(link.welcome.device, []).append(link)
        return [
            combined(
                [line.load for link in links for line in link.lines if not line.gone.is_set()],
                [link.line.load for link in links if link.line],
                device,
            )
            for device, links in found.items()
        ]

    def absence(self) -> float:
        """Return the seconds until a worker is expected to run again; 0 while a worker runs."""
        if self._closing or (self._load or self.load()).alive:
            return 0.0
        return self._back_in(any([link.line is not None for link in self._links]))

    def _back_in(self, alive: bool) -> float:
        hands_over = any([link.hands_over for link in self._links])
        return self._absence.back_in(alive, hands_over=hands_over)

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, then close the connections."""
        if self._closing:
            return
        self._closing = True
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout if self._held else 0):
                await self._idle.wait()
        lost = WorkerLost("the server stopped before the image was done; try again")
        lines = [line for link in self._links for line in link.lines]
        for pending in [*self._parked, *(p for line in lines for p in line.pending.values())]:
            pending.fail(lost)
        self._slots.refuse(lost)
        await asyncio.gather(*(link.close() for link in self._links))
        self._arena.close()

    # The way of a job.

    async def _answer(self, job: Job, slot: ArenaSlot) -> Outcome:
        self.submitted += 1
        pending = Pending(self.submitted, job, slot, asyncio.get_running_loop().create_future())
        alarm = alarms().set(job.deadline, pending.expire, ends_early=False)
        try:
            await self._copied(pending, self._write, pending)
            self._send(pending)
            while isinstance(done := await pending.waiter, Lost):
                if (failed := await self._given_up(pending, done)) is not None:
                    return failed
                await self._send_again(pending)
            if isinstance(done, Failed):
                return done
            return await self._copied(pending, self._outcome, pending, done)
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
        up = [n for n, link in enumerate(self._links) if link.line is not None]
        if not up:
            self._parked.append(pending)
            return
        assert pending.slot is not None
        # The mark of the last job in this slot must be gone before a worker has this one, or its
        # crash would make an innocent job a suspect.
        self._arena.mark(pending.slot, False)
        frame = frame_of(pending)  # an error here must leave no work with a worker
        pending.worker = up[0] if len(up) == 1 else min(up, key=self._work.totals().__getitem__)
        self._work.add(pending.worker, pending.job.image.n_pixels)
        line = pending.line = self._links[pending.worker].lines[-1]
        line.pending[pending.number] = pending
        line.send(frame)

    async def _given_up(self, pending: Pending, lost: Lost) -> Failed | None:
        """Return why a job of a lost worker is not sent again; None if it is."""
        pending.line = None
        pending.losses += lost.launched
        if self._closing:
            return Failed(WorkerLost("the server stopped before the image was done; try again"))
        if pending.losses < MAX_LOSSES:
            pending.alone = pending.losses > 0
            return None
        await self._quarantine.add(pending.job.image)
        died = f"{pending.losses} workers died while they held the image"
        return Failed(WorkerLost(f"{died}; it was given up"))

    async def _send_again(self, pending: Pending) -> None:
        """Send a job again from its image: a filter may have been writing over the slot."""
        pending.waiter = asyncio.get_running_loop().create_future()
        if pending.job.deadline.expired(time.monotonic()):  # the alarm of the job may have rung
            pending.expire()
        await self._copied(pending, self._write, pending)
        if not pending.waiter.done():
            self._send(pending)

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

    async def _copied(self, pending: Pending, copy: Callable[..., T], *arguments: object) -> T:
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
            copying.add_done_callback(lambda _: self._slots.free(slot))
            raise

    def _write(self, pending: Pending) -> None:
        """Copy the job's pixels, or its file, into its slot."""
        assert pending.slot is not None
        content, _ = encode_source(pending.job.image)
        self._arena.pixels(pending.slot, shape_of(content))[...] = content

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

    def forget_load(self) -> None:
        """Note that a worker reports another load, comes, leaves or is lost."""
        self._load = None  # it is added up again when it is read

    def on_done(self, pending: Pending, done: Done) -> None:
        """Accept a slot that a worker gave back; a leaving worker did nothing with it."""
        self._work.add(pending.worker, -pending.job.image.n_pixels)
        if pending.waiter.done():
            self._release(pending)
        elif done.error is not None and done.error[0] in (Draining.code, WorkerLost.code):
            assert pending.line is not None
            pending.line.up, self._load = False, None
            self._lose(pending, done.error[0] == WorkerLost.code)
        else:
            pending.waiter.set_result(done)

    def on_welcome(self, welcome: Welcome) -> bool:
        """Return whether this worker equals the first worker, whose labels clients have seen.

        If not, this front end finishes its work and ends, and its successor learns the new labels.
        """
        present = [link.welcome for link in self._links if link.welcome]
        self._device = ", ".join(each.device for each in present)
        if not self._welcomed.done():
            self._welcomed.set_result(welcome)
        elif identity_of(welcome) != identity_of(self._welcomed.result()):
            log.error("the worker came back with other weights; this front end must start anew")
            signal.raise_signal(signal.SIGTERM)
            return False
        reasons = "; ".join(dict.fromkeys([each.degraded for each in present if each.degraded]))
        self._current = msgspec.structs.replace(welcome, degraded=reasons or None)
        self._absence.ended(welcome.start)
        parked, self._parked = self._parked, []
        for pending in parked:
            try:
                self._send(pending)
            except Exception:  # the other jobs are protected
                log.exception("an image could not be sent to a worker")
                pending.fail(InternalError("the image could not be sent; it has been logged"))
        return True

    def on_lost(self, taken: list[Pending]) -> None:
        """Take the jobs of a lost worker, which no longer touches their slots."""
        for pending in taken:
            self._work.add(pending.worker, -pending.job.image.n_pixels)
            if pending.waiter.done():
                pending.line = None
                self._release(pending)
            else:
                self._lose(pending, died=True)

    def _lose(self, pending: Pending, died: bool) -> None:
        assert pending.slot is not None
        pending.waiter.set_result(Lost(died and self._arena.launched(pending.slot)))


def identity_of(welcome: Welcome) -> object:
    """Return the networks, weights and labels, which must not change in a server's life."""
    return [each.identity for each in welcome.networks]


def shape_of(content: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> frames.Shape:
    """Return the shape of the content of a slot."""
    height, width, channels = content.shape
    return height, width, channels


def frame_of(pending: Pending) -> Submit:
    """Return the frame for a job, which lies in its slot."""
    job = pending.job
    assert pending.slot is not None
    content, jpeg = encode_source(job.image)
    return Submit(
        pending.number,
        pending.slot,
        shape_of(content),
        encode_operation(job.operation),
        job.deadline.at,
        job.lane,
        jpeg,
        pending.alone,
        job.counted,
    )
