"""The worker's threads under random schedules: whatever happens, every accepted job ends once."""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from models.domain.deadline import NEVER, Deadline
from models.domain.errors import DeadlineExceeded, InternalError
from models.domain.job import Completed, Failed, Job, Labels, Lane
from tests.fakes import GUARD, FakeClock, FakeEngine, Inbox, fake_job, number_of
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.ticket import Ticket
from workers.scheduling.worker import Worker

BREAKS_LAUNCH = 250
BREAKS_COLLECT = 251
SUSPECT = 249
"""The number of a job that must be alone on the device."""


class Submit(NamedTuple):
    """One job; `seconds` to its deadline, None for none."""

    number: int
    key: str
    lane: Lane
    n_pixels: int
    seconds: int | None


Step = Submit | tuple[Literal["cancel", "collect", "tick"], int]
"""A job that comes; the cancellation of an earlier one; a batch that ends; a second that passes."""

submits = st.builds(
    Submit,
    st.sampled_from([0, 1, 2, 3, SUSPECT, BREAKS_LAUNCH, BREAKS_COLLECT]),
    st.sampled_from("ab"),
    st.sampled_from(Lane),
    st.integers(1, 6),
    st.none() | st.integers(0, 3),
)
steps = st.lists(
    st.one_of(
        submits,
        submits,
        st.tuples(st.just("cancel"), st.integers(1, 5)),
        st.just(("collect", 1)),
        st.just(("tick", 1)),
    ),
    max_size=40,
)
limits = st.builds(BatchLimits, st.integers(1, 5), st.integers(1, 12))


class Device:
    """A fake engine's hooks: checks every batch it is given, and collects when told."""

    def __init__(self, limits: BatchLimits) -> None:
        self.faults: list[str] = []
        self.finish = threading.Semaphore(0)
        self._limits = limits
        self._running: dict[int, Sequence[Job]] = {}
        self._lock = threading.Lock()

    def on_launch(self, jobs: Sequence[Job]) -> None:
        pixels = sum(job.image.n_pixels for job in jobs)
        if len({(job.operation.batch_key, job.lane) for job in jobs}) != 1:
            self.faults.append("jobs of two lanes in one batch")
        if len(jobs) > self._limits.max_batch_size:
            self.faults.append("too many jobs")
        if len(jobs) > 1 and pixels > self._limits.max_batch_pixels:
            self.faults.append("too many pixels")
        if BREAKS_LAUNCH in map(number_of, jobs):
            raise RuntimeError("launch")
        with self._lock:
            self._running[id(jobs)] = jobs
            numbers = [number_of(job) for batch in self._running.values() for job in batch]
        if SUSPECT in numbers and len(numbers) > 1:
            self.faults.append("a job beside a suspect")

    def on_collect(self, jobs: Sequence[Job]) -> None:
        if not self.finish.acquire(timeout=GUARD):
            self.faults.append("nobody let the device finish")
        with self._lock:
            del self._running[id(jobs)]
        if BREAKS_COLLECT in map(number_of, jobs):
            raise RuntimeError("collect")


def check(ticket: Ticket, inbox: Inbox) -> None:
    """Check that each job has one outcome of the right kind; a cancelled job has at most one."""
    outcomes = inbox.all_of(ticket)
    if ticket.cancelled and not outcomes:
        return
    (outcome,) = outcomes
    number = number_of(ticket.job)
    if isinstance(outcome, Completed):
        assert outcome.result == Labels((number,), (1.0,))
        assert ticket.enqueued_at + outcome.trace.queue < ticket.job.deadline.at
    elif isinstance(outcome, Failed) and isinstance(outcome.error, DeadlineExceeded):
        assert ticket.job.deadline is not NEVER
    else:
        assert isinstance(outcome.error, InternalError)
        assert number in (BREAKS_LAUNCH, BREAKS_COLLECT)


@settings(max_examples=200, deadline=None)
@given(slots=st.integers(1, 3), background=st.booleans(), limits=limits, steps=steps)
def test_every_accepted_job_ends_exactly_once(
    slots: int, background: bool, limits: BatchLimits, steps: list[Step]
) -> None:
    clock, inbox = FakeClock(), Inbox()
    device = Device(limits)
    make = partial(FakeEngine, slots, on_launch=device.on_launch, on_collect=device.on_collect)
    worker = Worker(make(), limits, clock=clock, background=make() if background else None)
    worker.start()
    tickets: list[Ticket] = []
    for step in steps:
        if isinstance(step, Submit):
            deadline = NEVER if step.seconds is None else Deadline(clock.now + step.seconds)
            job = fake_job(step.number, step.key, step.lane, deadline, step.n_pixels)
            tickets.append(worker.submit(job, inbox, alone=step.number == SUSPECT))
        elif step[0] == "collect":
            device.finish.release()
        elif step[0] == "tick":
            clock.advance(1.0)
        elif len(tickets) >= step[1]:
            worker.cancel(tickets[-step[1]])
    device.finish.release(4 * len(tickets) + 1)
    worker.stop(GUARD)
    assert device.faults == []
    for ticket in tickets:
        check(ticket, inbox)
    load = worker.load()
    assert (load.queued_jobs, load.running_jobs) == (0, 0)
