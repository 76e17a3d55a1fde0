"""Load a worker for some seconds and evaluate a trace of that time. Torch is not used here."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from models.codec import Encoding, ImageFormat, encode
from models.domain.backend import Backend
from models.domain.image import Image, Source
from models.domain.job import Job, Operation

IN_FLIGHT = 256
"""Jobs under way: some batches on the device, and as many that form."""

DRAWN = 64
"""The number of different images under way."""

Span = tuple[float, float]
"""Begin and end, in microseconds."""

STAGES = {
    "upload": ("gpu_memcpy", "HtoD"),
    "compute": ("kernel", ""),
    "download": ("gpu_memcpy", "DtoH"),
}
"""The category of a stage's work in a trace, and a part of its name."""


def drawing(seed: int) -> bytes:
    """Return a JPEG of 500 × 375 pixels and about 70 kB, 4:2:0, like those of cameras."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (75, 100, 3), np.uint8)
    pixels = cv2.resize(small, (500, 375), interpolation=cv2.INTER_LINEAR)
    noisy = np.clip(pixels + random.normal(0, 6, pixels.shape), 0, 255).astype(np.uint8)
    return encode(Image(noisy), ImageFormat.JPEG, Encoding(quality=90))


async def keep_busy(
    backend: Backend,
    operation: Operation,
    sources: Sequence[Source],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Keep `IN_FLIGHT` jobs under way for `seconds`; return how many ended within them.

    A job that is still under way then is not counted, however soon after it ends, and is not
    waited for: `IN_FLIGHT` slow jobs that end after a short window would be a rate that no device
    has shown.
    """
    until, turns, done = clock() + seconds, itertools.cycle(sources), 0

    async def one_after_another() -> None:
        nonlocal done
        while clock() < until:
            await backend.run(Job(operation, next(turns)))
            done += clock() <= until

    tasks = [asyncio.create_task(one_after_another()) for _ in range(IN_FLIGHT)]
    try:
        ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()  # raises the error of a job
    return done


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Results of a traced period: shares of its length, 0…1; gaps in seconds.

    `overlap` is the share of `upload` (or `download`) during which kernels ran as well; `gap` is
    the mean idle time of the device between two kernels or copies, `idle` all of it.
    """

    seconds: float
    busy: float
    shares: Mapping[str, float]
    overlap: Mapping[str, float]
    idle: float
    gap: float


def utilisation(trace: Mapping[str, Any]) -> Utilisation | None:
    """Evaluate a Chrome trace; return None if nothing ran on a device."""
    spans = {name: _merged(_spans(trace, *words)) for name, words in STAGES.items()}
    busy = _merged(itertools.chain(*spans.values()))
    if not busy:
        return None
    whole = busy[-1][1] - busy[0][0]
    idle = whole - _length(busy)
    return Utilisation(
        seconds=whole / 1e6,
        busy=_length(busy) / whole,
        shares={name: _length(found) / whole for name, found in spans.items()},
        overlap={
            name: _common(spans[name], spans["compute"]) / max(_length(spans[name]), 1e-9)
            for name in ("upload", "download")
        },
        idle=idle / 1e6,
        gap=idle / 1e6 / max(len(busy) - 1, 1),
    )


def kernel_times(trace: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds of each kernel of a Chrome trace, the longest first.

    Filters and networks have kernels of their own names; nothing is listed on a CPU.
    """
    total: dict[str, float] = {}
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel":
            total[event["name"]] = total.get(event["name"], 0.0) + event["dur"] / 1e3
    return dict(sorted(total.items(), key=lambda each: -each[1]))


def _spans(trace: Mapping[str, Any], category: str, part: str) -> Iterable[Span]:
    for event in trace["traceEvents"]:
        if event.get("cat") == category and part in event["name"]:
            yield event["ts"], event["ts"] + event["dur"]


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return the union of intervals, in order."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((begin, end))
    return union


def _length(union: Sequence[Span]) -> float:
    return sum(end - begin for begin, end in union)


def _common(one: Sequence[Span], other: Sequence[Span]) -> float:
    """Return the length of the intersection of two unions."""
    common, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        common += max(0.0, end - begin)
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return common
