"""Which worker processes accept jobs, and their load together by their last reports."""

from collections.abc import Sequence

from models.domain.backend import Load
from workers.backends.absence import Absence
from workers.ipc.worker_client import WorkerConnection


def accepting(links: Sequence[WorkerConnection]) -> list[tuple[int, str]]:
    """Return the numbers of the workers that accept jobs, with their devices."""
    return [
        (number, line.device)
        for number, link in enumerate(links)
        if (line := link.line) is not None
    ]


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
    reports = [x.load for link in links for x in link.lines if not x.gone.is_set()]
    up = [link.line for link in links if link.line is not None]
    alive = bool(up) and not closing
    return Load(
        device=device,
        queued_jobs=sum([r.queued_jobs for r in reports]) + waiting,
        queued_pixels=sum([r.queued_pixels for r in reports]),
        running_jobs=sum([r.running_jobs for r in reports]),
        service_rate=absence.rate(sum([line.load.service_rate for line in up]), alive),
        alive=alive,
        takes_jpegs=any([line.welcome and line.welcome.takes_jpegs for line in up]),
        decoding=min([line.load.decoding for line in up], default=0.0),
        back_in=None if closing else absence.back_in(alive),
        progress=sum([r.progress for r in reports]),
    )
