"""One host: front ends, two workers for each GPU, and the stages of a batch.

The batcher is the real one. Modelled are a front end, whose interpreter runs one image at a time;
the launch thread of a worker, which is busy for a batch and for each image and while the JPEG
engines of the GPU decode; the GPU; and the threads that collect.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tools.scale.simulation.clock import Action, Clock, Station
from tools.scale.simulation.jobs import ticket
from workers.backends.routing import OwnWork
from workers.scheduling.batcher import BatchLimits, MicroBatcher
from workers.scheduling.ticket import Ticket

SLOTS = 3
"""Staging slots of a worker (`workers/engines/cuda/streams.py`)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that each stage takes, all measured (`measured.py`).

    `decoding` are images a second of one GPU's JPEG engines, by the threads that ask them.
    `respond_share` is the part of a front end's time after the answer of the worker.
    """

    front_end: float
    launch_batch: float
    launch_image: float
    decoding: tuple[float, ...]
    compute_batch: float
    compute_image: float
    collect_image: float
    collectors: int
    latency: float
    respond_share: float = 0.4
    spread: float = 0.5
    launch_spread: float = 0.0
    client: float = 55e-6


def _varied(chance: random.Random, mean: float, spread: float) -> float:
    """Return seconds of a gamma distribution with a mean and a coefficient of variation."""
    shape = 1 / spread**2 if spread else 0.0
    return chance.gammavariate(shape, mean / shape) if shape else mean


class Gpu:
    """A GPU: its engines decode for several threads at a time, its kernels run one batch."""

    def __init__(self, clock: Clock, costs: Costs) -> None:
        self.costs = costs
        self.kernels = Station(clock)
        self.decoding = 0

    def decode_seconds(self, images: int) -> float:
        """Return how long a thread waits for its images, beside those that decode already."""
        rates = self.costs.decoding
        threads = min(max(self.decoding, 1), len(rates))
        return images * threads / rates[threads - 1]


class GpuWorker:
    """A worker: real batcher, slots, launch thread, kernels, threads that collect."""

    def __init__(
        self,
        clock: Clock,
        gpu: Gpu,
        limits: BatchLimits,
        done: Callable[[list[Ticket]], None],
        chance: random.Random,
    ) -> None:
        self._clock, self._gpu, self._done, self._chance = clock, gpu, done, chance
        self.batcher = MicroBatcher(limits)
        self._free, self._launching = SLOTS, False
        self._collectors = [Station(clock) for _ in range(gpu.costs.collectors)]
        self.pending = self.batches = self.images = 0
        self.launch_busy = 0.0

    def add(self, job: Ticket) -> None:
        """Accept a job."""
        self.pending += 1
        self.batcher.add(job, self._clock.now)
        self._launch()

    def _launch(self, _: object = None) -> None:
        if self._launching or not self._free:
            return
        picked = self.batcher.pick(self._clock.now, idle=self._free == SLOTS)
        if not picked.batch:
            if picked.wake_at is not None:
                self._clock.at(picked.wake_at, self._launch)
            return
        batch, costs = picked.batch, self._gpu.costs
        self._launching, self._free = True, self._free - 1
        self._gpu.decoding += 1
        seconds = costs.launch_batch + len(batch) * costs.launch_image
        seconds += self._gpu.decode_seconds(len(batch))
        seconds = _varied(self._chance, seconds, costs.launch_spread)
        self.batches, self.images = self.batches + 1, self.images + len(batch)
        self.launch_busy += seconds
        self._clock.at(self._clock.now + seconds, self._launched, batch)

    def _launched(self, batch: list[Ticket]) -> None:
        self._launching = False
        self._gpu.decoding -= 1
        costs = self._gpu.costs
        seconds = costs.compute_batch + len(batch) * costs.compute_image
        self._gpu.kernels.take(seconds, self._computed, batch)
        self._launch()

    def _computed(self, batch: list[Ticket]) -> None:
        least = min(self._collectors, key=lambda each: each.wait)
        least.take(len(batch) * self._gpu.costs.collect_image, self._collected, batch)

    def _collected(self, batch: list[Ticket]) -> None:
        self._free += 1
        self.pending -= len(batch)
        self._done(batch)
        self._launch()


class FrontEnd:
    """The interpreter of a front end: one image at a time, in the order of events."""

    def __init__(self, clock: Clock, costs: Costs, chance: random.Random) -> None:
        self._station, self._chance = Station(clock), chance
        self.costs = costs

    @property
    def busy(self) -> float:
        """Return the seconds for which it was busy."""
        return self._station.busy

    def take(self, share: float, action: Action, argument: object) -> None:
        """Spend a share of the time of an image, then go on."""
        seconds = _varied(self._chance, self.costs.front_end * share, self.costs.spread)
        self._station.take(seconds, action, argument)


@dataclass(eq=False, slots=True)
class Request:
    """A request of `left` images that are not answered yet, of one connection."""

    front_end: FrontEnd
    began: float
    left: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client and the server saw after the warm-up."""

    images_per_second: float
    p50_ms: float
    p99_ms: float
    front_end_cores: float
    launch_cores: float
    mean_batch: float


