"""Put the jobs of a front end into calls: one call for many jobs, without waiting for them."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from models.domain.image import Image
from models.domain.job import Job, Outcome
from workers.operations import most_result_bytes

MATES = 0.005
"""Seconds that a job waits for others while another call has not been accepted by a replica.

A call costs a millisecond of CPU time, whatever it carries. Jobs of one request are decoded one
after the other, so they come apart; while a call is on its way they gather for the next one.
"""

MOST_BYTES = 16 << 20
"""Bytes of a call with more than one job: a replica that is lost loses no more than that."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A replica was lost, or left, before it answered; `died`: its jobs may be the cause."""

    died: bool


@dataclass(eq=False, slots=True)
class Pending:
    """A job that waits for its outcome; `losses` counts the replicas that died with it."""

    number: int
    job: Job
    waiter: "asyncio.Future[Outcome | Lost]"
    losses: int = 0

    @property
    def alone(self) -> bool:
        """Return whether it shares neither its call nor the device with other jobs."""
        return self.losses > 1

    @property
    def n_bytes(self) -> int:
        """Return the bytes that travel."""
        image = self.job.image
        return (image.pixels if isinstance(image, Image) else image.data).nbytes


@dataclass(eq=False, slots=True)
class Group:
    """The jobs of a call, by their numbers, as far as they are not answered; `accepted` by a
    replica.
    """

    jobs: dict[int, Pending]
    accepted: bool = False

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the images, or those of all results if they may have more."""
        jobs = self.jobs.values()
        results = sum([most_result_bytes(each.job) for each in jobs])
        return max(sum([each.n_bytes for each in jobs]), results)

    @property
    def unwanted(self) -> bool:
        """Return whether no replica has it, and the callers of all its jobs have left."""
        return not self.accepted and all([each.waiter.done() for each in self.jobs.values()])


@dataclass(eq=False, slots=True)
class Outgoing:
    """The jobs that no call carries yet; `send` starts a call for some of them.

    `size` is the largest number of jobs in a call. `on_the_way` counts the calls that no replica
    has accepted yet.
    """

    send: Callable[[Group], None]
    size: int = 16
    waiting: "deque[Pending]" = field(default_factory=deque)
    on_the_way: int = 0
    _timer: asyncio.TimerHandle | asyncio.Handle | None = None

    def add(self, pending: Pending) -> None:
        """Send a job soon."""
        self.waiting.append(pending)
        if len(self.waiting) >= self.size:
            self._flush()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            later = self.on_the_way > 0
            self._timer = (
                loop.call_later(MATES, self._flush) if later else loop.call_soon(self._flush)
            )

    def accepted(self) -> None:
        """Note that a replica has accepted a call, or that it was given up."""
        self.on_the_way -= 1
        if self.waiting and not self.on_the_way:
            self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while jobs := self._next():
            self.on_the_way += 1
            self.send(Group({each.number: each for each in jobs}))

    def _next(self) -> list[Pending]:
        """Return the jobs of the next call; those whose callers have left are omitted."""
        group: list[Pending] = []
        n_bytes = 0
        while self.waiting and len(group) < self.size:
            pending = self.waiting[0]
            if pending.waiter.done():
                self.waiting.popleft()
                continue
            n_bytes += pending.n_bytes
            if group and (n_bytes > MOST_BYTES or pending.alone):
                break
            group.append(self.waiting.popleft())
            if pending.alone:
                break
        return group
