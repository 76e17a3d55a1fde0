"""Count the work of the models of the Open Inference Protocol, for its statistics.

Source: Triton's extension for statistics,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from models.domain.job import Trace

MOST_BATCHES = 1024
"""Micro-batches that are remembered so that the images of a batch count as one execution."""

NANOSECONDS = 1_000_000_000

_REQUESTS = ("success", "fail", "queue", "cache_hit", "cache_miss")
_STAGES = ("compute_input", "compute_infer", "compute_output")


class ModelStatistics:
    """The counts of a model in this process."""

    def __init__(self) -> None:
        self.last, self.images, self.executions = 0.0, 0, 0
        self._sums: defaultdict[int, dict[str, tuple[int, float]]] = defaultdict(dict)
        """How often each stage happened and its seconds in all, by size of batch; 0: of requests"""

    def add(self, size: int, seconds: Mapping[str, float]) -> None:
        """Count each stage of `seconds` once more."""
        for name, each in seconds.items():
            count, total = self._sums[size].get(name, (0, 0.0))
            self._sums[size][name] = count + 1, total + each

    def shown(self, name: str, version: str) -> dict[str, object]:
        """Return the statistics of a model as the protocol writes them."""
        return {
            "name": name,
            "version": version,
            "last_inference": int(self.last * 1000),
            "inference_count": self.images,
            "execution_count": self.executions,
            "inference_stats": self._durations(0, (*_REQUESTS, *_STAGES)),
            "batch_stats": [
                {"batch_size": size, **self._durations(size, _STAGES)}
                for size in sorted(self._sums)
                if size
            ],
        }

    def _durations(self, size: int, names: Iterable[str]) -> dict[str, dict[str, int]]:
        sums = {each: self._sums[size].get(each, (0, 0.0)) for each in names}
        return {each: {"count": n, "ns": int(s * NANOSECONDS)} for each, (n, s) in sums.items()}


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
        found.add(0, {"fail" if failed else "success": seconds})
        for trace in traces:
            if trace is None:
                continue
            times = (trace.upload + trace.decode, trace.compute, trace.download)
            stages = dict(zip(_STAGES, times, strict=True))
            found.images += 1
            found.add(0, {"queue": trace.queue, **stages})
            if trace.batch_id not in self._batches:
                self._batches[trace.batch_id] = None
                found.executions += 1
                found.add(trace.batch_size, stages)
        while len(self._batches) > MOST_BATCHES:
            self._batches.popitem(last=False)
