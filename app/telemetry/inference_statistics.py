"""Count the work of the models of the Open Inference Protocol, for its statistics.

Source: Triton's extension for statistics,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from models.domain.job import Trace

MOST_BATCHES = 1024
"""Micro-batches that are remembered so that the images of a batch count as one execution."""

NANOSECONDS = 1_000_000_000

_REQUESTS = ("success", "fail", "queue", "cache_hit", "cache_miss")
_STAGES = ("compute_input", "compute_infer", "compute_output")


class Durations:
    """How often each of the named things happened, and the seconds that it took in all."""

    def __init__(self, *names: str) -> None:
        self._sums = {name: (0, 0.0) for name in names}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count each thing of `seconds` once more."""
        for name, each in seconds.items():
            count, total = self._sums[name]
            self._sums[name] = count + 1, total + each

    def shown(self) -> dict[str, dict[str, int]]:
        """Return the durations as the protocol writes them."""
        return {
            name: {"count": count, "ns": int(seconds * NANOSECONDS)}
            for name, (count, seconds) in self._sums.items()
        }


def _stages_of(trace: Trace) -> dict[str, float]:
    stages = (trace.upload + trace.decode, trace.compute, trace.download)
    return dict(zip(_STAGES, stages, strict=True))


@dataclass(slots=True)
class ModelStatistics:
    """The counts of a model in this process."""

    last: float = 0.0
    images: int = 0
    durations: Durations = field(default_factory=lambda: Durations(*_REQUESTS, *_STAGES))
    executions: int = 0
    by_size: dict[int, Durations] = field(
        default_factory=lambda: defaultdict(lambda: Durations(*_STAGES))
    )

    def shown(self, name: str, version: str) -> dict[str, object]:
        """Return the statistics of a model as the protocol writes them."""
        return {
            "name": name,
            "version": version,
            "last_inference": int(self.last * 1000),
            "inference_count": self.images,
            "execution_count": self.executions,
            "inference_stats": self.durations.shown(),
            "batch_stats": [
                {"batch_size": size, **each.shown()} for size, each in sorted(self.by_size.items())
            ],
        }


class InferenceStatistics:
    """The statistics of all models, by the name of each; `wall` gives seconds since 1970."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._models: dict[str, ModelStatistics] = defaultdict(ModelStatistics)
        self._batches: OrderedDict[str, None] = OrderedDict()

    def of(self, name: str) -> ModelStatistics:
        """Return the statistics of a model that is served."""
        return self._models[name]

    def note(
        self, name: str, seconds: float, traces: Sequence[Trace | None], *, failed: bool
    ) -> None:
        """Count a request that took `seconds`; its images were computed if they have a trace."""
        found = self._models[name]
        found.last = self._wall()
        found.durations.add({"fail" if failed else "success": seconds})
        for trace in traces:
            if trace is None:
                continue
            stages = _stages_of(trace)
            found.images += 1
            found.durations.add({"queue": trace.queue, **stages})
            if trace.batch_id not in self._batches:
                self._batches[trace.batch_id] = None
                found.executions += 1
                found.by_size[trace.batch_size].add(stages)
        while len(self._batches) > MOST_BATCHES:
            self._batches.popitem(last=False)
