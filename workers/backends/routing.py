"""Choose the worker of a job: the one that is expected to finish it first.

Join the shortest queue, in seconds of work and over all front ends (Gupta et al., 2007, "Analysis
of join-the-shortest-queue routing for web server farms", https://doi.org/10.1016/j.peva.2007.06.012).
A worker is expected to finish a job after all work that it has been given, by the times that such
images have taken on its device. So a GPU of half the speed gets half as many of them.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Protocol

from models.domain.job import Job
from workers.ipc.frames import Done, Times
from workers.ipc.worker_client import Pending

UNKNOWN = 1_000_000
"""Nanoseconds that an image of an unknown kind counts as."""

NEWEST = 0.1
"""Weight of the newest image of a kind: about the last ten count."""

MOST_KINDS = 512
"""Kinds that are remembered: clients name chains of filters, so their number must be bounded."""


class Work(Protocol):
    """The nanoseconds of work that each worker has been given and has not answered."""

    def add(self, worker: int, nanoseconds: int) -> None:
        """Add to a worker's work; the sum of what this process adds is 0 once all is answered."""

    def totals(self) -> Sequence[int]:
        """Return the work of each worker, over all processes that give it some."""


class OwnWork:
    """The work that this process alone has given to `workers` workers."""

    def __init__(self, workers: int) -> None:
        self._totals = [0] * workers

    def add(self, worker: int, nanoseconds: int) -> None:
        """Add to a worker's work."""
        self._totals[worker] += nanoseconds

    def totals(self) -> Sequence[int]:
        """Return the work of each worker."""
        return self._totals


class JobTimes:
    """Nanoseconds that images took by device, kind of work and size: exponentially weighted means.

    An image counts with its equal part of the time of its batch. On a device that has not computed
    such an image, it takes as long as on the device that did so last.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[str, Hashable, int], float] = OrderedDict()

    def learn(self, device: str, job: Job, times: Times) -> None:
        """Learn from an answer; `times` are those of its trace."""
        _, upload, decode, compute, download, size, *_ = times
        newest = (upload + decode + compute + download) / max(size, 1) * 1e9
        kind, bits = _kind(job)
        for name in (device, ""):
            key = name, kind, bits
            before = self._times.pop(key, newest)  # it goes to the end: the last used is kept
            self._times[key] = before + (newest - before) * NEWEST
        while len(self._times) > MOST_KINDS:
            self._times.popitem(last=False)

    def expected(self, device: str, job: Job) -> int:
        """Return the nanoseconds that a job is expected to take on a device."""
        kind, bits = _kind(job)
        found = self._times.get((device, kind, bits)) or self._times.get(("", kind, bits), UNKNOWN)
        return int(found) + 1


class Router:
    """Chooses workers, and counts the work that they have been given."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._times = JobTimes()

    def choose(self, pending: Pending, devices: Sequence[tuple[int, str]]) -> int:
        """Return the number of the worker for a job, whose work has the job from now on.

        `devices` are the numbers of the workers that accept jobs, with their devices.
        """
        job = pending.job
        if len(devices) == 1:
            return self._given(pending, devices[0][0], self._times.expected(devices[0][1], job))
        totals = self._work.totals()
        best, least, own = -1, 0, 0
        known = dict[str, int]()  # of a few devices, while there may be a hundred workers
        for worker, device in devices:
            if (expected := known.get(device)) is None:
                expected = known[device] = self._times.expected(device, job)
            end = totals[worker] + expected
            if best < 0 or end < least:
                best, least, own = worker, end, expected
        return self._given(pending, best, own)

    def _given(self, pending: Pending, worker: int, expected: int) -> int:
        self._work.add(worker, expected)
        pending.worker, pending.expected = worker, expected
        return worker

    def ended(self, pending: Pending, done: Done | None = None) -> None:
        """Note that a worker gave a job back, and learn from its answer if there is one."""
        self._work.add(pending.worker, -pending.expected)
        if done is not None and done.trace is not None and pending.line is not None:
            self._times.learn(pending.line.device, pending.job, done.trace)


def _kind(job: Job) -> tuple[Hashable, int]:
    return job.operation.batch_key, job.image.n_pixels.bit_length()
