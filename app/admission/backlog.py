"""The work that a front end has admitted, how fast it is done, and how long a request waits for it.

The work of an image is expected: microseconds on one core, by figures that were measured once on
one machine. The speed at which expected work is done is measured while some of it waits. So a
machine that is slower or faster, or that other programs use too, shows itself in the speed alone,
and expected work divided by the speed is a wait. Large images that wait for memory count as before
small ones of their client, although these pass them.

Work is admitted while the wait is short: a queue of more than a few seconds serves no client
better, and its images die at their deadlines (a standing queue: Nichols and Jacobson, 2012,
"Controlling queue delay", https://queue.acm.org/detail.cfm?id=2209336).
"""

import math
from collections import Counter
from collections.abc import Callable

from models.domain.errors import Overloaded

MICRO = 1e6
"""Microseconds of a second."""

WINDOW, FEW = 1.0, 8
"""Seconds of which the speed is a mean, and the number of images that count in any case."""

FIRST = 0.25
"""Seconds of measurement that the speed which is assumed at first is worth."""

TARGET = 4.0
"""Seconds that a request may wait for the work before it; beyond that it is refused."""

MARGIN = 2.0
"""Factor of the expected wait that must fit before a deadline: other clients may come and take
turns with the work that is already admitted, and other programs may take half of the machine."""

NEVER = 1e9
"""Seconds from which a deadline is none."""


class Backlog:
    """The admitted work of all clients of one front end.

    `cores` is the number of images that are computed at the same time; each core does `assumed`
    seconds of expected work in a second until the speed was measured.
    """

    def __init__(self, cores: float, assumed: float, clock: Callable[[], float]) -> None:
        self.cores = cores
        self.absence: Callable[[], float] = lambda: 0.0
        """Returns the seconds until a worker computes again; admitted work waits for it."""
        self._clock = clock
        self._images = Counter[str]()
        self._work = Counter[str]()
        self._count = self._all = self._past = self._through = 0
        self._done, self._seconds = assumed * cores * MICRO * FIRST, FIRST
        self._since: float | None = None
        """When the last image ended or work began to wait; None while nothing waits."""

    def add(self, client: str, work: int) -> None:
        """Count an image of a client as admitted."""
        self._images[client] += 1
        self._work[client] += work
        self._count += 1
        self._all += work
        if self._since is None and self._waits():
            self._since = self._clock()

    def remove(self, client: str, work: int, done: float) -> None:
        """Count an image no more; of its work, `done` was done."""
        self._images[client] -= 1
        self._work[client] -= work
        self._count -= 1
        self._all -= work
        if not self._images[client]:
            del self._images[client], self._work[client]
        if self._since is not None:
            now = self._clock()
            seconds = now - self._since
            kept = max(1 - 1 / FEW, math.exp(-seconds / WINDOW))
            self._done = kept * self._done + done
            self._seconds = kept * self._seconds + seconds
            self._since = now if self._waits() else None

    def passed(self, images: int, work: int) -> None:
        """Count images that have passed the line, or fewer, and their work that others wait for."""
        self._through += images
        self._past += work
        if not self._waits():
            self._since = None

    def speed(self) -> float:
        """Return the microseconds of expected work that are done in a second."""
        more = 0.0 if self._since is None else self._clock() - self._since
        return self._done / (self._seconds + more)

    def seconds(self, work: float) -> float:
        """Return the seconds that work takes on one core."""
        return work * self.cores / self.speed()

    def work_in(self, seconds: float) -> float:
        """Return the work that one core does in some seconds."""
        return seconds * self.speed() / self.cores

    def part(self, seconds: float) -> float:
        """Return the work that an image past the line has been given in some seconds."""
        return seconds * self.speed() / max(self.cores, self._through)

    def left(self) -> float:
        """Return the seconds until all admitted work is done."""
        return self.absence() + self._all / self.speed()

    def usual(self, client: str) -> int:
        """Return the mean work of the admitted images of a client."""
        return self._work[client] // max(1, self._images[client])

    def wait(self, client: str, more: int = 0) -> float:
        """Return the seconds before `more` work of a client begins; 0 while a core is free.

        Clients take turns, so only as much of each other client's work comes first as this client
        has itself, and the work that is past the line already.
        """
        if self._count < self.cores:
            return self.absence()
        own, others = self._work[client], len(self._work) - (client in self._work)
        before = self._past + own + others * (own + more)
        return self.absence() + min(self._all, before) / self.speed()

    def refusal(
        self, client: str, remaining: float, work: int = 0, largest: int = 0
    ) -> Overloaded | None:
        """Return the refusal of `work` for a client, if it would wait for more than `TARGET`, or
        end after its deadline, which is `remaining` seconds away. `largest` is the part of its
        largest image.

        What can begin at once is never refused: whether its deadline can be met shows itself.
        """
        wait = self.wait(client, work)
        if not wait or remaining > NEVER:
            return None
        own = max(self.seconds(largest), work / self.speed())
        allowed = min(self.absence() + TARGET, max(0.0, remaining - own) / MARGIN)
        if wait <= allowed:
            return None
        longer = max(wait, float(f"{allowed:.1f}") + 0.1)  # also as written
        return Overloaded(
            f"the work before this request takes about {longer:.1f} seconds, and it may wait for "
            f"{allowed:.1f}: at most {TARGET:g}, and half of the time to its deadline that its own "
            "work leaves; try again later or allow more time (X-Deadline-Ms)",
            retry_after=wait,
            reason="deadline",
        )

    def _waits(self) -> bool:
        return self._count > self._through
