"""The outcome of one image: labels, filtered versions, or an error; and the seconds of each stage.

Server-Timing is the header with these seconds.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.intake.item import Item
from app.pipeline.encoded_files import EncodedFile
from models.codec import Description, ImageFormat
from models.domain.errors import ServiceError
from models.domain.job import Labels, Match, Trace, Vector

STAGES = ("intake", "fetch", "decode", "queue", "upload", "compute", "download", "encode")


class Timings:
    """A stopwatch for each stage, and the micro-batch that the image was part of.

    `marks` are the stages in their order, each with its start and end on the monotonic clock.
    `reused` is "cached" or "shared" for a result that was not computed for this image.
    """

    __slots__ = ("_stage", "_start", "marks", "reused", "seconds", "trace")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.marks: list[tuple[str, float, float]] = []
        self.trace: Trace | None = None
        self.reused: str | None = None

    def measure(self, stage: str) -> "Timings":
        """Return a context manager that adds its block's duration to `stage`: one at a time."""
        self._stage = stage
        return self

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        stage, start, end = self._stage, self._start, time.monotonic()
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


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """A filtered image as a file; `quality` is the one that `max_bytes` has led to."""

    file: EncodedFile
    format: ImageFormat
    width: int
    height: int
    quality: int | None = None


@dataclass(frozen=True, slots=True)
class VersionAnswer:
    """The outcome of one version, and the time of each stage."""

    id: str | None
    outcome: EncodedImage | ServiceError
    stages: Timings


@dataclass(frozen=True, slots=True)
class Processed:
    """The parts of one image, each with an outcome; `labels` is None if they were not wanted."""

    labels: Labels | Vector | ServiceError | None
    versions: tuple[VersionAnswer, ...]

    @property
    def errors(self) -> list[ServiceError]:
        """Return the errors of failed parts: that of the labels, then those of the versions."""
        outcomes = (self.labels, *(each.outcome for each in self.versions))
        return [each for each in outcomes if isinstance(each, ServiceError)]


AnswerOutcome = (
    Labels | Vector | EncodedImage | Processed | Description | list[Match] | ServiceError
)


def images_of(outcome: AnswerOutcome) -> Iterator[tuple[int | None, EncodedImage]]:
    """Yield the files, each with the number of its version, or None for a single file."""
    if isinstance(outcome, EncodedImage):
        yield None, outcome
    elif isinstance(outcome, Processed):
        for number, each in enumerate(outcome.versions):
            if isinstance(each.outcome, EncodedImage):
                yield number, each.outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one item, and the time of each stage."""

    item: Item
    outcome: AnswerOutcome
    stages: Timings

    @property
    def all_stages(self) -> list[Timings]:
        """Return the stopwatch of the item and those of its versions."""
        if isinstance(self.outcome, Processed):
            return [self.stages, *(each.stages for each in self.outcome.versions)]
        return [self.stages]


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
