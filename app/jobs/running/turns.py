"""Choose the jobs that a process works on, so that no client occupies all places."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from app.jobs.store.values import Job

JOBS_AT_ONCE = 8
"""Jobs that one process works on at a time; they share its slots for images (`slots.py`)."""

TURN = 30.0
"""Seconds for which a job is worked on before it gives way to a job of another client that has as
many before it."""

LOOK_AROUND = 5.0
"""Seconds between two looks for waiting jobs while JOBS_AT_ONCE are in work."""


class Turns:
    """The jobs in work; `clock` returns seconds.

    The first job of each client comes before the second job of any client. Clients with equally
    many jobs in work take turns. Jobs of one client are worked on in the order of their arrival.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._look_at = 0.0
        self.over: set[str] = set()
        """Jobs in work of which no further chunk is begun, because others have waited."""

    def is_due(self) -> bool:
        """Return whether it is time to look for jobs that wait."""
        return len(self._begun) - len(self.over) < JOBS_AT_ONCE or self._clock() >= self._look_at

    def choose(
        self, runnable: Sequence[Job], rests: Callable[[str], bool] = lambda _id: False
    ) -> list[Job]:
        """Return the jobs whose turn begins, and set `over`.

        `runnable` are jobs with chunks that wait: the first of each client, then the second ones.
        A job that `rests` keeps its place behind those that have not had their turn.
        """
        now = self._clock()
        self._look_at = now + LOOK_AROUND
        known = {job.id for job in runnable}
        self._ended = {id_: at for id_, at in self._ended.items() if id_ in known}
        runnable = [job for job in runnable if not rests(job.id)]
        ranks, of_client = dict[str, int](), Counter[str]()
        for job in runnable:
            ranks[job.id] = of_client[job.client]
            of_client[job.client] += 1
        idle = [job for job in runnable if job.id not in self._begun]
        idle.sort(key=lambda job: (ranks[job.id], self._ended.get(job.id, 0.0)))
        working = self._begun.keys() - self.over
        room = JOBS_AT_ONCE - len(working)
        chosen = idle[:room]
        lasting = [id_ for id_ in working if id_ in ranks]  # the others end by themselves
        lasting.sort(key=lambda id_: (-ranks[id_], self._begun[id_]))
        for job, id_ in zip(idle[room:], lasting, strict=False):
            ahead = ranks[id_] - ranks[job.id]
            if ahead < 0 or (ahead == 0 and now - self._begun[id_] < TURN):
                break
            self.over.add(id_)
            chosen.append(job)
        return chosen

    def begin(self, id_: str) -> None:
        """Note that a job is in work."""
        self._begun[id_] = self._clock()

    def end(self, id_: str) -> None:
        """Note that a job is not in work any more; if it has chunks left, others come before it.

        That also holds for one that rests after a fault, which would else return to its place.
        """
        del self._begun[id_]
        self.over.discard(id_)
        self._ended[id_] = self._clock()
