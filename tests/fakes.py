"""Fakes that pass the same contract tests as the real implementations."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.api.schemas import ModelRecord
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import ServiceError
from models.domain.image import Image, Jpeg, Pixels, Subsampling
from models.domain.job import Completed, Failed, Job, Labels, Lane, Outcome, Result
from models.labels import LabelSet
from models.networks.served import Model, ServedNetwork
from workers.operations import Classify
from workers.scheduling.engine import BatchResult, Engine, SlotT
from workers.scheduling.ticket import Ticket

GUARD = 60.0
"""Seconds after which a test that waits for a thread fails; no passing test ever waits for it."""


class FakeClock:
    """A clock in seconds that advances only when a test says so."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def fake_job(
    number: int = 0,
    key: str = "a",
    lane: Lane = Lane.INTERACTIVE,
    deadline: Deadline = NEVER,
    n_pixels: int = 1,
) -> Job:
    """Return a job whose image's first sample is `number`, from 0 to 255."""
    image = Image(np.full((1, n_pixels, 1), number, np.uint8))
    return Job(Classify(network=key), image, deadline, lane)


def fake_jpeg(number: int, n_bytes: int = 5000) -> Job:
    """Return a job whose image is a file that begins with `number` and ends with 255 - `number`."""
    data = np.full(n_bytes, number, np.uint8)
    data[-1] = 255 - number
    return Job(Classify(network="a"), Jpeg(data, 30, 20, 6, Subsampling.S420, b"s"))


def number_of(job: Job) -> int:
    """Return the number of a fake job."""
    if isinstance(job.image, Jpeg):
        return int(job.image.data[0])
    assert isinstance(job.image, Image)
    return int(job.image.pixels[0, 0, 0])


def run_batch(engine: Engine[SlotT], jobs: Sequence[Job]) -> BatchResult:
    """Run one batch through an engine, real or fake."""
    slot = engine.acquire()
    assert slot is not None
    try:
        engine.launch(slot, jobs)
        return engine.collect(slot)
    finally:
        engine.release(slot)


def fake_network(*labels: str, name: str = "resnet18", **members: object) -> ServedNetwork:
    """Return a network with random weights and these labels; `members` are those of its record."""
    given: dict[str, object] = {"name": "fake", "sha256": "", "label_set": "fake", "random": True}
    given |= {"preprocessing": 1, "precision": "fp32", "device": "fake", "n_classes": len(labels)}
    record = ModelRecord.model_validate(given | members)
    model = Model(record, LabelSet("fake", labels, (None,) * len(labels)))
    return ServedNetwork(name, model, side=224, features=512)


class Gate:
    """A point at which threads wait until a test opens it; it fits any `on_…` hook of
    FakeEngine.
    """

    def __init__(self, is_open: bool = False) -> None:
        self._open = threading.Event()
        self._reached = threading.Semaphore(0)
        if is_open:
            self._open.set()

    def __call__(self, _jobs: Sequence[Job] = ()) -> None:
        self._reached.release()
        assert self._open.wait(GUARD), "the gate was never opened"

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def wait_reached(self) -> None:
        """Wait until one more thread has reached the gate."""
        assert self._reached.acquire(timeout=GUARD), "nobody came to the gate"


class Inbox:
    """A mailbox that keeps what arrives; `calls` are the sizes of the deliveries."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._outcomes: dict[Ticket, list[Outcome]] = {}
        self._arrived = threading.Condition()

    def __call__(self, outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
        with self._arrived:
            self.calls.append(len(outcomes))
            for ticket, outcome in outcomes:
                self._outcomes.setdefault(ticket, []).append(outcome)
            self._arrived.notify_all()

    def all_of(self, ticket: Ticket) -> list[Outcome]:
        """Return every outcome that came for a ticket so far; more than one is a fault."""
        with self._arrived:
            return list(self._outcomes.get(ticket, ()))

    def outcome_of(self, ticket: Ticket) -> Outcome:
        """Wait for the one outcome of a ticket and return it."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: ticket in self._outcomes, GUARD), "no outcome"
            (outcome,) = self._outcomes[ticket]
        return outcome

    def answer_of(self, ticket: Ticket) -> int:
        """Wait for the number that came back for a ticket and return it."""
        outcome = self.outcome_of(ticket)
        assert isinstance(outcome, Completed), outcome
        assert isinstance(outcome.result, Labels)
        return outcome.result.class_ids[0]

    def error_of(self, ticket: Ticket) -> ServiceError:
        """Wait for the error that came back for a ticket and return it."""
        outcome = self.outcome_of(ticket)
        assert isinstance(outcome, Failed), outcome
        return outcome.error


@dataclass(slots=True, eq=False)
class FakeSlot:
    """A staging slot that keeps its batch."""

    jobs: Sequence[Job] = ()


def first_sample(job: Job) -> Result | ServiceError:
    """Return the default answer: the image's first sample as class id, which identifies the job."""
    return Labels((number_of(job),), (1.0,))


@dataclass(eq=False)
class FakeEngine:
    """An engine that answers each job by `answer`, which may raise.

    With `keep` it records the batches that it was given, and in `seen` the numbers of their jobs.
    The hooks run on the thread that calls `launch` or `collect`; they may block or raise. `lose`
    makes the engine faulty: that many values of each batch are missing.
    """

    slots: int = 2
    answer: Callable[[Job], Result | ServiceError] = first_sample
    on_launch: Callable[[Sequence[Job]], None] = lambda _jobs: None
    on_collect: Callable[[Sequence[Job]], None] = lambda _jobs: None
    device: str = "fake"
    takes_jpegs: bool = False
    collectors: int = 1
    keep: bool = False
    lose: int = 0
    batches: list[Sequence[Job]] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self._free: queue.SimpleQueue[FakeSlot | None] = queue.SimpleQueue()
        for _ in range(self.slots):
            self._free.put(FakeSlot())

    def share(self, memory: Pixels, n_bytes: int) -> None:
        pass

    def acquire(self) -> FakeSlot | None:
        slot = self._free.get()
        if slot is None:
            self._free.put(None)
        return slot

    def launch(self, slot: FakeSlot, jobs: Sequence[Job]) -> None:
        if self.keep:
            self.batches.append(tuple(jobs))
            self.seen += map(number_of, jobs)
        self.on_launch(jobs)
        slot.jobs = jobs

    def collect(self, slot: FakeSlot) -> BatchResult:
        self.on_collect(slot.jobs)
        return BatchResult([self.answer(job) for job in slot.jobs[self.lose :]], 0.0, 0.0, 0.0)

    def release(self, slot: FakeSlot) -> None:
        slot.jobs = ()
        self._free.put(slot)

    def warm_up(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        self._free.put(None)
