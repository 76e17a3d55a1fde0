"""A cluster and its load, and the counts and latencies of its images."""

from dataclasses import dataclass, field

from tools.scale.simulation.cpu_worker import CpuCosts


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and its load; times in seconds, `load` as a share of all workers' capacity."""

    workers: int
    costs: CpuCosts
    load: float
    seconds: float
    routing: str = "two by work"
    front_ends: int = 64
    front_end: float = 725e-6
    network: float = 0.5e-3
    batch: int = 8
    batch_wait: float = 0.0
    deadline: float = 3.0
    stragglers: float = 0.0
    slowness: float = 4.0
    lost_every: float = 0.0
    restart: float = 8.6
    rack: int = 0
    rack_at: float = 5.0
    noticed_after: float = 0.0
    peak: float = 1.0
    peak_from: float = 5.0
    peak_until: float = 1e9
    admission: bool = False
    spare: int = 0
    upscale_after: float = 30.0
    warm: float = 2.0

    @property
    def per_second(self) -> float:
        """Return the images a second that all workers together compute in full batches."""
        return self.workers / (self.costs.image + self.costs.batch / self.costs.cores / self.batch)

    @property
    def images(self) -> float:
        """Return about how many images come."""
        after = max(0.0, min(self.peak_until, self.seconds) - self.peak_from)
        return self.load * self.per_second * (self.seconds + (self.peak - 1) * after)


@dataclass(slots=True)
class Outcome:
    """Counts of images that came after the warm-up, and the latencies of the good ones."""

    came: int = 0
    refused: int = 0
    expired: int = 0
    failed: int = 0
    sent_again: int = 0
    left: int = 0
    latencies: list[float] = field(default_factory=list)
    mean_batch: float = 0.0
    front_end_busy: float = 0.0

    @property
    def good(self) -> int:
        """Return the images that were answered before their deadline."""
        return len(self.latencies)

    def quantile(self, share: float) -> float:
        """Return a quantile of the latency, in milliseconds."""
        if not self.latencies:
            return 0.0
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3
