"""Jobs and outcomes: an image, an operation, a deadline; a result or an error, as values."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.domain.deadline import NEVER, Deadline
from models.domain.errors import ServiceError
from models.domain.image import Image, Jpeg, Source

_OWN_WORK: ContextVar[bool] = ContextVar("own_work", default=False)
"""Whether the server works for itself, as canaries and the warm-up do: metrics leave it out."""


@contextmanager
def uncounted() -> Iterator[None]:
    """Leave work that begins in the block, also in its tasks, out of metrics, logs and lists."""
    token = _OWN_WORK.set(True)
    try:
        yield
    finally:
        _OWN_WORK.reset(token)


def counts() -> bool:
    """Return whether the present work counts: it is not begun by the server for itself."""
    return not _OWN_WORK.get()


class Lane(Enum):
    """Interactive jobs go before bulk jobs; bulk fills idle slots and, by ageing, never starves.

    A job in the background has the CPU time that nothing else wants; on a GPU it is like bulk.
    """

    INTERACTIVE = "interactive"
    BULK = "bulk"
    BACKGROUND = "background"

    __hash__ = object.__hash__  # that of Enum is a function of Python, and each image asks often


class Operation(Protocol):
    """An operation on an image; `workers.operations` declares the real operations."""

    @property
    def batch_key(self) -> Hashable:
        """Return the batch key: jobs share a micro-batch only if their keys are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """An image, an operation, a deadline.

    `owned`: nothing but this job reads its pixels, so an engine that computes it alone may
    overwrite them. In a batch it must not: the jobs of a batch that failed are computed again.
    A job that is not `counted` is the server's own: metrics leave it out.
    """

    operation: Operation
    image: Source
    deadline: Deadline = NEVER
    lane: Lane = Lane.INTERACTIVE
    owned: bool = False
    counted: bool = field(default_factory=counts)


@dataclass(frozen=True, slots=True)
class Labels:
    """The best classes of an image, best first; `scores` are the result of `function_to_apply`."""

    class_ids: tuple[int, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """The logits or the embedding of an image: float32 (classes,) or (features,)."""

    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Match:
    """A place of a template in an image, in pixels from the top left corner, and its score."""

    x: int
    y: int
    width: int
    height: int
    score: float


Result = Labels | Vector | Image | Jpeg
"""The answer of a job.

A network gives labels or a vector. A chain of filters gives an image, or a JPEG where a GPU has
encoded it.
"""


class ReleaseReason(Enum):
    """The reason for which a micro-batch was released."""

    FULL = "full"
    BUDGET = "budget"
    DELAY = "delay"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Trace:
    """The times of a job on the worker, in seconds, and the micro-batch that it was part of.

    `launched_at` is the moment of the batch's release on the host's monotonic clock, and `batch_id`
    names the batch among all of the server's workers.
    """

    queue: float
    upload: float
    decode: float
    compute: float
    download: float
    batch_size: int
    max_batch_size: int
    reason: ReleaseReason
    launched_at: float = 0.0
    batch_id: str = ""


@dataclass(frozen=True, slots=True)
class Completed:
    """A result and its times."""

    result: Result
    trace: Trace


@dataclass(frozen=True, slots=True)
class Failed:
    """The error of a job; the rest of the batch is not affected."""

    error: ServiceError


Outcome = Completed | Failed
