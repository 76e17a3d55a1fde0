"""Fakes that pass the same contracts as the real things."""

import queue
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from models.errors import ServiceError
from models.job import Job, Labels, Result
from workers.engine import BatchResult


@dataclass(frozen=True, slots=True)
class FakeOperation:
    """An operation with a batch key and nothing else."""

    key: str

    @property
    def batch_key(self) -> Hashable:
        return self.key


@dataclass(slots=True, eq=False)
class FakeSlot:
    """A staging slot that remembers its batch."""

    jobs: Sequence[Job] = ()


def first_pixel(job: Job) -> Result | ServiceError:
    """The default answer: the image's first sample as class id, so that answers can be told apart."""
    return Labels((int(job.image.pixels[0, 0, 0]),), (1.0,))


@dataclass(eq=False)
class FakeEngine:
    """Answers each job by `answer`, which may raise; records the batches it was given."""

    slots: int = 2
    answer: Callable[[Job], Result | ServiceError] = first_pixel
    on_launch: Callable[[Sequence[Job]], None] = lambda jobs: None
    on_collect: Callable[[Sequence[Job]], None] = lambda jobs: None
    device: str = "fake"
    keep: bool = False
    batches: list[Sequence[Job]] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self._free: queue.SimpleQueue[FakeSlot | None] = queue.SimpleQueue()
        for _ in range(self.slots):
            self._free.put(FakeSlot())

    def acquire(self) -> FakeSlot | None:
        slot = self._free.get()
        if slot is None:
            self._free.put(None)
        return slot

    def launch(self, slot: FakeSlot, jobs: Sequence[Job]) -> None:
        if self.keep:
            self.batches.append(tuple(jobs))
        self.on_launch(jobs)
        slot.jobs = jobs

    def collect(self, slot: FakeSlot) -> BatchResult:
        self.on_collect(slot.jobs)
        return BatchResult([self.answer(job) for job in slot.jobs], 0.0, 0.0, 0.0)

    def release(self, slot: FakeSlot) -> None:
        slot.jobs = ()
        self._free.put(slot)

    def warm_up(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        self._free.put(None)
