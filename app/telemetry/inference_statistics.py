"""Count what the models of the Open Inference Protocol have done, for its statistics.

Source: Triton's extension for statistics,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from models.domain.job import Trace

MOST_BATCHES = 1024
"""Micro-batches that are remembered so that the images of one count as one execution."""

NANOSECONDS = 1_000_000_000


@dataclass(slots=True)
class Duration:
    """How often something happened, and the seconds that it took in all."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count one more."""
        self.count += count
        self.seconds += seconds

    def shown(self) -> dict[str, int]:
        """Return the duration as the protocol writes it."""
        return {"count": self.count, "ns": int(self.seconds * NANOSECONDS)}


@dataclass(slots=True)
class Computing:
    """The three stages of computing: before the network, the network, and after it."""

    before: Duration = field(default_factory=Duration)
    network: Duration = field(default_factory=Duration)
    after: Duration = field(default_factory=Duration)

    def add(self, trace: Trace) -> None:
        """Add the times of a job or a batch."""
        self.before.add(trace.upload + trace.decode)
        self.network.add(trace.compute)
        self.after.add(trace.download)

    def shown(self) -> dict[str, dict[str, int]]:
        """Return the stages under the names of the protocol."""
        return {
            "compute_input": self.before.shown(),
            "compute_infer": self.network.shown(),
            "compute_output": self.after.shown(),
        }


@dataclass(slots=True)
class ModelStatistics:
    """The counts of one model in this process."""

    last: float = 0.0
    images: int = 0
    succeeded: Duration = field(default_factory=Duration)
    failed: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    computing: Computing = field(default_factory=Computing)
    by_size: dict[int, Computing] = field(default_factory=dict)

    def shown(self, name: str, version: str) -> dict[str, object]:
        """Return the statistics of a model as the protocol writes them."""
        executions = sum(each.network.count for each in self.by_size.values())
        inference = {
            "success": self.succeeded.shown(),
            "fail": self.failed.shown(),
            "queue": self.queue.shown(),
            **self.computing.shown(),
            "cache_hit": Duration().shown(),
            "cache_miss": Duration().shown(),
        }
        batches = [
            {"batch_size": size, **each.shown()} for size, each in sorted(self.by_size.items())
        ]
        return {
            "name": name,
            "version": version,
            "last_inference": int(self.last * 1000),
            "inference_count": self.images,
            "execution_count": executions,
            "inference_stats": inference,
            "batch_stats": batches,
        }


class InferenceStatistics:
    """The statistics of all models, by the name of each; `wall` gives seconds since 1970."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._models: dict[str, ModelStatistics] = {}
        self._batches: OrderedDict[str, None] = OrderedDict()

    def of(self, name: str) -> ModelStatistics:
        """Return the statistics of a model that is served."""
        return self._models.setdefault(name, ModelStatistics())

    def note(
        self, name: str, seconds: float, traces: Sequence[Trace | None], *, failed: bool
    ) -> None:
        """Count a request that took `seconds`; its images were computed if they have a trace."""
        found = self.of(name)
        found.last = self._wall()
        (found.failed if failed else found.succeeded).add(seconds)
        for trace in traces:
            if trace is None:
                continue
            found.images += 1
            found.queue.add(trace.queue)
            found.computing.add(trace)
            if trace.batch_id not in self._batches:
                self._batches[trace.batch_id] = None
                found.by_size.setdefault(trace.batch_size, Computing()).add(trace)
        while len(self._batches) > MOST_BATCHES:
            self._batches.popitem(last=False)
