"""A worker's side of the sockets: any number of front ends hand jobs in, each through its arena.

Guarantees: every `Submit` is answered by exactly one `Done`, once nothing touches its slot any
more; a front end that leaves or talks nonsense costs only its own jobs.
"""

import asyncio
import functools
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models.deadline import Deadline
from models.errors import InternalError, ServiceError
from models.image import Image
from models.job import Completed, Job, Labels, Lane, Operation, Outcome
from workers import translation, wire
from workers.arena import Arena, Slot
from workers.batch import Batch
from workers.delivery import Ticket
from workers.engine import BatchResult
from workers.pair import AnyWorker
from workers.wire import Batched, Cancel, Done, Frame, LoadReport, Submit, ToWorker, Welcome

log = logging.getLogger("darkroom.host")

PAUSE = 0.1
"""Seconds between two looks at the load, or two tries to accept."""

HANDSHAKE = 5.0
"""Seconds a front end has to hand its arena over."""


class Host:
    """Lets front ends use one started worker; `on_batch` is the worker's observer."""

    def __init__(self, hear: Callable[[Any], Operation] = translation.operation_heard) -> None:
        self.hear = hear
        self.heard = 0
        self._guests: set[_Guest] = set()

    async def serve(self, listener: socket.socket, worker: AnyWorker, welcome: Welcome) -> None:
        """Accept front ends until cancelled, then hang up on them."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        try:
            async with asyncio.TaskGroup() as admitting:
                admitting.create_task(self._keep_telling())
                while True:
                    try:
                        connection, _ = await loop.sock_accept(listener)
                    except OSError as error:  # too many open files, say
                        log.error("no front end can be let in: %s", error)
                        await asyncio.sleep(PAUSE)
                        continue
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

    async def _keep_telling(self) -> None:
        """How busy the worker is changes without a word from a front end, too."""
        while True:
            await asyncio.sleep(PAUSE)
            for guest in self._guests:
                guest.tell()

    async def _admit(self, connection: socket.socket, worker: AnyWorker, welcome: Welcome) -> None:
        try:
            if not wire.same_user(connection):
                raise PermissionError("a process of another user")
            guest = _Guest(self, worker, await _received_arena(connection))
            self._guests.add(guest)
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: guest.protocol, sock=connection)
        except Exception as error:  # the other front ends are protected
            log.warning("a front end was turned away: %s", error)
            connection.close()
            return
        guest.protocol.send([welcome])


class _Guest:
    """One front end."""

    def __init__(self, host: Host, worker: AnyWorker, arena: Arena) -> None:
        self._host = host
        self._worker = worker
        self._arena = arena
        self._tickets: dict[int, Ticket] = {}
        self._loop = asyncio.get_running_loop()
        self._broken = False
        self._told: LoadReport | None = None
        self.protocol = wire.FrameProtocol(
            wire.TO_WORKER, self._on_frames, self._on_lost, self._on_broken
        )

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
        if answers:
            self._say(answers)

    def _submit(self, frame: Submit) -> list[Frame]:
        """Hand the job to the worker; what cannot be is answered at once."""
        self._host.heard += 1
        lane = Lane.BULK if frame.bulk else Lane.INTERACTIVE
        try:
            pixels = self._arena.pixels(Slot(frame.offset, frame.size), frame.shape)
            operation = self._host.hear(frame.operation)
            source = translation.source_heard(pixels, frame.jpeg)
            job = Job(operation, source, Deadline(frame.deadline), lane)
            mark = functools.partial(self._arena.mark, Slot(frame.offset, frame.size), True)
            self._tickets[frame.number] = self._worker.submit(
                job, self.deliver, (self, frame), mark, frame.alone
            )
        except ServiceError as error:
            return [Done(frame.number, error=translation.error_said(error))]
        except Exception:  # the other jobs of this front end are protected
            log.exception("a job could not be read")
            fault = InternalError("the job could not be read")
            return [Done(frame.number, error=translation.error_said(fault))]
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
            return Done(asked.number, error=translation.error_said(fault))

    def _told_of(self, asked: Submit, outcome: Outcome) -> Done:
        if not isinstance(outcome, Completed):
            return Done(asked.number, error=translation.error_said(outcome.error))
        trace, result = translation.trace_said(outcome.trace), outcome.result
        if isinstance(result, Labels):
            return Done(asked.number, trace, result.class_ids, result.scores)
        shape, jpeg = translation.source_said(result)
        content = result.pixels if isinstance(result, Image) else result.data.reshape(shape)
        np.copyto(self._arena.pixels(Slot(asked.offset, asked.size), shape), content)
        return Done(asked.number, trace, shape=shape, jpeg=jpeg)

    def _answer(self, frames: list[Done]) -> None:
        for frame in frames:
            self._tickets.pop(frame.number, None)
        self._say(frames)
        if self._broken and not self._tickets:
            self.protocol.close()

    def tell(self) -> None:
        """How busy the worker is, if that is news."""
        if self._load() != self._told:
            self._say([])

    def _say(self, answers: Sequence[Frame]) -> None:
        """Answers, and how busy the worker is."""
        if self.protocol.behind:
            self.protocol.send(answers)
        else:
            self._told = self._load()
            self.protocol.send([self._told, *answers])

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
        """Hang up, but not before nothing here uses the arena any more."""
        log.error("a front end said what cannot be read: %s", error)
        self._broken = True
        self._give_up()
        if not self._tickets:
            self.protocol.close()

    def _on_lost(self) -> None:
        self._host.leave(self)
        self._give_up()
        self._arena.close()

    def _give_up(self) -> None:
        """Its jobs that wait are dropped; those on the device end there."""
        waiting = [n for n, ticket in self._tickets.items() if self._worker.cancel(ticket)]
        for number in waiting:
            del self._tickets[number]


async def _received_arena(connection: socket.socket) -> Arena:
    """The arena whose descriptor is a front end's first word."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    connection.setblocking(False)
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
