"""The micro-batcher against a plain model, over random schedules."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.domain.deadline import NEVER, Deadline
from models.domain.job import Lane, ReleaseReason
from tests.fakes import fake_job
from workers.scheduling.batcher import BatchLimits, MicroBatcher
from workers.scheduling.ticket import Ticket

SIZES = st.integers(1, 4)
STEPS = st.integers(1, 8).map(lambda quarters: quarters / 4)


def expired(ticket: Ticket, now: float) -> bool:
    return ticket.job.deadline.expired(now)


class Schedule(RuleBasedStateMachine):
    """`waiting` is every accepted job that has not ended, in order of arrival; times are exact."""

    @initialize(size=SIZES, pixels=st.integers(1, 12), delay=st.sampled_from([0.0, 0.5, 2.0]))
    def begin(self, size: int, pixels: int, delay: float) -> None:
        self.limits = BatchLimits(size, pixels, delay, ageing=1.5)
        self.batcher = MicroBatcher(self.limits)
        self.now = 100.0
        self.waiting: list[Ticket] = []
        self.ended: list[Ticket] = []

    @rule(
        key=st.sampled_from("ab"),
        lane=st.sampled_from(Lane),
        pixels=st.integers(1, 8),
        seconds=st.none() | st.integers(0, 8),
    )
    def add(self, key: str, lane: Lane, pixels: int, seconds: int | None) -> None:
        deadline = NEVER if seconds is None else Deadline(self.now + seconds / 2)
        ticket = Ticket(fake_job(0, key, lane, deadline, pixels), lambda _outcomes: None)
        self.batcher.add(ticket, self.now)
        self.waiting.append(ticket)

    @rule(seconds=STEPS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel_one_that_waits(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.waiting))
        self.batcher.cancel(ticket)
        self.end([ticket])

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def cancel_one_that_ended(self, data: st.DataObject) -> None:
        self.batcher.cancel(data.draw(st.sampled_from(self.ended)))

    @rule()
    def pick(self) -> None:
        lanes = self.lanes()
        picked = self.batcher.pick(self.now)
        assert all(expired(t, self.now) for t in picked.dropped)
        self.end(picked.dropped)
        ripe = [lane for lane in lanes if self.is_ripe(lane)]
        if not picked.batch:
            delay = self.limits.max_queue_delay
            assert not ripe
            assert picked.wake_at == min((t[0].enqueued_at + delay for t in lanes), default=None)
            return
        (lane,) = (lane for lane in ripe if lane[0] is picked.batch[0])
        assert self.rank(lane) == min(map(self.rank, ripe))
        assert picked.batch == self.batch_of(lane, picked.reason)
        self.end(picked.batch)

    def lanes(self) -> list[list[Ticket]]:
        """Return the lanes with a living job, from their oldest living job on."""
        lanes: dict[object, list[Ticket]] = {}
        for ticket in self.waiting:
            lane = lanes.setdefault((ticket.job.operation.batch_key, ticket.job.lane), [])
            if lane or not expired(ticket, self.now):
                lane.append(ticket)
        return [lane for lane in lanes.values() if lane]

    def is_ripe(self, lane: list[Ticket]) -> bool:
        waited = self.now - lane[0].enqueued_at
        return (
            waited >= self.limits.max_queue_delay
            or len(lane) >= self.limits.max_batch_size
            or sum(t.pixels for t in lane) >= self.limits.max_batch_pixels
        )

    def rank(self, lane: list[Ticket]) -> tuple[bool, float]:
        fresh = self.now - lane[0].enqueued_at < self.limits.ageing
        return (lane[0].job.lane is not Lane.INTERACTIVE and fresh, lane[0].enqueued_at)

    def batch_of(self, lane: list[Ticket], reason: ReleaseReason) -> list[Ticket]:
        """Return the longest run of living jobs within both limits; never less than one."""
        batch: list[Ticket] = []
        for ticket in (t for t in lane if not expired(t, self.now)):
            over = sum(t.pixels for t in [*batch, ticket]) > self.limits.max_batch_pixels
            if len(batch) == self.limits.max_batch_size or (batch and over):
                break
            batch.append(ticket)
        assert (reason is ReleaseReason.FULL) == (len(batch) == self.limits.max_batch_size)
        return batch

    def end(self, tickets: list[Ticket]) -> None:
        """End a job that waits: no job ends twice."""
        for ticket in tickets:
            self.waiting.remove(ticket)
            self.ended.append(ticket)

    @invariant()
    def the_counts_are_those_of_the_waiting(self) -> None:
        assert self.batcher.queued_jobs == len(self.waiting)

    def teardown(self) -> None:
        """Check that every job ends within one pick each, whatever happened before."""
        if hasattr(self, "batcher"):
            self.now += self.limits.max_queue_delay
            for _ in range(len(self.waiting)):
                self.pick()
            assert not self.waiting


TestSchedule = Schedule.TestCase
TestSchedule.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    phases=set(Phase) - {Phase.explain},  # it traces every line, which takes minutes
)
