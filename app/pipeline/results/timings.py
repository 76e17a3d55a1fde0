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

    __slots__ = ("marks", "reused", "seconds", "trace")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.marks: list[tuple[str, float, float]] = []
        self.trace: Trace | None = None
        self.reused: str | None = None

    def measure(self, stage: str) -> "Measuring":
        """Return a context manager that adds its block's duration to `stage`."""
        return Measuring(self, stage)

    def note(self, stage: str, start: float) -> None:
        """Add the time since `start` to `stage`."""
        end = time.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + end - start
        self.marks.append((stage, start, end))

    def add(self, trace: Trace) -> None:
        """Add what the worker measured, which may include decoding."""
        self.trace, seconds = trace, self.seconds
        if trace.decode:
            seconds["decode"] = seconds.get("decode", 0.0) + trace.decode
        seconds["queue"] = trace.queue
        seconds["upload"] = trace.upload
        seconds["compute"] = trace.compute
        seconds["download"] = trace.download

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
        """Return the milliseconds of each stage for a record, in whole microseconds."""
        return {stage: int(seconds * 1e6 + 0.5) / 1e3 for stage, seconds in self.seconds.items()}


class Measuring:
    """Measures its block as a stage; no generator, because those take 3 µs more."""

    __slots__ = ("_stage", "_start", "_timings")

    def __init__(self, timings: Timings, stage: str) -> None:
        self._timings = timings
        self._stage = stage

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._timings.note(self._stage, self._start)


def server_timing(all_stages: Iterable[Timings]) -> str:
    """Return the Server-Timing header: the slowest image in each stage, and the last batch.

    `result` is "cached" or "shared" where a result was not computed for its image.
    """
    slowest: dict[str, float] = {}
    trace = reused = None
    for stages in all_stages:
        trace = stages.trace or trace
        reused = stages.reused or reused
        for name, seconds in stages.seconds.items():
            if seconds >= slowest.get(name, 0.0):
                slowest[name] = seconds
    parts = [f"{name};dur={slowest[name] * 1e3:.3f}" for name in STAGES if name in slowest]
    if trace is not None:
        batch = f"{trace.batch_size}/{trace.max_batch_size} {trace.reason.value}"
        parts.append(f'batch;desc="{batch}"')
    if reused:
        parts.append(f'result;desc="{reused}"')
    return ", ".join(parts)
