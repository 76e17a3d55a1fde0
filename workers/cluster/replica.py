"""A replica: a started worker that answers the calls of front ends. It uses no Ray.

Guarantee: every job of a call is answered exactly once, unless the call is cancelled.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

from models.domain.alarms import Alarm, alarms
from models.domain.errors import DeadlineExceeded, InternalError, ServiceError
from models.domain.image import Pixels
from models.domain.job import Failed, Operation, Outcome
from workers.cluster.messages import (
    CALL,
    ENCODER,
    Answer,
    Description,
    Message,
    Number,
    Reply,
    Report,
    Task,
    decode_task,
    encode_answer,
)
from workers.ipc import conversion
from workers.ipc.frames import Done, LoadReport
from workers.scheduling.ticket import Ticket
from workers.scheduling.worker import Worker

log = logging.getLogger("darkroom.replica")


class OpenCall:
    """A call that is being answered: its tickets, and the outcomes that were not sent yet."""

    def __init__(self) -> None:
        self.tickets: dict[int, Ticket] = {}
        self.alarms: dict[int, Alarm] = {}
        self.ended: list[tuple[int, Outcome | None]] = []
        self.changed = asyncio.Event()

    def end(self, number: int, outcome: Outcome | None) -> None:
        """Note the outcome of a job, None if it was cancelled; a later one is ignored."""
        if self.tickets.pop(number, None) is not None:
            self.alarms.pop(number).cancel()
            self.note(number, outcome)

    def note(self, number: int, outcome: Outcome | None) -> None:
        """Send an outcome with the next message."""
        self.ended.append((number, outcome))
        self.changed.set()


class Replica:
    """Answers calls with one started worker; belongs to one event loop.

    `busy_images` keep it busy; `decode` converts operations from values of MessagePack.
    """

    def __init__(
        self,
        worker: Worker[Any],
        name: str,
        description: Description,
        busy_images: int,
        decode: Callable[[Any], Operation] = conversion.decode_operation,
    ) -> None:
        self.worker = worker
        self._name = name
        self._description = ENCODER.encode(description)
        self._identity = description.identity
        self._busy_images = busy_images
        self._decode = decode
        self._sequence = 0
        self._calls: dict[Number, OpenCall] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def compute(self, header: bytes, contents: list[Pixels]) -> AsyncGenerator[Message, None]:
        """Yield a message when the jobs of a call are accepted, then one for jobs that end.

        Jobs that end at the same time share a message.
        """
        self._loop = asyncio.get_running_loop()
        found, call = CALL.decode(header), OpenCall()
        for task, content in zip(found.tasks, contents, strict=True):
            self._submit(call, (found.front_end, task.number), task, content)
        del contents, header
        try:
            yield ENCODER.encode(Reply(self._report(), [])), []
            while call.tickets or call.ended:
                await call.changed.wait()
                call.changed.clear()
                yield self._reply(call)
        finally:  # a call that is cancelled, or whose front end has gone
            for number, ticket in call.tickets.items():
                self.worker.cancel(ticket)
                call.alarms[number].cancel()
                self._calls.pop((found.front_end, number), None)

    async def cancel(self, front_end: str, numbers: Sequence[int]) -> None:
        """Drop the jobs among these that wait here; what is on the device is computed."""
        for number in numbers:
            call = self._calls.get((front_end, number))
            if call is not None and self.worker.cancel(call.tickets[number]):
                self._end(call, (front_end, number), None)

    async def report(self) -> bytes:
        """Return an encoded Report."""
        return ENCODER.encode(self._report())

    async def describe(self) -> bytes:
        """Return an encoded Description."""
        return self._description

    def _submit(self, call: OpenCall, number: Number, task: Task, content: Pixels) -> None:
        """Hand a job to the worker; a job that cannot be accepted ends with its error."""
        try:
            job = decode_task(task, content, self._decode(task.operation), time.monotonic())
            ticket = self.worker.submit(job, self._mailbox, (call, number), alone=task.alone)
        except ServiceError as error:
            call.note(task.number, Failed(error))
            return
        except Exception:  # the other jobs of this call are protected
            log.exception("a job could not be read")
            fault = Failed(InternalError("the job could not be read; it has been logged"))
            call.note(task.number, fault)
            return
        call.tickets[task.number] = ticket
        self._calls[number] = call
        ring = partial(self._expire, call, number)
        call.alarms[task.number] = alarms().set(job.deadline, ring)

    def _mailbox(self, outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
        """Receive outcomes on a thread of the worker."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._deliver, outcomes)

    def _deliver(self, outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
        for ticket, outcome in outcomes:
            call, number = ticket.tag
            self._end(call, number, outcome)

    def _expire(self, call: OpenCall, number: Number) -> None:
        """Answer at the deadline, also for a device that hangs."""
        ticket = call.tickets.get(number[1])
        if ticket is not None:
            self.worker.cancel(ticket)
            late = DeadlineExceeded("the request's deadline passed")
            self._end(call, number, Failed(late))

    def _end(self, call: OpenCall, number: Number, outcome: Outcome | None) -> None:
        self._calls.pop(number, None)
        call.end(number[1], outcome)

    def _reply(self, call: OpenCall) -> Message:
        """Return the message with everything that has ended since the last one."""
        answers: list[Answer] = []
        arrays: list[Pixels] = []
        now = time.monotonic()
        ended, call.ended = call.ended, []
        for number, outcome in ended:
            if outcome is None:
                answers.append(Answer(Done(number), dropped=True))
                continue
            answer, array = encode_answer(number, outcome, now)
            answers.append(answer)
            arrays += array
        return ENCODER.encode(Reply(self._report(), answers)), arrays

    def _report(self) -> Report:
        load = self.worker.load()
        self._sequence += 1
        return Report(
            self._name,
            self._sequence,
            load.device,
            self._identity,
            self._busy_images,
            LoadReport(
                load.queued_jobs,
                load.queued_pixels,
                load.running_jobs,
                load.service_rate,
                load.decoding,
                load.progress,
            ),
        )
