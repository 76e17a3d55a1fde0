"""Convert a front end's job to a frame and bytes in its slot, and a worker's answer to an
outcome.
"""

import math
from collections.abc import Callable

import numpy as np

from models.domain.job import (
    Completed,
    Failed,
    Job,
    Labels,
    Operation,
    Outcome,
    Result,
    Vector,
)
from workers.ipc import conversion
from workers.ipc.arena_slots import ArenaSlots
from workers.ipc.frames import Done, Submit
from workers.ipc.pending import Pending
from workers.operations import FilterChain

MAX_CHANNELS = 4
"""Channels of the largest answer: a filter writes it over its image, and it may have more."""


def bytes_for(job: Job) -> int:
    """Return the bytes for the job's image or file, and for a filter's answer in its place."""
    n_bytes = conversion.content_of(job.image).nbytes
    if not isinstance(job.operation, FilterChain):
        return n_bytes
    size = job.operation.size_after(job.image.height, job.image.width)
    return max(n_bytes, math.prod(size) * MAX_CHANNELS)


def frame_of(pending: Pending, encode: Callable[[Operation], object]) -> Submit:
    """Return the frame for a job; `encode` converts its operation to values for MessagePack."""
    job, slot = pending.job, pending.slot
    assert slot is not None
    shape, jpeg = conversion.encode_source(job.image)
    return Submit(
        pending.number,
        slot.offset,
        slot.size,
        shape,
        encode(job.operation),
        job.deadline.at,
        job.lane._value_,
        jpeg,
        pending.alone,
        job.counted,
    )


def outcome_of(slots: ArenaSlots, pending: Pending, done: Done) -> Outcome:
    """Return a copy of a worker's answer."""
    if done.error is not None:
        return Failed(conversion.decode_error(done.error))
    assert done.trace is not None
    result: Result = Labels(done.class_ids, done.scores)
    if done.vector is not None:
        result = Vector(np.frombuffer(done.vector, np.float32))
    elif done.shape is not None:
        lying = slots.read(pending, done.shape)
        result = conversion.decode_source(lying, done.jpeg)
    return Completed(result, conversion.decode_trace(done.trace))
