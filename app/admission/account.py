"""Keep account of the work that is admitted, and predict how long a request waits for it.

The unit is the second of one core, or of one GPU. An image costs its part of the cores while it is
past the line, from its decoding to its encoding: where N images share C cores, each of them has
min(1, C / N) core-seconds in a second (processor sharing: Kleinrock, 1967,
https://doi.org/10.1145/321386.321388). All together get min(N, C) in a second by construction,
wherever they wait for each other. So costs and the rate at which work is done always agree while
the mixture of images stays, and a machine that other programs use too, or that is short of memory,
shows itself in the costs alone.

Work is admitted while the wait is short: a queue of more than a few seconds serves no client
better, and its images die at their deadlines (a standing queue: Nichols and Jacobson, 2012,
"Controlling queue delay", https://queue.acm.org/detail.cfm?id=2209336). The wait is predicted for
each request, because clients take turns: a request waits for the work of its own client, and for
as much work of each other client.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from app.admission.counters import ByKey, Counters, Key, Total
from models.domain.errors import Overloaded

NEWEST = 0.1
"""Lowest weight of the newest image; so mainly the last ten images count, and all of fewer."""

STEP, FIRST = 4.0, 16.0
"""Times its expected cost that an image counts for at most, and the first image of its kind. A
machine that stood still for some seconds must not make a photo of 20 ms expect seconds."""

LEARNT = 0.2
"""Weight of the newest kind in the factor by which this machine is slower than declared."""

MOST_KINDS = 512
"""Kinds that are remembered. Clients name chains of filters, so their number must be bounded."""

SMALL = 17
"""Bits of the number of pixels up to which the cost does not follow the pixels: the cost of an
image of at most 256 × 256 is mainly that of any image."""

TYPICAL_PIXELS = 1 << 20
"""Pixels of an image of which nothing is known yet."""

SECONDS, NANOSECONDS = 1e-3, 20.0
"""What decoding and encoding are expected to take: for each image, and for each of its pixels."""


class Kind(NamedTuple):
    """One kind of work on an image, with the time that it is expected to take on one core.

    Equal work has equal keys. `seconds` are those of each image, `nanoseconds` those of each pixel.
    """

    key: Hashable
    seconds: float = 0.0
    nanoseconds: float = 0.0


Kinds = tuple[Kind, ...]
"""All work that is wanted of one image."""


@dataclass(slots=True)
class _Cost:
    """The mean of `measured` images; without any, an image takes these seconds at least."""

    seconds: float
    measured: int = 0


class CostModel:
    """Moving averages of costs, for each kind of work and each size of image in powers of two.

    A kind that was never measured is expected to cost what it declares, times the factor by which
    this machine was slower or faster for other kinds; at first `speed`.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._kinds: OrderedDict[Kinds, dict[int, _Cost]] = OrderedDict()
        self._speed = math.log(speed)

    def estimate(self, kinds: Kinds, pixels: int | None = None) -> float:
        """Return the seconds for one image; None pixels are those of a typical one.

        A size that was not seen yet costs what the nearest one does for each pixel.
        """
        known = self._kinds.get(kinds)
        if known is None:
            return _declared(kinds, pixels) * math.exp(self._speed)
        size = _size(pixels)
        if (cost := known.get(size)) is not None:
            return cost.seconds
        nearest = min(known, key=lambda each: abs(each - size))
        return float(known[nearest].seconds * 2.0 ** (size - nearest))

    def learn(
        self, kinds: Kinds, pixels: int | None, seconds: float, *, completed: bool = True
    ) -> None:
        """Learn from an image. One that was not completed shows only that a kind of which none was
        completed takes so long at least.
        """
        expected, known = self.estimate(kinds, pixels), self._kinds.setdefault(kinds, {})
        self._kinds.move_to_end(kinds)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        is_new = not any(each.measured for each in known.values())
        cost = known.setdefault(_size(pixels), _Cost(expected))
        if not completed:
            cost.seconds = max(cost.seconds, seconds) if is_new else cost.seconds
            return
        if is_new:
            slower = math.log(max(seconds, 1e-6) / _declared(kinds, pixels))
            self._speed += LEARNT * (slower - self._speed)
        cost.measured += 1
        more = min(seconds, (FIRST if is_new else STEP) * expected) - cost.seconds
        cost.seconds += more * max(NEWEST, 1 / cost.measured)


