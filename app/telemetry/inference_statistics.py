"""Count the work of a model of the Open Inference Protocol, for its statistics.

Source: Triton's extension for statistics,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from models.domain.job import Trace

NANOSECONDS = 1_000_000_000

_REQUESTS = ("success", "fail", "queue", "cache_hit", "cache_miss")
_STAGES = ("compute_input", "compute_infer", "compute_output")


class ModelStatistics:
    """The counts of a model in this process."""

    def __init__(self) -> None:
        self._last, self._images = 0.0, 0
        self._sums: defaultdict[int, dict[str, tuple[float, float]]] = defaultdict(dict)
        """How often each stage happened and its seconds in all, by size of batch; 0: of requests"""

    def note(self, seconds: float, traces: Sequence[Trace | None], *, failed: bool) -> None:
        """Count a request that took `seconds`; its images were computed if they have a trace.

        In its batch an image counts as its share, so that all images of a batch are one execution.
        """
        self._last = time.time()
        self._add(0, {"fail" if failed else "success": seconds})
        for trace in traces:
            if trace is None:
                continue
            times = (trace.upload + trace.decode, trace.compute, trace.download)
            stages = dict(zip(_STAGES, times, strict=True))
            self._images += 1
            self._add(0, {"queue": trace.queue, **stages})
            self._add(trace.batch_size, stages, 1 / trace.batch_size)

    def shown(self, name: str, version: str) -> dict[str, object]:
        """Return the statistics of a model as the protocol writes them."""
        batches = [
            {"batch_size": size, **self._durations(size, _STAGES)}
            for size in sorted(self._sums)
            if size
        ]
        n = sum(each["compute_infer"][0] for size, each in self._sums.items() if size)
        return {
            "name": name,
            "version": version,
            "last_inference": int(self._last * 1000),
            "inference_count": self._images,
            "execution_count": _whole(n),
            "inference_stats": self._durations(0, (*_REQUESTS, *_STAGES)),
            "batch_stats": batches,
        }

    def _add(self, size: int, seconds: Mapping[str, float], share: float = 1.0) -> None:
        for name, each in seconds.items():
            count, total = self._sums[size].get(name, (0.0, 0.0))
            self._sums[size][name] = count + share, total + share * each

    def _durations(self, size: int, names: Iterable[str]) -> dict[str, Any]:
        sums = {each: self._sums[size].get(each, (0.0, 0.0)) for each in names}
        return {
            name: {"count": _whole(n), "ns": int(s * NANOSECONDS)} for name, (n, s) in sums.items()
        }


def _whole(count: float) -> int:
    """Return a sum of shares as a number of batches; other work may have a share of the last."""
    return math.ceil(round(count, 6))
