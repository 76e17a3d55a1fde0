"""Predict when work that is admitted now will be completed, by measured costs and capacity."""

import time
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from app.admission.counts.counters import Counters, Key
from app.admission.counts.fields import ByKey, Total
from app.admission.line.places import Share
from app.admission.prediction.capacity import MICRO, Capacity
from app.admission.prediction.cost import CostModel
from models.domain.errors import Overloaded

MARGIN = 1.5
"""Factor of the predicted wait that must fit before a deadline, because other clients may come and
take turns with the work that is already admitted."""

FRESH = 0.02
"""Seconds for which the sum of the work of all clients is reused."""

HORIZON = 0.2
"""Seconds of work that may be past the line, where clients do not take turns any more."""

HORIZON_SHARED = 0.05
"""The same for `SHARED` seconds after several clients had work: batches are then smaller, and the
work of one client delays the others less."""

SHARED = 10.0
"""Seconds for which the server counts as shared after several clients had work."""

RESERVED = 2.0
"""Seconds after several clients had work in which one that holds more than half counts as bulk."""

NEVER = 1e9
"""Seconds from which a deadline is none."""


class Forecast:
    """Predicts waits, in seconds. All work is in microseconds of estimated time of the device."""

    def __init__(
        self,
        counters: Counters,
        busy_images: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counters = counters
        self._busy_images = busy_images
        self._clock = clock
        self._own = 0
        self._shared_until = self._reserved_until = self._foreground_until = -1.0
        self.background: Key | None = None
        """The client whose images take what others leave: the jobs."""
        self._clients = np.zeros(1, np.int64)
        self._added_up = -1.0
        self.absence: Callable[[], float] = lambda: 0.0
        """Returns the seconds until a worker computes again; work that is admitted waits for it."""
        self.overtaking: Callable[[str, float], float | None] = lambda _client, _cost: None
        """Returns the seconds that work of a client takes if it overtakes others of its line, else
        None; it takes the client and the seconds of work."""
        self.costs = CostModel(clock)
        self.capacity = Capacity(counters, busy_images, clock, self._absent)

    def _absent(self) -> float:
        return self.absence()  # which is set later

    def set_busy_images(self, n: int) -> None:
        """Count the server as busy with `n` images in flight, because workers came or went."""
        self._busy_images = self.capacity.busy_images = n

    def backlog(self) -> float:
        """Return the seconds until all admitted work is completed."""
        return self.longest(0)

    def longest(self, more: int) -> float:
        """Return the seconds until all admitted work and `more` work after it are completed."""
        return self.absence() + self.capacity.wait(self._counters.total(Total.WORK) + more)

    def room(self) -> float:
        """Return the seconds of work that this front end may have past its line."""
        horizon = HORIZON if self._clock() > self._shared_until else HORIZON_SHARED
        return horizon * self.capacity.per_second / self._counters.front_ends

    def room_behind(self) -> float:
        """Return the seconds of work in the background that this front end may have past its line,
        where it delays nothing else.
        """
        return HORIZON * self.capacity.per_second / self._counters.front_ends

    def note_clients(self, key: Key, own: int, total: int) -> None:
        """Note that a client with `own` of the `total` images in flight asks for more."""
        now = self._clock()
        if own < total:
            self._shared_until = now + SHARED
        if key != self.background:
            self._foreground_until = now + RESERVED
            if own < total - self._in_background():
                self._reserved_until = now + RESERVED

    def share(self, key: Key) -> Share:
        """Return whether a client holds more than half of all images, and whether others want some.

        A client with one image is small, and so is one alone that keeps the device just busy. The
        one in the background is never small while others want some, and does not count for them.
        """
        total = self._counters.total(Total.IMAGES)
        own = self._counters.of(key, ByKey.IMAGES)
        if key == self.background:
            if own < total or self._clock() < self._foreground_until:
                return Share.BULK
            return Share.LARGE if own > self._busy_images else Share.SMALL
        total -= self._in_background()
        if own <= 1 or 2 * own <= total:
            return Share.SMALL
        if own < total or self._clock() < self._reserved_until:
            return Share.BULK
        return Share.LARGE if own > self._busy_images else Share.SMALL

    def _in_background(self) -> int:
        """Return the images in flight that take what others leave."""
        return 0 if self.background is None else self._counters.of(self.background, ByKey.IMAGES)

    def wait(self, key: Key, more: int) -> float:
        """Return the seconds until a client's work and `more` work of it would be completed.

        Clients take turns, so only as much of each other client's work comes first as this one has
        itself, and what is past the line already.
        """
        absence = self.absence()
        if not self.capacity.per_second:
            return absence
        total = self._counters.total(Total.WORK)
        own = self._counters.of(key, ByKey.WORK)
        if own < total:
            ahead = int(np.minimum(self._of_clients(), own + more).sum())
            past = int(min(total, HORIZON * self.capacity.per_second * MICRO))
            total = min(total, max(own, ahead) + past)
        return absence + self.capacity.wait(total + more)

    def too_late(
        self, key: Key, remaining: float, work: int = 0, latency: float = 0.0, client: str = ""
    ) -> Overloaded | None:
        """Return the refusal of `work` more for a client if it would end after its deadline.

        The deadline is `remaining` seconds away; `latency` is how long the work takes when nothing
        is before it. Work of `client` that overtakes other work of its line is only refused if even
        that is too late. On an idle server nothing is refused: whether such a deadline can be met
        shows itself.
        """
        if self.longest(work) * MARGIN + latency <= remaining:
            return None  # even behind the work of all others; the usual case, without more sums
        if remaining > NEVER or not (self._counters.total(Total.WORK) or self.absence()):
            return None
        wait = self.wait(key, work)
        if wait * MARGIN + latency <= remaining:
            return None
        early = self.overtaking(client, work / MICRO)
        if early is not None and (self.absence() + early) * MARGIN + latency <= remaining:
            return None
        error = Overloaded(
            f"the work before this request takes about {wait:.1f} seconds, and its deadline "
            f"is in {remaining:.1f}; try again later or allow more time (X-Deadline-Ms)",
            retry_after=wait,
            reason="deadline",
        )
        error.lasts = wait - (remaining - latency) / MARGIN
        return error

    def least_work(self, kinds: Sequence[Hashable]) -> tuple[int, float]:
        """Return the work of one image, and the seconds it takes when nothing is before it.

        Of unknown kinds: the work of the kind that costs least.
        """
        if not kinds:
            return int(self.costs.least() * MICRO), 0.0
        work = sum(map(self.costs.estimate, kinds))
        return int(work * MICRO), max(map(self.costs.latency, kinds))

    def wait_here(self, work: float) -> float:
        """Return the seconds until `work` seconds of work in this front end's line are completed.

        Other front ends have lines too, which are served at the same time.
        """
        total = max(self._counters.total(Total.WORK), self._own, 1)
        return self.capacity.wait(work * MICRO * total / max(self._own, 1))

    def charge(self, key: Key, work: int) -> None:
        """Count work of a client as admitted; a negative number counts less."""
        if work:
            self._own += work
            self._counters.add(Total.WORK, work)
            self._counters.add_for(key, ByKey.WORK, work)

    def done(self, work: int) -> None:
        """Count work as completed; `charge` has already subtracted it."""
        self._counters.add(Total.DONE, work)
        self.capacity.look(completed=1)

    def _of_clients(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        now = self._clock()
        if now - self._added_up > FRESH:
            self._clients, self._added_up = self._counters.all_of(ByKey.WORK), now
        return self._clients
