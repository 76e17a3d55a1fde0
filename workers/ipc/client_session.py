"""A worker's session with one front end: the arena, the jobs, and the messages to it.

Guarantee: every `Submit` is answered by exactly one `Done`, after the last access to its slot, or
by the end of this process.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models.domain.deadline import Deadline
from models.domain.errors import InternalError, ServiceError
from models.domain.image import Image
from models.domain.job import Completed, Job, Labels, Lane, Operation, Outcome, Vector
from workers.ipc import conversion
from workers.ipc.arena import Arena, ArenaSlot
from workers.ipc.frame_protocol import FrameProtocol
from workers.ipc.frames import (
    TO_WORKER,
    Batched,
    Cancel,
    Done,
    Frame,
    LoadReport,
    Submit,
    ToWorker,
)
from workers.operations import kind_of
from workers.scheduling.batch import Batch
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

    def report(self, *, always: bool = False) -> None:
        """Report the load of the worker, if it has changed or `always`."""
        if always or self._load() != self._reported:
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
