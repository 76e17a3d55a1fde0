"""The seconds that one image takes in each stage, and the Server-Timing header made of them."""

import time
from collections.abc import Iterable

from models.domain.job import Trace

STAGES = ("intake", "fetch", "decode", "queue", "upload", "compute", "download", "encode")


class Timings:
    """A stopwatch for each stage, and the micro-batch that the image was part of.

    `marks` are the stages in their order, each with its start and end on the monotonic clock.
    `reused` is "cached" or "shared" for a result that was not computed for this image.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.marks: list[tuple[str, float, float]] = []
        self.trace: Trace | None = None
        self.batch: str | None = None
        self.reused: str | None = None

    def measure(self, stage: str) -> "Measuring":
        """Return a context manager that adds its block's duration to `stage`."""
        return Measuring(self, stage)

    def add(self, trace: Trace) -> None:
        """Add what the worker measured, which may include decoding."""
        self.trace = trace
        if trace.decode:
            self.seconds["decode"] = self.seconds.get("decode", 0.0) + trace.decode
        self.seconds["queue"] = trace.queue
        self.seconds["upload"] = trace.upload
        self.seconds["compute"] = trace.compute
        self.seconds["download"] = trace.download
        self.batch = f"{trace.batch_size}/{trace.max_batch_size} {trace.reason._value_}"

    @property
    def all_marks(self) -> list[tuple[str, float, float]]:
        """Return `marks` with the stages on the worker, which follow each other from the launch."""
        if (trace := self.trace) is None:
            return self.marks
        at = trace.launched_at
        found = [*self.marks, ("queue", at - trace.queue, at)]
        for stage in ("upload", "decode", "compute", "download"):
            if seconds := getattr(trace, stage):
                found.append((stage, at, at + seconds))
                at += seconds
        return found

    @property
    def batch_attributes(self) -> dict[str, str | int]:
        """Return the micro-batch as attributes of a span; nothing if there was none."""
        if (trace := self.trace) is None:
            return {}
        return {
            "darkroom.batch.id": trace.batch_id,
            "darkroom.batch.size": trace.batch_size,
            "darkroom.batch.max_size": trace.max_batch_size,
            "darkroom.batch.release_reason": trace.reason.value,
        }

    def milliseconds(self) -> dict[str, float]:
        """Return the milliseconds of each stage for a record."""
        return {name: round(seconds * 1e3, 3) for name, seconds in self.seconds.items()}


class Measuring:
    """Measures its block as a stage; no generator, because those take 3 µs more."""

    __slots__ = ("_stage", "_start", "_timings")

    def __init__(self, timings: Timings, stage: str) -> None:
        self._timings = timings
        self._stage = stage

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        stage, start, end = self._stage, self._start, time.monotonic()
        seconds = self._timings.seconds
        seconds[stage] = seconds.get(stage, 0.0) + end - start
        self._timings.marks.append((stage, start, end))


def server_timing(all_stages: Iterable[Timings]) -> str:
    """Return the Server-Timing header: the slowest image in each stage, and the last batch.

    `result` is "cached" or "shared" where a result was not computed for its image.
    """
    slowest: dict[str, float] = {}
    batch = reused = None
    for stages in all_stages:
        batch = stages.batch or batch
        reused = stages.reused or reused
        for name, seconds in stages.seconds.items():
            slowest[name] = max(seconds, slowest.get(name, 0.0))
    parts = [f"{name};dur={slowest[name] * 1e3:.3f}" for name in STAGES if name in slowest]
    if batch:
        parts.append(f'batch;desc="{batch}"')
    if reused:
        parts.append(f'result;desc="{reused}"')
    return ", ".join(parts)
