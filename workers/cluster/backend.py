"""The backend whose workers are replicas anywhere in a Ray cluster.

Several jobs travel in one call, and come back as they end. Ray Serve chooses the replica. Jobs that
a lost replica had not answered are sent again while their deadline allows: the work is pure, so a
second run is safe. A job that was lost with two replicas is computed alone the next time, and fails
if that one dies too: only it can be the cause. Its content is then refused for a while.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial

from models.domain.alarms import alarms
from models.domain.backend import Load
from models.domain.errors import DeadlineExceeded, Draining, InternalError, ServiceError, WorkerLost
from models.domain.job import Completed, Failed, Job, Operation, Outcome
from workers.backends.quarantine import Quarantine
from workers.cluster.control import Control
from workers.cluster.incoming import receive, resolve
from workers.cluster.messages import ENCODER, REPLY, Call, Message, encode_task
from workers.cluster.outgoing import Group, Lost, Outgoing, Pending
from workers.cluster.replicas import Replicas
from workers.cluster.serve_handle import ReplicaGone, Workers
from workers.ipc import conversion
from workers.operations import most_pixels

log = logging.getLogger("darkroom.cluster")

MAX_LOSSES = 3
MOST_GRPC_BYTES = 3 << 20
"""Bytes of a call that goes over the gRPC of Ray Serve, whose messages have at most 4 MiB."""

PAUSE = 0.05
"""Seconds before jobs of a lost replica are sent again, in which Ray learns that it is lost."""


class RayBackend:
    """Backend on the replicas of `workers`; belongs to one event loop.

    `group` is the largest number of jobs in a call, and `report_every` the seconds between two
    questions for the state of all replicas. `identity` is that of the weights that answers name.
    """

    def __init__(
        self,
        workers: Workers,
        drain_timeout: float | None = None,
        *,
        group: int = 16,
        report_every: float = 0.5,
        encode: Callable[[Operation], object] = conversion.encode_operation,
        identity: str | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers = workers
        self._drain_timeout = drain_timeout
        self._encode = encode
        self._quarantine = Quarantine()
        self._name = secrets.token_hex(8)
        self._held: set[Pending] = set()
        self._number = 0
        self._idle = asyncio.Event()
        self._closing = False
        self._ended = False  # the drain is over: nothing is sent any more
        self._pause = asyncio.Event()
        self._pause.set()
        self._outgoing = Outgoing(self._start, group)
        self._calls: set[asyncio.Task[None]] = set()
        self.unaccepted: set[Pending] = set()
        """The jobs that no replica has yet."""
        self.replicas = Replicas(on_change, identity=identity)
        self._control = Control(workers, self.replicas, self._name, report_every)

    async def run(self, job: Job) -> Completed:
        """Return the answer of one job; a hung replica is answered with 504 at the deadline."""
        if self._closing:
            raise Draining("this server is stopping; ask another one")
        self._number += 1
        waiter: asyncio.Future[Outcome | Lost] = asyncio.get_running_loop().create_future()
        pending = Pending(self._number, job, waiter)
        self._held.add(pending)
        try:
            await self._quarantine.check(job.image)
            outcome = await self._answer(pending)
        finally:
            self._held.discard(pending)
            self.unaccepted.discard(pending)
            if not self._held:
                self._idle.set()
        if isinstance(outcome, Failed):
            try:
                raise outcome.error
            finally:  # the error's traceback holds this frame, which must not hold the image
                del outcome, job, pending, waiter
        return outcome

    def load(self) -> Load:
        """Return the load of all replicas by their last reports, and of jobs not yet with one."""
        waiting = self.unaccepted
        pixels = sum([most_pixels(each.job) for each in waiting])
        return self.replicas.load(len(waiting), pixels, self._closing)

    async def aclose(self) -> None:
        """Refuse new jobs, wait for the accepted ones, then end the calls."""
        if self._closing:
            return
        self._closing = True
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                if self._held:
                    await self._idle.wait()
        self._ended = True
        self._pause.set()
        for pending in self._held:
            resolve(pending, _stopped())
        calls = [*self._calls]
        for task in calls:
            task.cancel()
        await asyncio.gather(self._control.aclose(), *calls, return_exceptions=True)

    async def _answer(self, pending: Pending) -> Outcome:
        late = Failed(DeadlineExceeded("the request's deadline passed"))
        ring = partial(resolve, pending, late)
        # A request that is given up cancels this call; the images of jobs go on.
        alarm = alarms().set(pending.job.deadline, ring, ends_early=False)
        try:
            self._send(pending)
            while isinstance(done := await pending.waiter, Lost):
                if (failed := await self._given_up(pending, done)) is not None:
                    return failed
                if pending.job.deadline.expired(time.monotonic()):
                    return late
                pending.waiter = asyncio.get_running_loop().create_future()
                self._send(pending)
        except asyncio.CancelledError:
            if pending not in self.unaccepted:
                self._control.drop(pending.number)
            raise
        else:
            return done
        finally:
            alarm.cancel()
            if not pending.waiter.done():
                pending.waiter.cancel()

    def _send(self, pending: Pending) -> None:
        self.unaccepted.add(pending)
        self._outgoing.add(pending)

    async def _given_up(self, pending: Pending, lost: Lost) -> Failed | None:
        """Return why a job of a lost replica is not sent again; None if it is, after a pause."""
        pending.losses += lost.died
        if pending.losses < MAX_LOSSES:
            if self._pause.is_set() and not self._ended:
                self._pause.clear()
                asyncio.get_running_loop().call_later(PAUSE, self._pause.set)
            await self._pause.wait()  # with the other jobs of its call, to share one again
            return _stopped() if self._ended else None
        await self._quarantine.add(pending.job.image)
        text = f"{pending.losses} replicas died while they held the image; it was given up"
        return Failed(WorkerLost(text))

    def _start(self, group: Group) -> None:
        task = asyncio.create_task(self._call(group))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

        def unwanted(_waiter: object) -> None:
            if group.unwanted:  # it waits for a replica
                task.cancel()

        for pending in group.jobs.values():
            pending.waiter.add_done_callback(unwanted)

    async def _call(self, group: Group) -> None:
        """Carry a group to a replica and hand its answers out."""
        failed: Failed | Lost = Lost(died=False)
        try:
            header, contents = self._encoded(group)
            messages = self._workers.compute(
                header, contents, small=group.n_bytes <= MOST_GRPC_BYTES
            )
            del contents
            async with aclosing(messages) as stream:
                async for message in stream:
                    if not group.accepted:
                        self._accept(group)
                    reply = REPLY.decode(message[0])
                    self.replicas.reported(reply.report)
                    receive(group, reply, message[1])
        except ReplicaGone as gone:
            failed = Lost(gone.died)
            log.warning("a replica was lost with %d images: they are sent again", len(group.jobs))
        except ServiceError as error:
            failed = Failed(error)
        except Exception:  # these jobs are answered, and others of this front end protected
            log.exception("a call to a replica failed")
            failed = Failed(InternalError("the workers could not be asked; it has been logged"))
        finally:
            if not group.accepted:
                self._outgoing.accepted()
            for pending in group.jobs.values():
                resolve(pending, failed)

    def _encoded(self, group: Group) -> Message:
        now = time.monotonic()
        tasks, contents = [], []
        for number, each in group.jobs.items():
            operation = self._encode(each.job.operation)
            task, content = encode_task(number, each.job, operation, now, alone=each.alone)
            tasks.append(task)
            contents.append(content)
        return ENCODER.encode(Call(self._name, tasks)), contents

    def _accept(self, group: Group) -> None:
        """Note that a replica has these jobs; drop those whose callers have left."""
        group.accepted = True
        self._outgoing.accepted()
        self.unaccepted.difference_update(group.jobs.values())
        for number, pending in group.jobs.items():
            if pending.waiter.cancelled():
                self._control.drop(number)


def _stopped() -> Failed:
    return Failed(WorkerLost("the server stopped before the image was done; try again"))
