"""Images that wait in line, by client.

The images of one client are served in the order in which they would end if all of them shared the
client's part equally (processor sharing). So short work goes before long work, and no image ends
later than it would by equal shares, but for the one image that has begun (Friedman and Henderson,
2003, "Fairness and efficiency in web server protocols", https://doi.org/10.1145/781027.781056).
The virtual time of a client is what one image would have got by now: what the client got, divided
among the images that have not ended by equal shares (as in weighted fair queueing: Demers, Keshav
and Shenker, 1989, https://doi.org/10.1145/75247.75248). The rank of an image is the virtual time at
which it came plus its cost, so it is fixed, while that of later images grows. Images of the same
kind and size keep the order of asking whatever the estimate of their cost does meanwhile.

An image is overtaken only for as long as it would still be in time if the order of asking were kept
from then on: until it is overdue. While an image is overdue, the order of asking holds up to it, so
nothing that came later delays it further.
"""

import heapq
import math
from collections import deque
from collections.abc import Hashable

from app.admission.line.places import Place
from app.admission.line.waiting import Group, Waiting, rounded

LONGEST_OVERTAKEN = 15.0
"""Seconds for which later images of its client may go before an image, at most."""

SURE = 0.75
"""Part of the slack of an image that others may use. What is left keeps it from being refused late
because others went before it and its wait was predicted a little wrongly."""

CHEAP = 2
"""An image overtakes others if it costs less than this part of their mean: 1 / CHEAP."""

SPARE = 64
"""Ended images that a heap may hold beyond as many as there are live ones."""


_Heap = list[tuple[float, int, Waiting]]


class ClientQueue:
    """The images of one client that wait.

    `start` is the virtual time among all clients at which its next image starts, `finish` the one
    at which the last image that was let through ends.
    """

    __slots__ = (
        "_asked",
        "_by_rank",
        "_gone",
        "_groups",
        "_overdue",
        "_sharing",
        "_virtual",
        "away",
        "finish",
        "in_line",
        "live",
        "start",
        "work",
    )

    def __init__(self) -> None:
        self.start = self.finish = 0.0
        self.in_line = False
        """Whether the client is among those that get turns."""
        self.live = 0
        """Images that wait, including those whose requests have just ended."""
        self.work = 0.0
        """Their seconds of work, as estimated when they came."""
        self.away: set[Place] = set()
        """Places that images left for a while, to wait for memory. Cheap ones need not wait too."""
        self._gone = 0
        """Images whose requests ended while they waited, since the heaps were last tidied."""
        self._virtual = 0.0
        self._groups: dict[Hashable, Group] = {}
        self._by_rank: _Heap = []
        self._overdue: _Heap = []
        """The same images by the moment from which they are overdue."""
        self._asked: deque[Waiting] = deque()
        """The same images in the order of asking."""
        self._sharing: _Heap = []
        """Images that have not ended by equal shares, by rank; some may have ended in fact."""

    def add(self, image: Waiting, now: float, slack: float) -> None:
        """Let an image wait; in the order of asking it would end `slack` seconds too early."""
        half = image.deadline.remaining(now) / 2
        image.overdue_at = now + min(LONGEST_OVERTAKEN, half, max(0.0, SURE * slack))
        image.came = self._virtual
        image.peers = self._groups.setdefault(image.group, image.peers)
        image.peers.live += 1
        image.ranked_again()
        self.live += 1
        self.work += image.cost
        if max(len(self._overdue), self._gone) > 2 * self.live + SPARE:
            self._tidy()
        entry = (image.rank, image.number, image)
        heapq.heappush(self._by_rank, entry)
        heapq.heappush(self._sharing, entry)
        heapq.heappush(self._overdue, (image.overdue_at, image.number, image))
        self._asked.append(image)

    def first(self, now: float) -> Waiting | None:
        """Return the image that is to be served next, None if there is none."""
        by_rank, asked = self._by_rank, self._asked
        late = self.overdue_from() <= now
        while asked and asked[0].turn.done():
            asked.popleft()
        if late:
            return asked[0]
        while by_rank:
            rank, number, image = by_rank[0]
            if image.turn.done():
                heapq.heappop(by_rank)
            elif rank < image.rank or image.ranked_again():  # it costs more than was known
                heapq.heapreplace(by_rank, (image.rank, number, image))
            else:
                return image
        return None

    def before(self, cost: float) -> float | None:
        """Return the seconds of work in line that is served before a new image of `cost` seconds.

        The result is None if the image is not much cheaper than those that wait, in line or for
        memory, because then it overtakes few of them or none.
        """
        images = self.live + len(self.away)
        work = self.work + sum([place.estimate() for place in self.away])
        if not images or CHEAP * cost * images > work:
            return None
        rank = self._virtual + rounded(cost)
        return sum(
            [each.cost for each in self._asked if each.rank <= rank and not each.turn.done()]
        )

    def in_line_now(self) -> float:
        """Return the seconds of work that waits in line, as estimated now."""
        return sum([each.estimate() for each in self._asked if not each.turn.done()])

    def overdue_from(self) -> float:
        """Return the moment from which the order of asking holds if nothing is served before."""
        overdue = self._overdue
        while overdue and overdue[0][2].turn.done():
            heapq.heappop(overdue)
        return overdue[0][0] if overdue else math.inf

    def served(self, image: Waiting) -> None:
        """Count an image as let through; images that have not ended by equal shares get a part."""
        self._leave(image)
        sharing, cost = self._sharing, image.rank - image.came
        while sharing and cost > 0:
            rank, number, first = sharing[0]
            if first.gone:
                heapq.heappop(sharing)
            elif rank < first.rank:
                heapq.heapreplace(sharing, (first.rank, number, first))
            elif (whole := (rank - self._virtual) * len(sharing)) <= cost:
                heapq.heappop(sharing)
                self._virtual, cost = rank, cost - whole
            else:
                self._virtual += cost / len(sharing)
                return

    def dropped(self, image: Waiting) -> None:
        """Forget an image whose request has ended."""
        image.gone = True
        self._gone += 1
        self._leave(image)

    def in_order(self, now: float) -> list[Waiting]:
        """Return the images in the order in which they are served if no other comes."""
        waiting = [image for image in self._asked if not image.turn.done()]
        late = max([each.number for each in waiting if each.overdue_at <= now], default=0)
        waiting.sort(key=lambda each: (0.0 if each.number <= late else each.rank, each.number))
        return waiting

    def _leave(self, image: Waiting) -> None:
        self.live -= 1
        self.work -= image.cost
        image.peers.live -= 1
        if not image.peers.live:
            del self._groups[image.group]
        if not self.live:
            self._sharing.clear()
            self._virtual = self.work = 0.0

    def _tidy(self) -> None:
        """Remove what has ended from the heaps; rarely, because it looks at all images."""
        self._gone = 0
        self._asked = deque(image for image in self._asked if not image.turn.done())
        self._by_rank = [entry for entry in self._by_rank if not entry[2].turn.done()]
        self._overdue = [entry for entry in self._overdue if not entry[2].turn.done()]
        self._sharing = [entry for entry in self._sharing if not entry[2].gone]
        for heap in (self._by_rank, self._overdue, self._sharing):
            heapq.heapify(heap)
