"""A worker on a CPU: as many batches side by side as it has cores, by the real batcher."""

from collections.abc import Callable
from dataclasses import dataclass

from tools.scale.simulation.clock import Clock
from workers.scheduling.batcher import BatchLimits, MicroBatcher
from workers.scheduling.ticket import Ticket

CROWDED = 0.5
"""Seconds after two batches ran side by side in which none is spread over all cores, as in
`workers/engines/cpu/engine.py`."""


@dataclass(frozen=True, slots=True)
class CpuCosts:
    """Seconds of a worker with `cores` cores: `batch` once, `image` for each while all are busy."""

    batch: float
    image: float
    cores: int = 2


class CpuWorker:
    """Computes batches; `slowness` multiplies its times, and `stop` loses what it holds."""

    __slots__ = (
        "_busy",
        "_clock",
        "_costs",
        "_crowded_until",
        "_done",
        "_epoch",
        "_wakes_at",
        "batcher",
        "batches",
        "images",
        "number",
        "running",
        "slowness",
        "up",
    )

    def __init__(
        self,
        number: int,
        clock: Clock,
        costs: CpuCosts,
        limits: BatchLimits,
        done: Callable[["CpuWorker", list[Ticket], list[Ticket], float], None],
    ) -> None:
        self.number, self._clock, self._costs, self._done = number, clock, costs, done
        self.batcher = MicroBatcher(limits)
        self.running: dict[int, list[Ticket]] = {}
        self.slowness, self.up = 1.0, True
        self._busy = self._epoch = self.batches = self.images = 0
        self._crowded_until = self._wakes_at = -1.0

    def add(self, job: Ticket) -> None:
        """Accept a job; a worker that is down keeps it until its loss is noticed."""
        self.batcher.add(job, self._clock.now)
        if self.up and self._busy < self._costs.cores:
            self._launch()

    def stop(self) -> None:
        """Stop as a killed worker does: no batch finishes, and new jobs are never computed."""
        self.up, self._epoch = False, self._epoch + 1

    def take_all(self) -> list[Ticket]:
        """Return all jobs that it holds, and hold them no more."""
        lost = [job for batch in self.running.values() for job in batch] + self.batcher.drain()
        self.running.clear()
        self._busy = 0
        return lost

    def start(self) -> None:
        """Come back, empty."""
        self.up, self._busy = True, 0
        self.running.clear()
        self._launch()

    def _launch(self, _: object = None) -> None:
        now, costs = self._clock.now, self._costs
        while self.up and self._busy < costs.cores and self.batcher.queued_jobs:
            picked = self.batcher.pick(now, idle=not self._busy)
            batch = picked.batch
            if picked.dropped:
                self._done(self, [], picked.dropped, 0.0)
            if not batch:
                if picked.wake_at is not None and picked.wake_at > self._wakes_at:
                    self._wakes_at = picked.wake_at
                    self._clock.at(picked.wake_at, self._launch)
                return
            if self._busy:
                self._crowded_until = now + CROWDED
            one_core = self._busy > 0 or now < self._crowded_until
            seconds = costs.batch + len(batch) * costs.image * (costs.cores if one_core else 1)
            seconds *= self.slowness
            self._busy += 1
            self.batches, self.images = self.batches + 1, self.images + len(batch)
            self.running[id(batch)] = batch
            self._clock.at(now + seconds, self._finished, (self._epoch, batch, seconds))

    def _finished(self, what: tuple[int, list[Ticket], float]) -> None:
        epoch, batch, seconds = what
        if epoch != self._epoch:
            return
        del self.running[id(batch)]
        self._busy -= 1
        self._done(self, batch, [], seconds)
        self._launch()
