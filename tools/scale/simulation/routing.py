"""How the front ends of a cluster choose a worker, by the real router wherever it scales.

`Router` of `workers/backends/routing.py` looks at every worker that it is given. With two random
workers that is the power of two choices (Mitzenmacher, 2001,
https://doi.org/10.1109/71.963420), as Ray Serve routes, but by seconds of work. With a thousand it
takes a part of a millisecond for each image, so `Fullest` finds the same worker by a heap; a test
compares the two.
"""

import heapq
import random
from collections.abc import Sequence
from typing import Protocol

from models.domain.job import Job
from workers.backends.routing import OwnWork, Router
from workers.ipc.frames import Done, Times


class Choice:
    """What the real router needs of a `Pending`: the job, and where its work was counted."""

    __slots__ = ("device", "expected", "job", "line", "worker")

    def __init__(self, job: Job) -> None:
        self.job, self.worker, self.expected = job, -1, 0
        self.device = "cpu"
        self.line = self

    def __repr__(self) -> str:
        return f"Choice({self.worker}, {self.expected})"


class Policy(Protocol):
    """Chooses a worker of those that are known to be up."""

    def choose(self, choice: Choice) -> int:
        """Return the number of a worker, which has the job from now on."""

    def ended(self, choice: Choice, seconds: float, size: int) -> None:
        """Note that a worker gave a job back; its batch of `size` took `seconds`, 0 if lost."""

    def gone(self, worker: int) -> None:
        """Stop choosing this worker."""

    def back(self, worker: int) -> None:
        """Choose this worker again."""


class _ByRouter:
    """The workers that are up, and the real router; subclasses choose the candidates."""

    def __init__(self, workers: int, seed: int) -> None:
        self.work = OwnWork(workers)
        self.router = Router(self.work)
        self._up = list(range(workers))
        self._place = {worker: worker for worker in range(workers)}
        self._chance = random.Random(seed)  # noqa: S311 (no secret)

    def ended(self, choice: Choice, seconds: float, size: int) -> None:
        """Note that a worker gave a job back, and teach the router its time."""
        done = None
        if seconds and choice.worker % 16 == 0:  # a sample is enough: all jobs are of one kind
            times: Times = (0.0, 0.0, 0.0, seconds, 0.0, size, size, "idle", 0.0, "")
            done = Done(0, trace=times)
        self.router.ended(choice, done)  # type: ignore[arg-type]  # it has what the router reads

    def gone(self, worker: int) -> None:
        """Stop choosing this worker."""
        if worker in self._place:
            place, last = self._place.pop(worker), self._up.pop()
            if last != worker:
                self._up[place], self._place[last] = last, place

    def back(self, worker: int) -> None:
        """Choose this worker again."""
        if worker not in self._place:
            self._place[worker] = len(self._up)
            self._up.append(worker)


class AllWorkers(_ByRouter):
    """The real router with all workers as candidates."""

    def choose(self, choice: Choice) -> int:
        """Return the worker with the least work."""
        devices = [(worker, "cpu") for worker in sorted(self._up)]
        return self.router.choose(choice, devices)  # type: ignore[arg-type]  # as above


class TwoWorkers(_ByRouter):
    """The real router with two random workers as candidates: power of two choices by work."""

    def choose(self, choice: Choice) -> int:
        """Return that of two random workers which has less work."""
        up, pick = self._up, self._chance.random
        first, second = up[int(pick() * len(up))], up[int(pick() * len(up))]
        pair: Sequence[tuple[int, str]] = ((first, "cpu"), (second, "cpu"))
        return self.router.choose(choice, pair)  # type: ignore[arg-type]  # as above


class OneWorker(_ByRouter):
    """A random worker, which needs no knowledge at all."""

    def choose(self, choice: Choice) -> int:
        """Return any worker."""
        one = self._up[int(self._chance.random() * len(self._up))]
        return self.router.choose(choice, ((one, "cpu"),))  # type: ignore[arg-type]  # as above


class Fullest(_ByRouter):
    """The worker with the least work of all, found in logarithmic time by a heap of totals.

    Entries of former totals stay in the heap until they come up; among equals the lowest number
    wins, as in the real router.
    """

    def __init__(self, workers: int, seed: int) -> None:
        super().__init__(workers, seed)
        self._heap = [(0, worker) for worker in range(workers)]

    def choose(self, choice: Choice) -> int:
        """Return the worker with the least work."""
        heap, totals = self._heap, self.work.totals()
        while True:
            total, worker = heap[0]
            if worker in self._place and total == totals[worker]:
                break
            heapq.heappop(heap)
        self.router.choose(choice, ((worker, "cpu"),))  # type: ignore[arg-type]  # as above
        heapq.heapreplace(heap, (totals[worker], worker))
        return worker

    def ended(self, choice: Choice, seconds: float, size: int) -> None:
        """Note that a worker gave a job back."""
        super().ended(choice, seconds, size)
        self._push(choice.worker)

    def back(self, worker: int) -> None:
        """Choose this worker again."""
        super().back(worker)
        self._push(worker)

    def _push(self, worker: int) -> None:
        heapq.heappush(self._heap, (self.work.totals()[worker], worker))


class Stale(_ByRouter):
    """The worker with the least work of all by totals that are up to `age` seconds old.

    Each of `front_ends` adds what it has given since; ties are broken by chance.
    """

    def __init__(self, workers: int, seed: int, front_ends: int) -> None:
        super().__init__(workers, seed)
        self._front_ends, self._workers = front_ends, workers
        self._heaps: list[list[tuple[float, float, int]]] = []
        self.refresh()

    def refresh(self) -> None:
        """Let all front ends know the totals of now."""
        totals, chance = self.work.totals(), self._chance.random
        self._heaps = []
        for _ in range(self._front_ends):
            heap = [(float(totals[worker]), chance(), worker) for worker in self._up]
            heapq.heapify(heap)
            self._heaps.append(heap)

    def choose(self, choice: Choice) -> int:
        """Return the worker with the least work, as far as a random front end knows."""
        heap = self._heaps[int(self._chance.random() * self._front_ends)]
        while heap[0][2] not in self._place:
            heapq.heappop(heap)
        total, _, worker = heap[0]
        self.router.choose(choice, ((worker, "cpu"),))  # type: ignore[arg-type]  # as above
        heapq.heapreplace(heap, (total + choice.expected, self._chance.random(), worker))
        return worker


def policy(name: str, workers: int, seed: int, front_ends: int = 1) -> Policy:
    """Return a policy by its name."""
    if name == "full knowledge":
        return Fullest(workers, seed)
    if name.startswith("known"):
        return Stale(workers, seed, front_ends)
    return OneWorker(workers, seed) if name == "random" else TwoWorkers(workers, seed)
