"""A worker's sockets: any number of front ends submit jobs, each through its arena.

Guarantees: every `Submit` is answered by exactly one `Done`, after the last access to its slot; a
front end that leaves affects only its own jobs.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from models.domain.backend import Load
from models.domain.deadline import Deadline
from models.domain.errors import InternalError, ServiceError
from models.domain.image import NetworkInput, Source
from models.domain.job import Completed, Job, Labels, Outcome, Vector
from workers.ipc.arena import Arena
from workers.ipc.frames import (
    TO_WORKER,
    Batched,
    Done,
    FrameProtocol,
    Leaving,
    LoadReport,
    Shape,
    Submit,
    ToWorker,
    Welcome,
    decode_operation,
    decode_source,
    encode_error,
    encode_source,
    same_user,
)
from workers.operations import Classify, kind_of
from workers.scheduling.batch import Batch
from workers.scheduling.ticket import Ticket
from workers.scheduling.worker import Worker

log = logging.getLogger("darkroom.host")


class ClientSession(FrameProtocol[ToWorker]):
    """Session with a front end; `sessions` holds it until its connection ends."""

    def __init__(self, worker: Worker[Any], arena: Arena, sessions: "set[ClientSession]") -> None:
        super().__init__(TO_WORKER)
        self._worker = worker
        self._arena = arena
        self._sessions = sessions
        self._tickets: dict[int, Ticket] = {}
        self.loop = asyncio.get_running_loop()
        self._reported: Load | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the transport from the event loop."""
        super().connection_made(transport)
        self._sessions.add(self)

    def deliver(self, outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
        """Fill the slots here, on the worker's thread, and let the loop write frames.

        Where the worker was given up, its threads may still write to the slots of jobs that the
        device has. These get no answer: their slots are free when this process has ended.
        """
        frames = [
            self._done(ticket.tag[1], outcome)
            for ticket, outcome in outcomes
            if not self._arena.launched(ticket.tag[1].slot)
        ]
        self.loop.call_soon_threadsafe(self._answer, frames)

    def report(self) -> None:
        """Report the load of the worker, if it has changed."""
        load = self._worker.load()
        if load != self._reported:
            self._reported = load
            self.send(LoadReport(load))

    def on_frame(self, frame: ToWorker) -> None:
        """Accept a job, or cancel one."""
        if isinstance(frame, Submit):
            self._submit(frame)
        elif (ticket := self._tickets.get(frame.number)) and self._worker.cancel(ticket):
            self._answer([Done(frame.number)])

    def on_lost(self) -> None:
        """Drop the front end and its jobs that wait; jobs on the device finish there."""
        self._sessions.discard(self)
        # A ticket has this session as its tag: a cycle, which keeps the arena mapped.
        self._tickets = {n: t for n, t in self._tickets.items() if not self._worker.cancel(t)}

    def _submit(self, frame: Submit) -> None:
        """Hand the job to the worker; answer at once a job that cannot be accepted."""
        error: ServiceError
        try:
            operation = decode_operation(frame.operation)
            pixels = self._arena.pixels(frame.slot, frame.shape)
            source: Source
            if isinstance(operation, Classify) and operation.preprocessed:
                source = NetworkInput(pixels.view(np.float32))
            else:
                source = decode_source(pixels, frame.jpeg)
            # The front end has its own copy, from which it asks again should this worker be lost.
            deadline, mark = Deadline(frame.deadline), partial(self._arena.mark, frame.slot)
            job = Job(operation, source, deadline, frame.lane, True, frame.counted)
            self._tickets[frame.number] = self._worker.submit(
                job, self.deliver, (self, frame), mark, frame.alone
            )
        except ServiceError as refused:
            error = refused
        except Exception:  # the other jobs of this front end are protected
            log.exception("a job could not be read")
            error = InternalError("the job could not be read")
        else:
            return
        self._answer([Done(frame.number, error=encode_error(error))])

    def _done(self, asked: Submit, outcome: Outcome) -> Done:
        """Return the frame of an outcome; write an image into its slot."""
        try:
            if not isinstance(outcome, Completed):
                return Done(asked.number, error=encode_error(outcome.error))
            trace, result = outcome.trace, outcome.result
            if isinstance(result, Labels):
                return Done(asked.number, trace, result)
            if isinstance(result, Vector):
                return Done(asked.number, trace, vector=result.values.tobytes())
            content, jpeg = encode_source(result)
            shape = cast(Shape, content.shape)
            np.copyto(self._arena.pixels(asked.slot, shape), content)
            return Done(asked.number, trace, shape=shape, jpeg=jpeg)
        except Exception:  # the other jobs of the batch are protected
            log.exception("the answer of a job could not be written")
            fault = InternalError("the answer could not be sent back; it has been logged")
            return Done(asked.number, error=encode_error(fault))

    def _answer(self, frames: list[Done]) -> None:
        for frame in frames:
            self._tickets.pop(frame.number, None)
        self.send(*frames)


PAUSE = 0.1
"""Seconds between two checks of the load, or two tries to accept."""

HANDSHAKE = 5.0
"""Seconds in which a front end must hand its arena over."""


class WorkerServer:
    """Server that lets front ends use a started worker; `on_batch` is the worker's observer."""

    def __init__(self) -> None:
        self._device = ""
        self._sessions: set[ClientSession] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._retired = False

    async def serve(self, listener: socket.socket, worker: Worker[Any], welcome: Welcome) -> None:
        """Accept front ends until cancelled, then close their connections.

        Cancel it only when the worker has ended its threads: a front end uses the slots of jobs
        again when their connection is closed. After any other error connections stay open.
        """
        listener.setblocking(False)
        self._device = welcome.device
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_telling())
                self._accepting = tasks.create_task(self._accept(listener, worker, welcome, tasks))
        except asyncio.CancelledError:
            for session in self._sessions:
                session.close()
            await asyncio.sleep(0)  # the loop hangs up in its next turn
            raise

    def retire(self) -> None:
        """Give the address up: front ends connect to the next worker there, and wait for this
        worker. A front end that is connecting meanwhile is turned away before it has submitted a
        job.
        """
        self._retired = True
        if self._accepting is not None:
            self._accepting.cancel()
        for session in self._sessions:
            session.send(Leaving())

    def on_batch(self, batch: Batch, seconds: float) -> None:
        """Report a finished batch to the front end of its first job; called on a collect thread."""
        session, _ = batch.tickets[0].tag
        kind, network = kind_of(batch.tickets[0].job.operation)
        size, reason = len(batch.tickets), batch.reason
        frame = Batched(kind, size, reason, network, self._device, seconds)
        session.loop.call_soon_threadsafe(session.send, frame)

    async def _keep_telling(self) -> None:
        """Report the load regularly, because it also changes without a message from a front end."""
        while True:
            await asyncio.sleep(PAUSE)
            for session in self._sessions:
                session.report()
                del session  # a session that ends meanwhile would keep its arena mapped

    async def _accept(
        self,
        listener: socket.socket,
        worker: Worker[Any],
        welcome: Welcome,
        tasks: asyncio.TaskGroup,
    ) -> None:
        with listener:
            while True:
                try:
                    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:  # too many open files, say
                    log.error("no front end can be let in: %s", error)
                    await asyncio.sleep(PAUSE)
                    continue
                tasks.create_task(self._admit(connection, worker, welcome))

    async def _admit(
        self, connection: socket.socket, worker: Worker[Any], welcome: Welcome
    ) -> None:
        """Take the arena whose descriptor is the first message of a front end, and welcome it."""
        try:
            if not same_user(connection):
                raise PermissionError("a process of another user")
            connection.settimeout(HANDSHAKE)
            _, found, _, _ = await asyncio.to_thread(socket.recv_fds, connection, 1, 1)
            connection.setblocking(False)
            arena = Arena(found[0])
            arena.close()  # the memory is mapped
            await asyncio.to_thread(worker.share, *arena.kept)
            session = ClientSession(worker, arena, self._sessions)
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: session, sock=connection)
        except Exception as error:  # the other front ends are protected
            connection.close()
            # A log record with the error itself would keep the arena mapped, by the frames of its
            # traceback.
            log.warning("a front end was turned away: %r", str(error))
            return
        if self._retired:
            session.close()
        else:
            session.send(welcome)
            session.report()
