"""A worker's sockets: any number of front ends submit jobs, each through its arena.

Guarantees: every `Submit` is answered by exactly one `Done`, after the last access to its slot; a
front end that leaves or sends nonsense affects only its own jobs.
"""

import asyncio
import functools
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models.domain.deadline import Deadline
from models.domain.errors import InternalError, ServiceError
from models.domain.image import Image
from models.domain.job import Completed, Job, Labels, Lane, Operation, Outcome, Vector
from workers.ipc import conversion, frames
from workers.ipc.arena import Arena, ArenaSlot
from workers.ipc.frames import (
    TO_WORKER,
    Batched,
    Cancel,
    Done,
    Frame,
    FrameProtocol,
    Leaving,
    LoadReport,
    Submit,
    ToWorker,
    Welcome,
)
from workers.operations import kind_of
from workers.scheduling.batch import Batch
from workers.scheduling.engine import BatchResult
from workers.scheduling.throughput import BusyTime
from workers.scheduling.ticket import Ticket
from workers.scheduling.worker import Worker

log = logging.getLogger("darkroom.host")


class ClientSession:
    """Session with one front end."""

    def __init__(
        self,
        worker: Worker[Any],
        arena: Arena,
        decode: Callable[[Any], Operation],
        on_lost: "Callable[[ClientSession], None]",
    ) -> None:
        self._decode = decode
        self._tell_lost = on_lost
        self._worker = worker
        self._arena = arena
        self._tickets: dict[int, Ticket] = {}
        self._loop = asyncio.get_running_loop()
        self._broken = self._lost = False
        self._reported: LoadReport | None = None
        self.protocol = FrameProtocol(TO_WORKER, self._on_frames, self._on_lost, self._on_broken)

    def deliver(self, outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
        """Receive outcomes: fill the slots here, on the worker's thread, and write frames on the
        loop.

        Where the worker was given up, its threads may still write to the slots of jobs that are
        `launched`. These get no answer: their slots are free when this process has ended.
        """
        frames = [
            self._done(ticket.tag[1], outcome)
            for ticket, outcome in outcomes
            if not ticket.launched
        ]
        self._loop.call_soon_threadsafe(self._answer, frames)

    def batched(self, batch: Batch, seconds: float) -> None:
        """Report a finished micro-batch that contained a job of this front end."""
        kind, network = kind_of(batch.tickets[0].job.operation)
        device, reason = self._worker.load().device, batch.reason.value
        frame = Batched(kind, len(batch.tickets), reason, network, device, seconds)
        self._loop.call_soon_threadsafe(self.protocol.send, [frame])

    def _on_frames(self, frames: list[ToWorker]) -> None:
        answers: list[Frame] = []
        for frame in frames:
            if isinstance(frame, Submit):
                answers += self._submit(frame)
            elif (ticket := self._tickets.get(frame.number)) and self._worker.cancel(ticket):
                answers += self._dropped(frame)
        if answers:
            self._send(answers)

    def _submit(self, frame: Submit) -> list[Frame]:
        """Hand the job to the worker; return an answer at once for a job that cannot be
        accepted.
        """
        try:
            pixels = self._arena.pixels(ArenaSlot(frame.offset, frame.size), frame.shape)
            operation = self._decode(frame.operation)
            source = conversion.decode_input(pixels, frame.jpeg, operation)
            # The front end has its own copy, from which it asks again should this worker be lost.
            deadline, lane = Deadline(frame.deadline), Lane(frame.lane)
            job = Job(operation, source, deadline, lane, True, frame.counted)
            mark = functools.partial(self._mark, ArenaSlot(frame.offset, frame.size))
            self._tickets[frame.number] = self._worker.submit(
                job, self.deliver, (self, frame), mark, frame.alone
            )
        except ServiceError as error:
            return [Done(frame.number, error=conversion.encode_error(error))]
        except Exception:  # the other jobs of this front end are protected
            log.exception("a job could not be read")
            fault = InternalError("the job could not be read")
            return [Done(frame.number, error=conversion.encode_error(fault))]
        return []

    def _dropped(self, frame: Cancel) -> list[Frame]:
        del self._tickets[frame.number]
        return [Done(frame.number)]

    def _done(self, asked: Submit, outcome: Outcome) -> Done:
        try:
            return self._told_of(asked, outcome)
        except Exception:  # the other jobs of the batch are protected
            log.exception("the answer of a job could not be written")
            fault = InternalError("the answer could not be sent back; it has been logged")
            return Done(asked.number, error=conversion.encode_error(fault))

    def _told_of(self, asked: Submit, outcome: Outcome) -> Done:
        if not isinstance(outcome, Completed):
            return Done(asked.number, error=conversion.encode_error(outcome.error))
        trace, result = conversion.encode_trace(outcome.trace), outcome.result
        if isinstance(result, Labels):
            return Done(asked.number, trace, result.class_ids, result.scores)
        if isinstance(result, Vector):
            return Done(asked.number, trace, vector=result.values.tobytes())
        shape, jpeg = conversion.encode_source(result)
        content = result.pixels if isinstance(result, Image) else result.data.reshape(shape)
        np.copyto(self._arena.pixels(ArenaSlot(asked.offset, asked.size), shape), content)
        return Done(asked.number, trace, shape=shape, jpeg=jpeg)

    def _answer(self, frames: list[Done]) -> None:
        for frame in frames:
            self._tickets.pop(frame.number, None)
        self._send(frames)
        if self._broken and not self._tickets:
            self.protocol.close()

    def report(self) -> None:
        """Report the load of the worker, if it has changed."""
        if self._load() != self._reported:
            self._send([])

    def _send(self, answers: Sequence[Frame]) -> None:
        """Send answers, and the load of the worker."""
        if self.protocol.behind:
            self.protocol.send(answers)
        else:
            self._reported = self._load()
            self.protocol.send([self._reported, *answers])

    def _load(self) -> LoadReport:
        load = self._worker.load()
        return LoadReport(
            load.queued_jobs,
            load.queued_pixels,
            load.running_jobs,
            load.service_rate,
            load.decoding,
            load.progress,
        )

    def _on_broken(self, error: Exception) -> None:
        """Close the connection, but only once nothing here uses the arena any more."""
        log.error("a front end sent what cannot be read: %s", error)
        self._broken = True
        self._give_up()
        if not self._tickets:
            self.protocol.close()

    def _mark(self, slot: ArenaSlot, launched: bool) -> None:
        """Mark for the front end whether the device has a job; a front end that has left reads no
        marks.
        """
        if not self._lost:
            self._arena.mark(slot, launched)

    def _on_lost(self) -> None:
        self._lost = True
        self._tell_lost(self)
        self._give_up()
        self._arena.close()

    def _give_up(self) -> None:
        """Drop the jobs that wait; those on the device finish there."""
        waiting = [n for n, ticket in self._tickets.items() if self._worker.cancel(ticket)]
        for number in waiting:
            del self._tickets[number]


PAUSE = 0.1
"""Seconds between two checks of the load, or two tries to accept."""

HANDSHAKE = 5.0
"""Seconds in which a front end must hand its arena over."""


class WorkerServer:
    """Server that lets front ends use one started worker; `on_batch` is the worker's observer."""

    def __init__(self, decode: Callable[[Any], Operation] = conversion.decode_operation) -> None:
        self.decode = decode
        self._busy = BusyTime()
        self.decoded = 0
        self._sessions: set[ClientSession] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._retired = False

    async def serve(self, listener: socket.socket, worker: Worker[Any], welcome: Welcome) -> None:
        """Accept front ends until cancelled, then close their connections.

        Cancel it only when the worker has ended its threads: a front end uses the slots of jobs
        again when their connection is closed. After any other error connections stay open.
        """
        listener.setblocking(False)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_telling())
                self._accepting = tasks.create_task(self._accept(listener, worker, welcome, tasks))
        except asyncio.CancelledError:
            for session in self._sessions:
                session.protocol.close()
            await asyncio.sleep(0)  # the loop hangs up in its next turn
            raise

    def retire(self) -> None:
        """Give the address up: front ends connect to the next worker there, and wait for this
        one. One that is connecting meanwhile is turned away, before it has submitted anything.
        """
        self._retired = True
        if self._accepting is not None:
            self._accepting.cancel()
        for session in self._sessions:
            session.protocol.send([Leaving()])

    async def _accept(
        self,
        listener: socket.socket,
        worker: Worker[Any],
        welcome: Welcome,
        tasks: asyncio.TaskGroup,
    ) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # too many open files, say
                    log.error("no front end can be let in: %s", error)
                    await asyncio.sleep(PAUSE)
                    continue
                tasks.create_task(self._admit(connection, worker, welcome))

    def _decoded(self, encoded: Any) -> Operation:
        self.decoded += 1
        return self.decode(encoded)

    def leave(self, session: ClientSession) -> None:
        """Forget a front end that has closed its connection."""
        self._sessions.discard(session)

    def on_batch(self, batch: Batch, _result: BatchResult) -> None:
        """Report a finished batch to one of the front ends; called on a collect thread."""
        session, _ = batch.tickets[0].tag
        session.batched(batch, self._busy.add(batch.launched_at, time.monotonic()))

    async def _keep_telling(self) -> None:
        """Report the load regularly, because it also changes without a message from a front end."""
        while True:
            await asyncio.sleep(PAUSE)
            for session in self._sessions:
                session.report()

    async def _admit(
        self, connection: socket.socket, worker: Worker[Any], welcome: Welcome
    ) -> None:
        session: ClientSession | None = None
        try:
            if not frames.same_user(connection):
                raise PermissionError("a process of another user")
            arena = await _received_arena(connection)
            made = session = ClientSession(worker, arena, self._decoded, self.leave)
            self._sessions.add(session)
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: made.protocol, sock=connection)
        except BaseException as error:
            connection.close()
            if session is not None:
                session.protocol.connection_lost(None)  # once: a later call does nothing
            if not isinstance(error, Exception):
                raise
            # The other front ends are protected. A log record with the error itself would keep the
            # arena mapped, by the frames of its traceback.
            log.warning("a front end was turned away: %s", str(error))
            return
        if self._retired:
            session.protocol.close()
        else:
            session.protocol.send([welcome])


async def _received_arena(connection: socket.socket) -> Arena:
    """Return the arena whose descriptor is a front end's first message."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    connection.setblocking(False)
    # asyncio has no call that receives descriptors, so this waits until `recv_fds` finds the
    # message.
    loop.add_reader(connection, readable.set)
    try:
        async with asyncio.timeout(HANDSHAKE):
            await readable.wait()
    finally:
        loop.remove_reader(connection)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    if not descriptors:
        raise ValueError("it sent no arena")
    try:
        return Arena(descriptors[0])
    except BaseException:
        os.close(descriptors[0])
        raise
