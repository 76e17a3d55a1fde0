"""Which worker processes accept jobs, and their load together by their last reports."""

import math
from collections.abc import Sequence

from models.domain.backend import Load
from workers.backends.absence import Absence
from workers.ipc.worker_client import WorkerConnection


def accepting(links: Sequence[WorkerConnection]) -> list[tuple[int, str]]:
    """Return the numbers of the workers that accept jobs, with their devices."""
    return [(n, line.device) for n, link in enumerate(links) if (line := link.line) is not None]


def hands_over(links: Sequence[WorkerConnection]) -> bool:
    """Return whether a worker left for a successor that has not answered yet."""
    return any(link.lines and link.lines[-1].left for link in links)


def by_device(links: Sequence[WorkerConnection]) -> list[Load]:
    """Return the load of each device, of all workers on it that have been welcomed."""
    found: dict[str, list[WorkerConnection]] = {}
    for link in links:
        if link.welcome is not None:
            found.setdefault(link.welcome.device, []).append(link)
    return [combined(each, name, 0, Absence(), closing=False) for name, each in found.items()]


def combined(
    links: Sequence[WorkerConnection], device: str, waiting: int, absence: Absence, closing: bool
) -> Load:
    """Return the load of all workers together; `waiting` jobs have not been sent to one yet."""
    jobs = pixels = running = 0
    progress = rate = 0.0
    decoding = math.inf
    alive = takes_jpegs = False
    for link in links:
        for line in link.lines:
            if not line.gone.is_set():
                report = line.load
                jobs += report.queued_jobs
                pixels += report.queued_pixels
                running += report.running_jobs
                progress += report.progress
        if (up := link.line) is not None:
            alive = not closing
            rate += up.load.service_rate
            decoding = min(decoding, up.load.decoding)
            takes_jpegs = takes_jpegs or bool(up.welcome and up.welcome.takes_jpegs)
    return Load(
        device=device,
        queued_jobs=jobs + waiting,
        queued_pixels=pixels,
        running_jobs=running,
        service_rate=absence.rate(rate, alive),
        alive=alive,
        takes_jpegs=takes_jpegs,
        decoding=0.0 if math.isinf(decoding) else decoding,
        back_in=None if closing else absence.back_in(alive, hands_over=hands_over(links)),
        progress=progress,
    )