class Host:
    """A closed loop: `connections` clients, each with a request of `images` under way."""

    def __init__(
        self, costs: Costs, gpus: int, front_ends: int, seed: int = 1, batch: int = 64
    ) -> None:
        self.clock = Clock()
        self._chance = random.Random(seed)  # noqa: S311 (no secret)
        limits = BatchLimits(batch, 1 << 40)
        chips = [Gpu(self.clock, costs) for _ in range(gpus)]
        self.workers = [
            GpuWorker(self.clock, g, limits, self._back, self._chance) for g in chips * 2
        ]
        self._front_ends = [FrontEnd(self.clock, costs, self._chance) for _ in range(front_ends)]
        self._costs, self._work = costs, OwnWork(len(self.workers))
        self.latencies: list[float] = []
        self._images = 1

    def run(self, connections: int, images: int, seconds: float, warm: float = 0.5) -> Seen:
        """Return what was seen in `seconds` after a warm-up."""
        self._images = images
        for number in range(connections):
            front_end = self._front_ends[number % len(self._front_ends)]
            self.clock.at(self._chance.uniform(0, 0.05), self._send, front_end)
        self.clock.run(warm)
        busy = sum(each.busy for each in self._front_ends)
        launching = sum(each.launch_busy for each in self.workers)
        self.latencies.clear()
        self.clock.run(warm + seconds)
        ordered = sorted(self.latencies)
        return Seen(
            len(ordered) * images / seconds,
            ordered[len(ordered) // 2] * 1e3,
            ordered[int(len(ordered) * 0.99)] * 1e3,
            (sum(each.busy for each in self._front_ends) - busy) / seconds,
            (sum(each.launch_busy for each in self.workers) - launching) / seconds,
            sum(w.images for w in self.workers) / max(1, sum(w.batches for w in self.workers)),
        )

    def _send(self, front_end: FrontEnd) -> None:
        request = Request(front_end, self.clock.now, self._images)
        for _ in range(self._images):
            front_end.take(1 - self._costs.respond_share, self._received, request)

    def _received(self, request: Request) -> None:
        worker = min(self.workers, key=lambda each: each.pending)
        worker.add(ticket(request))

    def _back(self, batch: list[Ticket]) -> None:
        for each in batch:
            request: Request = each.tag
            self.clock.at(self.clock.now + self._costs.latency, self._respond, request)

    def _respond(self, request: Request) -> None:
        request.front_end.take(self._costs.respond_share, self._answer, request)

    def _answer(self, request: Request) -> None:
        request.left -= 1
        if not request.left:
            self.latencies.append(self.clock.now - request.began)
            self.clock.at(self.clock.now + self._costs.client, self._send, request.front_end)
