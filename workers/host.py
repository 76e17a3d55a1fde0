"""A worker's side of the sockets: any number of front ends hand jobs in, each through its arena.

Guarantees: every `Submit` is answered by exactly one `Done`, once nothing touches its slot any
more; a front end that leaves or talks nonsense costs only its own jobs.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models.deadline import Deadline
from models.errors import InternalError, ServiceError
from models.image import Image
from models.job import Completed, Job, Labels, Lane, Operation, Outcome
from workers import wire
from workers.arena import Arena, Slot
from workers.batch import Batch
from workers.delivery import Ticket
from workers.engine import BatchResult
from workers.wire import Batched, Cancel, Done, Frame, LoadReport, Submit, ToWorker, Welcome
from workers.worker import Worker

log = logging.getLogger("darkroom.host")

HANDSHAKE = 5.0
"""Seconds a front end has to hand its arena over."""


class Host:
    """Lets front ends use one started worker; `on_batch` is the worker's observer."""

    def __init__(self, hear: Callable[[Any], Operation] = wire.operation_heard) -> None:
        self.hear = hear
        self.heard = 0
        self._guests: set[_Guest] = set()

    async def serve(self, listener: socket.socket, worker: Worker[Any], welcome: Welcome) -> None:
        """Accept front ends until cancelled, then hang up on them."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        try:
            async with asyncio.TaskGroup() as admitting:
                while True:
                    connection, _ = await loop.sock_accept(listener)
                    admitting.create_task(self._admit(connection, worker, welcome))
        finally:
            for guest in self._guests:
                guest.protocol.close()
            await asyncio.sleep(0)  # the loop hangs up in its next turn

    def leave(self, guest: "_Guest") -> None:
        """A front end has hung up."""
        self._guests.discard(guest)

    def on_batch(self, batch: Batch, _: BatchResult) -> None:
        """Tell one of the front ends of a finished batch; called on a collect thread."""
        guest, _ = batch.tickets[0].tag
        guest.batched(batch)

    async def _admit(
        self, connection: socket.socket, worker: Worker[Any], welcome: Welcome
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            if not _same_user(connection):
                raise PermissionError("a process of another user")
            arena = await loop.run_in_executor(None, _receive_arena, connection)
        except (OSError, ValueError) as error:
            log.warning("a front end was turned away: %s", error)
            connection.close()
            return
        guest = _Guest(self, worker, arena)
        self._guests.add(guest)
        await loop.create_unix_connection(lambda: guest.protocol, sock=connection)
        guest.protocol.send([welcome])


class _Guest:
    """One front end."""

    def __init__(self, host: Host, worker: Worker[Any], arena: Arena) -> None:
        self._host = host
        self._worker = worker
        self._arena = arena
        self._tickets: dict[int, Ticket] = {}
        self._loop = asyncio.get_running_loop()
        self.protocol = wire.FrameProtocol(wire.TO_WORKER, self._on_frames, self._on_lost)

    def deliver(self, outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
        """The mailbox: fills the slots here, on the worker's thread; writes frames on the loop."""
        frames = [self._done(ticket.tag[1], outcome) for ticket, outcome in outcomes]
        self._loop.call_soon_threadsafe(self._answer, frames)

    def batched(self, batch: Batch) -> None:
        """A micro-batch with a job of this front end is finished."""
        kind = "filter" if isinstance(batch.tickets[0].key[0], tuple) else "classify"
        said = Batched(kind, len(batch.tickets), batch.reason.value)
        self._loop.call_soon_threadsafe(self.protocol.send, [said])

    def _on_frames(self, frames: list[ToWorker]) -> None:
        answers: list[Frame] = []
        for frame in frames:
            if isinstance(frame, Submit):
                answers += self._submit(frame)
            elif (ticket := self._tickets.get(frame.number)) and self._worker.cancel(ticket):
                answers += self._dropped(frame)
        self.protocol.send([self._load(), *answers])

    def _submit(self, frame: Submit) -> list[Frame]:
        """Hand the job to the worker; what cannot be is answered at once."""
        self._host.heard += 1
        lane = Lane.BULK if frame.bulk else Lane.INTERACTIVE
        try:
            pixels = self._arena.pixels(Slot(frame.offset, frame.size), frame.shape)
            operation = self._host.hear(frame.operation)
            job = Job(operation, Image(pixels), Deadline(frame.deadline), lane)
            self._tickets[frame.number] = self._worker.submit(job, self.deliver, (self, frame))
        except ServiceError as error:
            return [Done(frame.number, error=(error.code, error.detail))]
        return []

    def _dropped(self, frame: Cancel) -> list[Frame]:
        del self._tickets[frame.number]
        return [Done(frame.number)]

    def _done(self, asked: Submit, outcome: Outcome) -> Done:
        if not isinstance(outcome, Completed):
            return Done(asked.number, error=(outcome.error.code, outcome.error.detail))
        trace, result = wire.trace_said(outcome.trace), outcome.result
        if isinstance(result, Labels):
            return Done(asked.number, trace, result.class_ids, result.scores)
        shape = (result.height, result.width, result.channels)
        try:
            np.copyto(self._arena.pixels(Slot(asked.offset, asked.size), shape), result.pixels)
        except ValueError:  # the other jobs of the batch are protected
            log.exception("an answer does not fit where its image was")
            return Done(asked.number, error=(InternalError.code, "the answer is too large"))
        return Done(asked.number, trace, shape=shape)

    def _answer(self, frames: list[Done]) -> None:
        for frame in frames:
            self._tickets.pop(frame.number, None)
        self.protocol.send([self._load(), *frames])

    def _load(self) -> LoadReport:
        load = self._worker.load()
        return LoadReport(
            load.queued_jobs, load.queued_pixels, load.running_jobs, load.service_rate
        )

    def _on_lost(self) -> None:
        self._host.leave(self)
        for ticket in self._tickets.values():
            self._worker.cancel(ticket)
        self._tickets.clear()
        self._arena.close()


def _same_user(connection: socket.socket) -> bool:
    """Abstract sockets have no permissions of their own."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


def _receive_arena(connection: socket.socket) -> Arena:
    connection.settimeout(HANDSHAKE)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    if not descriptors:
        raise ValueError("it sent no arena")
    connection.setblocking(False)
    return Arena(descriptors[0])