def _size(pixels: int | None) -> int:
    return max(SMALL, (pixels or TYPICAL_PIXELS).bit_length())


def _declared(kinds: Kinds, pixels: int | None) -> float:
    each = sum([kind.seconds for kind in kinds])
    pixel = sum([kind.nanoseconds for kind in kinds])
    return SECONDS + each + max(pixels or TYPICAL_PIXELS, 1 << SMALL) * (NANOSECONDS + pixel) * 1e-9


TARGET = 4.0
"""Seconds that a request may wait for the work before it; beyond that it is refused."""

MARGIN = 2.0
"""Factor of the predicted wait that must fit before a deadline: other clients may come and take
turns with the work that is already admitted, and other programs may take half of the machine."""

NEVER = 1e9
"""Seconds from which a deadline is none."""

MICRO = 1_000_000


class Account:
    """The expected work of all front ends; each writes what it admits into the shared counters.

    `cores` is the number of images that are computed at the same time, `speed` that of `CostModel`.
    """

    def __init__(self, counters: Counters, cores: float, speed: float = 1.0) -> None:
        self._counters = counters
        self.cores = cores
        self.costs = CostModel(speed)
        self.absence: Callable[[], float] = lambda: 0.0
        """Returns the seconds until a worker computes again; work that is admitted waits for it."""
        self._images = Counter[Key]()

    def charge(self, key: Key, work: int, images: int) -> None:
        """Count microseconds of work of a client and its images as admitted; negative ones less."""
        counters, had = self._counters, self._images[key]
        counters.add(Total.WORK, work)
        counters.add_for(key, ByKey.WORK, work)
        counters.add(Total.EXPECTED, images)
        self._images[key] = had + images
        if not had:
            counters.add(Total.CLIENTS, 1)
        if not self._images[key]:
            del self._images[key]
            counters.add(Total.CLIENTS, -1)

    def part(self, began: int) -> float:
        """Return the part of a core that an image has had, which found `began` images past the
        line, itself included.
        """
        return min(1.0, 2 * self.cores / (began + self._counters.total(Total.THROUGH)))

    def wait(self, key: Key, more: int = 0) -> float:
        """Return the seconds before `more` microseconds of work of a client begin; 0 while a core
        is free.

        Clients take turns, so only as much of each other client's work comes first as this one has
        itself, and what is past the line already.
        """
        counters = self._counters
        if counters.total(Total.EXPECTED) < self.cores:
            return 0.0
        own = counters.of(key, ByKey.WORK)
        others = counters.total(Total.CLIENTS) - (key in self._images)
        before = counters.total(Total.PAST) + own + others * (own + more)
        return max(0, min(counters.total(Total.WORK), before)) / MICRO / self.cores

    def backlog(self) -> float:
        """Return the seconds until all admitted work is done."""
        return self.absence() + self._counters.total(Total.WORK) / MICRO / self.cores

    def refusal(
        self, key: Key, remaining: float, work: int = 0, largest: int = 0
    ) -> Overloaded | None:
        """Return the refusal of `work` for a client, if it would wait for more than `TARGET`, or
        end after its deadline, which is `remaining` seconds away. `largest` is the part of its
        largest image.

        What can begin at once is never refused: whether its deadline can be met shows itself.
        """
        absence = self.absence()
        wait = absence + self.wait(key, work)
        if not wait or remaining > NEVER:
            return None
        own = max(largest, work / self.cores) / MICRO
        allowed = min(absence + TARGET, max(0.0, remaining - own) / MARGIN)
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
