"""A cluster in virtual time: an open stream of images, front ends, a router, many workers.

Real are the router, the batcher with its deadlines, and admission's forecast. Modelled are the
times of front ends, network and workers, failures, restarts, stragglers and the autoscaler.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from app.admission.counts.counters import Counters
from app.admission.counts.fields import Total
from app.admission.prediction.capacity import MICRO
from app.admission.prediction.forecast import Forecast
from models.domain.deadline import Deadline
from tools.scale.simulation.clock import Clock, Station
from tools.scale.simulation.cpu_worker import CpuWorker
from tools.scale.simulation.jobs import ticket
from tools.scale.simulation.routing import Choice, Stale, policy
from tools.scale.simulation.scenario import Outcome, Scenario
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.ticket import Ticket

MOST_LOSSES = 2
"""Workers that an image may lose before it fails, as in `workers/backends/multi_process.py`."""


@dataclass(eq=False, slots=True)
class _Image:
    """An image in flight."""

    came: float
    front_end: Station
    counted: bool
    work: int = 0
    losses: int = 0
    choice: Choice | None = None


class Fleet:
    """Runs one scenario by one seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.it, self.clock = scenario, Clock()
        self._chance = random.Random(seed)  # noqa: S311 (no secret)
        self.seen = Outcome()
        self._varied = cycle(np.random.default_rng(seed).gamma(4.0, 0.25, 65_521).tolist())
        limits = BatchLimits(scenario.batch, 1 << 40, scenario.batch_wait)
        everybody = scenario.workers + scenario.spare
        self.workers = [
            CpuWorker(n, self.clock, scenario.costs, limits, self._done) for n in range(everybody)
        ]
        for worker in self._chance.sample(
            self.workers[: scenario.workers], round(scenario.stragglers * scenario.workers)
        ):
            worker.slowness = scenario.slowness
        self._front_ends = [Station(self.clock) for _ in range(scenario.front_ends)]
        self._policy = policy(scenario.routing, everybody, seed, scenario.front_ends)
        self._gone = set[int]()
        self._known_down = set(range(scenario.workers, everybody))
        for worker in self.workers[scenario.workers :]:
            worker.stop()
            self._policy.gone(worker.number)
        counters = Counters()
        self._counters = counters
        self._forecast = Forecast(counters, 2 * scenario.workers, self.clock.time)
        self._key = counters.key("client")
        self._work = int(scenario.costs.image * MICRO)

    def run(self) -> Outcome:
        """Return the counts and latencies; images in flight at the end are `left`, or finish."""
        it, at = self.it, self.clock.at
        at(0.0, self._arrive)
        if it.lost_every:
            at(it.lost_every / 2, self._lose_one)
        if it.rack:
            at(it.rack_at, self._lose_rack)
        if it.spare:
            at(it.peak_from + it.upscale_after + it.restart, self._upscale)
        if isinstance(self._policy, Stale):
            self._every(float(it.routing.rsplit(" ", 2)[1]) / 1e3, self._policy.refresh)
        self.clock.run(it.seconds)
        self.seen.front_end_busy = sum(s.busy for s in self._front_ends) / it.seconds
        self.seen.mean_batch = sum(w.images for w in self.workers) / max(
            1, sum(w.batches for w in self.workers)
        )
        self.clock.run_out(it.seconds + 2 * it.deadline + it.noticed_after)
        self.seen.left = self.seen.came - self.seen.good - self.seen.refused
        self.seen.left -= self.seen.expired + self.seen.failed
        return self.seen

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        def again(_: object) -> None:
            action()
            if self.clock.now < self.it.seconds:
                self.clock.at(self.clock.now + seconds, again)

        again(None)

    def _rate(self) -> float:
        it = self.it
        peak = it.peak if it.peak_from <= self.clock.now < it.peak_until else 1.0
        return it.load * it.per_second * peak

    def _arrive(self, _: object) -> None:
        now = self.clock.now
        if now >= self.it.seconds:
            return
        self.clock.at(now + self._chance.expovariate(self._rate()), self._arrive)
        counted = now >= self.it.warm
        self.seen.came += counted
        if self.it.admission and self._refused():
            self.seen.refused += counted
            return
        front_end = self._front_ends[int(self._chance.random() * len(self._front_ends))]
        image = _Image(now, front_end, counted)
        if self.it.admission:
            image.work = self._work
            self._counters.add(Total.IMAGES, 1)
            self._forecast.charge(self._key, self._work)
        self._take(image, 0.6, self._route)

    def _refused(self) -> bool:
        alone = self.it.costs.batch + self.it.costs.image
        late = self._forecast.too_late(self._key, self.it.deadline, self._work, alone)
        return late is not None

    def _take(self, image: _Image, share: float, action: Callable[[_Image], None]) -> None:
        seconds = next(self._varied) * self.it.front_end * share
        image.front_end.take(seconds, action, image)

    def _route(self, image: _Image) -> None:
        job = ticket(image, Deadline(image.came + self.it.deadline))
        choice = image.choice = Choice(job.job)
        self._policy.choose(choice)
        self.clock.at(self.clock.now + self.it.network, self._given, job)

    def _given(self, job: Ticket) -> None:
        image: _Image = job.tag
        assert image.choice is not None
        worker = self.workers[image.choice.worker]
        if not worker.up and worker.number in self._known_down:  # it was on its way meanwhile
            self._send_again(job)
        else:
            worker.add(job)

    def _done(
        self, _worker: CpuWorker, batch: list[Ticket], dropped: list[Ticket], seconds: float
    ) -> None:
        now, network = self.clock.now, self.it.network
        for job in batch:
            image: _Image = job.tag
            assert image.choice is not None
            self._policy.ended(image.choice, seconds, len(batch))
            self._ended(image, completed=True)
            self.clock.at(now + network, self._respond, image)
        for job in dropped:
            self._policy.ended(job.tag.choice, 0.0, 1)
            self._ended(job.tag, completed=False)
            self.seen.expired += job.tag.counted

    def _ended(self, image: _Image, *, completed: bool) -> None:
        if image.work:
            self._counters.add(Total.IMAGES, -1)
            self._forecast.charge(self._key, -image.work)
            if completed:
                self._forecast.done(image.work)

    def _respond(self, image: _Image) -> None:
        self._take(image, 0.4, self._answered)

    def _answered(self, image: _Image) -> None:
        if not image.counted:
            return
        latency = self.clock.now - image.came
        if latency > self.it.deadline:
            self.seen.expired += 1
        else:
            self.seen.latencies.append(latency)

    def _lose_one(self, _: object) -> None:
        if self.clock.now < self.it.seconds:
            up = [worker for worker in self.workers if worker.up]
            self._lose(self._chance.choice(up), back=True)
            self.clock.at(self.clock.now + self.it.lost_every, self._lose_one)

    def _lose_rack(self, _: object) -> None:
        for worker in self.workers[: self.it.rack]:
            self._lose(worker, back=False)

    def _lose(self, worker: CpuWorker, *, back: bool) -> None:
        if not back:
            self._gone.add(worker.number)
        if not worker.up:
            return  # it was lost before, and what it held is sent again when that is noticed
        worker.stop()
        self.clock.at(self.clock.now + self.it.noticed_after, self._noticed, worker)
        if back:
            self.clock.at(
                self.clock.now + self.it.noticed_after + self.it.restart, self._back, worker
            )

    def _noticed(self, worker: CpuWorker) -> None:
        """Send what a lost worker held to others."""
        self._policy.gone(worker.number)
        self._known_down.add(worker.number)
        for job in worker.take_all():
            job.tag.losses += 1
            self._send_again(job)

    def _send_again(self, job: Ticket) -> None:
        image: _Image = job.tag
        assert image.choice is not None
        self._policy.ended(image.choice, 0.0, 1)
        late = job.job.deadline.expired(self.clock.now)
        if late or image.losses >= MOST_LOSSES:
            self._ended(image, completed=False)
            self.seen.expired += late and image.counted
            self.seen.failed += (not late) and image.counted
            return
        self.seen.sent_again += image.counted
        self._route(image)

    def _back(self, worker: CpuWorker) -> None:
        if worker.number in self._gone:
            return
        self._known_down.discard(worker.number)
        worker.start()
        self._policy.back(worker.number)

    def _upscale(self, _: object) -> None:
        for worker in self.workers[self.it.workers :]:
            self._back(worker)
