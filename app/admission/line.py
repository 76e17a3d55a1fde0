"""The fair line: admitted images of all clients wait in it once, before decoding and computing.

The work of an image is expected: microseconds on one core, by figures that were measured once on
one machine. The speed at which expected work is done is measured while images keep all cores busy,
on CPUs first in the warm-up. So a machine that is slower or faster, or that other programs use too,
shows itself in the speed alone, and expected work divided by the speed is a wait.

Requests are admitted while the wait is short: a queue of more than a few seconds serves no client
better, and its images die at their deadlines (a standing queue: Nichols and Jacobson, 2012,
"Controlling queue delay", https://queue.acm.org/detail.cfm?id=2209336).
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from models.domain.deadline import NEVER, Deadline
from models.domain.errors import Overloaded
from models.domain.fair_queue import FairQueue, Lack
from models.domain.job import Lane

if TYPE_CHECKING:
    from app.admission.permits import Permit

WINDOW, FEW = 1.0, 8
"""Seconds of which the speed is a mean, and the number of images that count in any case."""

FIRST = 0.25
"""Seconds of measurement that the speed which is assumed at first is worth."""

TARGET = 3.0
"""Seconds that a request may wait for the work before it; beyond that it is refused."""

MARGIN = 2.0
"""Factor of the expected wait that must fit before a deadline: other clients may come and take
turns with the work that is already admitted, and other programs may take half of the machine."""

MOST_WORK = 2_000_000
"""Microseconds that an image counts as at most. Slower work, such as an AVIF at speed 0, keeps one
core busy while others go on, and must not hold up all clients; nor must a size that is claimed. The
end of slower work says nothing of the speed."""

HORIZON = 0.1
"""Seconds of work that may be past the line, where clients do not take turns any more."""


class Turn:
    """The turn of one image; no generators, which are slower.

    While a `with` block runs, the image is part of the work that others wait for. In it, `take`
    waits until the line lets the image through. An image that lacks memory calls `leave`, waits for
    memory, and takes another turn.
    """

    __slots__ = ("_line", "began", "lane", "permit", "work")

    def __init__(self, line: "FairLine", permit: "Permit", work: int) -> None:
        self._line = line
        self.permit = permit
        self.work = min(MOST_WORK, work)
        self.lane: Lane | None = None
        """The lane in which the image is through; None before its turn."""
        self.began = 0.0

    def __enter__(self) -> "Turn":
        self._line.count(self, 1)
        return self

    async def take(self) -> None:
        """Wait until the line lets the image through."""
        flow = self.permit.client, self.permit.in_background
        if self._line.queue.take_now(flow, self) is None:
            await self._line.queue.take(flow, self, self.work)

    def leave(self) -> None:
        """Give the turn to other images, if the image has it; it stays admitted."""
        if self.lane is not None:
            self._line.remove(self)
            self._line.queue.wake()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._line.end(self, failed=kind is not None)


class FairLine:
    """Lets as many images through as keep decoding and computing busy; clients take turns.

    That is `least` images, or the work of `HORIZON` seconds. What is through is served in the order
    of its arrival, so everything beyond that would only wait behind itself.

    Images of a client that holds most, in the lane for bulk, do not count for those of others,
    because behind the line they go after them. Images that have begun are not interrupted: beside
    others at most `most_bulk` of them are through. Alone the client may have `alone` images there,
    which fill its batches. Images of jobs have `least` places of their own, and are never counted
    as work that others wait for.

    `cores` is the number of images that are computed at the same time; each core does `assumed`
    seconds of expected work in a second until the speed was measured. Half of `least` images keep
    all cores, or a GPU, busy: on CPUs the other half are decoded meanwhile.
    """

    def __init__(
        self,
        least: int,
        cores: float,
        assumed: float,
        clock: Callable[[], float],
        most_bulk: int | None = None,
        alone: int = 0,
    ) -> None:
        self._clock = clock
        self.set_images(least, alone, cores)
        self._most_bulk = least if most_bulk is None else most_bulk
        self._images = dict.fromkeys(Lane, 0)
        self._work_in = dict.fromkeys(Lane, 0)
        self.queue = FairQueue[Turn, Turn](self._attempt, self.remove)
        self._work = Counter[str]()
        self._count = self._all = self._through = 0
        self._done, self._seconds = assumed * cores * 1e6 * FIRST, FIRST
        self._since: float | None = None
        """When the last image ended or all cores got work; None while there are few images."""

    def set_images(self, least: int, alone: int, cores: float = 0.0) -> None:
        """Let this many images through, and this many of a client alone.

        They keep `cores` busy, by default as many cores as images.
        """
        self.least = self._most_bulk = least
        self._alone = max(least, alone)
        self._cores = cores or least

    # The work that is admitted, and how long a request waits for it.

    def speed(self) -> float:
        """Return the microseconds of expected work that are done in a second."""
        seconds = self._seconds
        if self._since is not None and self._count > self._through:
            seconds += self._clock() - self._since  # a queue that does not move is a longer wait
        return self._done / seconds

    def left(self) -> float:
        """Return the seconds until all admitted work is done."""
        return self._all / self.speed()

    def wait(self, client: str) -> float:
        """Return the seconds before the next image of a client begins; 0 while a core is free.

        Clients take turns: of each other client, as much work comes first as this client has with
        the next image, which is expected to be like the admitted images.
        """
        if self._count < self._cores:
            return 0.0
        most = self._work[client] + self._all / self._count
        return sum([each if each < most else most for each in self._work.values()]) / self.speed()

    def check(self, client: str, deadline: Deadline, images: int = 1) -> None:
        """Raise Overloaded if this many images would wait for more than `TARGET`, or end after
        their deadline.

        What can begin at once is never refused: whether its deadline can be met shows itself.
        """
        wait = self.wait(client)
        if not wait or deadline == NEVER:
            return
        further = (images - 1) * self._all / self._count / self.speed()
        left = max(0.0, deadline.remaining(self._clock()) - further)
        allowed = min(TARGET, left / MARGIN)
        if wait <= allowed:
            return
        longer = max(wait, float(f"{allowed:.1f}") + 0.1)  # also as written
        raise Overloaded(
            f"the work before this request takes about {longer:.1f} seconds, and it may wait for "
            f"{allowed:.1f}: at most {TARGET:g}, and half of the time to its deadline that its own "
            "work leaves; try again later or allow more time (X-Deadline-Ms)",
            retry_after=wait,
            reason="deadline",
        )

    # The turns.

    def count(self, turn: Turn, images: int) -> None:
        """Count an image of requests as admitted with 1, and no more with -1."""
        if turn.permit.in_background:
            return
        client, work = turn.permit.client, images * turn.work
        self._count += images
        self._all += work
        self._work[client] += work
        if not self._work[client]:
            del self._work[client]
        if self._since is None and self._is_busy():
            self._since = self._clock()

    def end(self, turn: Turn, *, failed: bool) -> None:
        """Count an image no more, and give its turn to a waiting image."""
        now, done = self._clock(), float(turn.work)
        if failed:  # a file may claim more pixels than it has, and fail at once
            seconds = 0.0 if turn.lane is None else now - turn.began
            done = min(done, seconds * self.speed() / max(self._cores, self._through))
        if turn.lane is not None:
            self.remove(turn)
        self.count(turn, -1)
        if self._since is not None and not turn.permit.in_background:
            if turn.work < MOST_WORK:
                seconds = now - self._since
                kept = max(1 - 1 / FEW, math.exp(-seconds / WINDOW))
                self._done = kept * self._done + done
                self._seconds = kept * self._seconds + seconds
            self._since = now if self._is_busy() else None
        self.queue.wake()

    def _is_busy(self) -> bool:
        return 2 * self._count >= self.least

    def _attempt(self, turn: Turn, _since: int) -> Turn | Lack:
        lane, contended = turn.permit.standing()
        if (lack := self._lack(lane, contended)) is not None:
            return lack
        turn.lane = turn.permit.lane = lane
        turn.began = self._clock()
        self._images[lane] += 1
        self._work_in[lane] += turn.work
        self._through += lane is not Lane.BACKGROUND
        return turn

    def remove(self, turn: Turn) -> None:
        """End a turn; the queue has to be woken afterwards."""
        lane, turn.lane = turn.lane, None
        assert lane is not None
        self._images[lane] -= 1
        self._work_in[lane] -= turn.work
        self._through -= lane is not Lane.BACKGROUND

    def _lack(self, lane: Lane, contended: bool) -> Lack | None:
        images, work, least = self._images[lane], self._work_in[lane], self.least
        if lane is Lane.BULK:
            if not contended:
                least = self._alone
            elif images >= self._most_bulk:
                return Lack.OWN
            images += self._images[Lane.INTERACTIVE]
            work += self._work_in[Lane.INTERACTIVE]
        if images < least or work < HORIZON * self.speed():
            return None
        return Lack.OWN if lane is Lane.BACKGROUND else Lack.ALL
