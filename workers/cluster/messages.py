"""The messages between front ends and replicas, in MessagePack, with arrays beside them.

A call carries several jobs: a header of `Task`s, and one uint8 array for each. Ray's own transport
hands arrays over without a copy in Python, its gRPC pickles them. Nothing of ours is pickled but
bytes and arrays, and errors of jobs are values. A fault of the
replica's code itself crosses as Ray's own exception, which Ray pickles (`serve_handle.py`).
Times are budgets and ages in seconds, because the clocks of two hosts differ.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from models.domain.deadline import NEVER, Deadline
from models.domain.image import Image, Pixels
from models.domain.job import Completed, Failed, Job, Labels, Lane, Outcome, Result, Vector
from workers.ipc import conversion
from workers.ipc.encoded_network import EncodedNetwork
from workers.ipc.frames import Done, EncodedJpeg, LoadReport, Shape

Number = tuple[str, int]
"""A job's identity: the name of its front end, and its number there."""


class Task(msgspec.Struct, frozen=True, array_like=True):
    """A job; its array has this `shape`, or with `jpeg` it is a file of (bytes, 1, 1).

    `budget` is the time left until its deadline, None without one. A job that is `alone` shares the
    device with no other, because replicas were lost that held it.
    """

    number: int
    operation: Any
    shape: Shape
    jpeg: EncodedJpeg | None
    budget: float | None
    lane: str
    alone: bool
    counted: bool = True


class Call(msgspec.Struct, frozen=True, array_like=True):
    """Several jobs of one front end."""

    front_end: str
    tasks: list[Task]


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The state of a replica; of two reports the one with the higher `sequence` is newer.

    `busy_images` keep it busy. `identity` is equal for replicas with the same networks and weights.
    """

    replica: str
    sequence: int
    device: str
    identity: str
    busy_images: int
    load: LoadReport


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a job; `age` is the time since its batch was launched.

    `has_array`: the next array of the message belongs to it. `dropped`: it was cancelled.
    """

    done: Done
    age: float = 0.0
    has_array: bool = False
    dropped: bool = False


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """A message of a replica to a call: its state, and the jobs that have ended since the last one.

    The first message of a call has no answers and says that its jobs were accepted.
    """

    report: Report
    answers: list[Answer]


class Description(msgspec.Struct, frozen=True, array_like=True):
    """A replica's networks, default first, why it is degraded, and its largest batch."""

    networks: list[EncodedNetwork]
    degraded: str | None
    max_batch_size: int

    @property
    def identity(self) -> str:
        """Return a text that differs where networks, weights or labels do."""
        found = repr([each.identity for each in self.networks])
        return hashlib.sha256(found.encode()).hexdigest()[:16]


ENCODER = msgspec.msgpack.Encoder()
CALL: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)
REPLY: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
REPORT: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
DESCRIPTION: msgspec.msgpack.Decoder[Description] = msgspec.msgpack.Decoder(Description)

Message = tuple[bytes, list[Pixels]]
"""A header and the arrays that belong to it."""


def encode_task(
    number: int, job: Job, operation: object, now: float, *, alone: bool
) -> tuple[Task, Pixels]:
    """Return a job and its array; `operation` is converted already."""
    shape, jpeg = conversion.encode_source(job.image)
    content = job.image.pixels if isinstance(job.image, Image) else job.image.data
    budget = None if job.deadline.alarm is None else job.deadline.remaining(now)
    lane, counted = job.lane.value, job.counted
    task = Task(number, operation, shape, jpeg, budget, lane, alone, counted)
    return task, content


def decode_task(task: Task, content: Pixels, operation: Any, now: float) -> Job:
    """Return a job with a deadline on this host's clock.

    Arrays of Ray's own transport cannot be written to, so it is not `owned`.
    """
    source = conversion.decode_input(content.reshape(task.shape), task.jpeg, operation)
    deadline = NEVER if task.budget is None else Deadline.after(task.budget, now)
    lane = Lane(task.lane)
    return Job(operation, source, deadline, lane, False, task.counted)


def encode_answer(number: int, outcome: Outcome, now: float) -> tuple[Answer, list[Pixels]]:
    """Return an outcome, and its array if it has one."""
    if isinstance(outcome, Failed):
        return Answer(Done(number, error=conversion.encode_error(outcome.error))), []
    trace, age = conversion.encode_trace(outcome.trace), now - outcome.trace.launched_at
    result = outcome.result
    if isinstance(result, Labels):
        return Answer(Done(number, trace, result.class_ids, result.scores), age), []
    if isinstance(result, Vector):
        return Answer(Done(number, trace, vector=result.values.tobytes()), age), []
    shape, jpeg = conversion.encode_source(result)
    array = result.pixels if isinstance(result, Image) else result.data
    return Answer(Done(number, trace, shape=shape, jpeg=jpeg), age, has_array=True), [array]


def decode_answer(answer: Answer, array: Pixels | None, now: float) -> Outcome:
    """Return an outcome whose batch was launched at a moment of this host's clock."""
    done = answer.done
    if done.error is not None:
        return Failed(conversion.decode_error(done.error))
    assert done.trace is not None
    result: Result = Labels(done.class_ids, done.scores)
    if done.vector is not None:
        result = Vector(np.frombuffer(done.vector, np.float32))
    elif array is not None:
        assert done.shape is not None
        result = conversion.decode_source(array.reshape(done.shape), done.jpeg)
    launched_at = now - answer.age
    times = (*done.trace[:8], launched_at, done.trace[9])
    return Completed(result, conversion.decode_trace(times))


def arrays_of(answers: Sequence[Answer], arrays: Sequence[Pixels]) -> list[Pixels | None]:
    """Return the array of each answer, or None."""
    left = iter(arrays)
    return [next(left) if each.has_array else None for each in answers]
