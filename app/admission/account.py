"""Keep account of the work that is admitted, and tell how long it takes until it is done.

The unit is the second of one core, or of one GPU. The cost of an image is its part of the cores
while it is past the line, from its decoding to its encoding: with N images there and C cores, each
of them gets min(N, C) / N core-seconds in a second (processor sharing: Kleinrock, 1967,
https://doi.org/10.1145/321386.321388). All of them together get min(N, C) in a second by
construction, wherever they wait for each other. So costs and the rate at which work is done always
agree while the mixture of images stays, and a machine that other programs use too shows itself in
the costs alone. The integral of min(N, C) / N is kept, so measuring an image takes two readings.

Work is admitted while the wait is short: a queue of more than a few seconds serves no client
better, and its images die at their deadlines (a standing queue: Nichols and Jacobson, 2012,
"Controlling queue delay", https://queue.acm.org/detail.cfm?id=2209336). CoDel measures the wait of
the image that leaves the queue. Here the wait is predicted for each request, because clients
differ: each waits for its own work, and for as much work of each other client.

Costs are moving averages by kind of work and size of image. The cost of a kind that was never
measured is expected by its declaration (`Kind`): seconds of one machine, times the factor by which
this machine was slower or faster for other kinds.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from app.admission.counters import ByKey, Counters, Key, Total
from models.domain.errors import Overloaded

NEWEST = 0.05
"""Lowest weight of the newest image; so mainly the last twenty images count, and all of fewer."""

COST_MEMORY = 2.0
"""Seconds after which what was measured before has at most 1/e of its influence left, however few
images came meanwhile: the machine may have become slower."""

MOST_KINDS = 512
"""Kinds that are remembered. Clients name chains of filters, so their number must be bounded."""

LEARNT = 0.2
"""Weight of the newest kind in the factor by which this machine is slower than declared."""

STEP, FIRST = 4.0, 16.0
"""Times its expected cost that an image counts for at most, and the first image of its kind. A
machine that stood still for some seconds must not make a photo of 20 ms expect seconds."""

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
class _Known:
    """Seconds by the number of bits of the pixels, and their mean."""

    mean: float
    measured: int
    """Images that were completed; without any, an image takes these seconds at least."""
    at: float = 0.0
    """When the last image was measured."""
    sizes: dict[int, float] = field(default_factory=dict)


class CostModel:
    """Exponentially weighted means of costs for each kind of work and size of image.

    `speed` is how many times as long as declared work takes here, before anything was measured.
    """

    def __init__(self, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: OrderedDict[Kinds, _Known] = OrderedDict()
        self._speed = math.log(speed)

    def estimate(self, kinds: Kinds, pixels: int | None = None) -> float:
        """Return the seconds for one image; without its size those of the mean image of its kind.

        A size that was not seen yet costs what the nearest one does for each pixel.
        """
        known = self._kinds.get(kinds)
        if known is None:
            return _declared(kinds, pixels or TYPICAL_PIXELS) * math.exp(self._speed)
        if pixels is None:
            return known.mean
        size = pixels.bit_length()
        if (cost := known.sizes.get(size)) is not None:
            return cost
        nearest = min(known.sizes, key=lambda each: abs(each - size))
        return known.sizes[nearest] * 2.0 ** (max(size, SMALL) - max(nearest, SMALL))

    def learn(self, kinds: Kinds, pixels: int, seconds: float) -> None:
        """Learn from an image that was completed."""
        known = self._kinds.get(kinds)
        if known is None or not known.measured:
            declared = _declared(kinds, pixels)
            expected = declared * math.exp(self._speed)
            ratio = math.log(max(seconds, 1e-6) / declared)
            self._speed += LEARNT * (ratio - self._speed)
            self._kinds.pop(kinds, None)
            self._set(kinds, pixels, min(seconds, FIRST * expected), completed=1)
            return
        expected = self.estimate(kinds, pixels)
        now = self._clock()
        lately = 1 - math.exp((known.at - now) / COST_MEMORY)
        weight = max(NEWEST, 1 / (known.measured + 1), lately)
        more = (min(seconds, STEP * expected) - expected) * weight
        self._set(kinds, pixels, expected + more, completed=1)

    def at_least(self, kinds: Kinds, pixels: int, seconds: float) -> None:
        """Learn from an image that took so long and was not completed.

        Of kinds that were measured, nothing is learnt: the machine is slow at this moment.
        """
        known = self._kinds.get(kinds)
        if not (known and known.measured) and seconds > self.estimate(kinds, pixels):
            self._set(kinds, pixels, seconds, completed=0)

    def _set(self, kinds: Kinds, pixels: int, seconds: float, *, completed: int) -> None:
        known = self._kinds.setdefault(kinds, _Known(seconds, 0))
        known.measured += completed
        known.at = self._clock()
        known.mean += (seconds - known.mean) * NEWEST
        known.sizes[pixels.bit_length()] = seconds
        self._kinds.move_to_end(kinds)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)


def _declared(kinds: Kinds, pixels: int) -> float:
    each = sum([kind.seconds for kind in kinds])
    pixel = sum([kind.nanoseconds for kind in kinds])
    return SECONDS + each + max(pixels, 1 << SMALL) * (NANOSECONDS + pixel) * 1e-9


TARGET = 4.0
"""Seconds that a request may wait for the work before it; beyond that it is refused."""

MARGIN = 2.0
"""Factor of the predicted wait that must fit before a deadline: other clients may come and take
turns with the work that is already admitted, and other programs may take half of the machine."""

FRESH = 0.02
"""Seconds for which sums over clients and over images past the line are reused."""

HORIZON, HORIZON_SHARED = 0.2, 0.05
"""Seconds of work that may be past the line, where clients do not take turns any more; the second
one where several clients had work lately: the work of one then delays the others less."""

NEVER = 1e9
"""Seconds from which a deadline is none."""

MICRO = 1_000_000


@dataclass(slots=True, eq=False)
class Expected:
    """The work on one image that is charged to its client, in microseconds, until it is done."""

    key: Key
    kinds: Kinds
    pixels: Callable[[], int | None]
    charged: int = 0
    began: float | None = None
    """The integral at which the image passed the line, None while it is not past it."""


class Account:
    """The expected work of all front ends; each writes what it admits into the shared counters.

    `cores` is the number of images that are computed at the same time, `speed` that of `CostModel`.
    """

    def __init__(
        self,
        counters: Counters,
        cores: int,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self.cores = float(cores)
        self.costs = CostModel(speed, clock)
        self.absence: Callable[[], float] = lambda: 0.0
        """Returns the seconds until a worker computes again; work that is admitted waits for it."""
        self.shared_until = -1.0
        """Until when the server counts as shared, after several clients had work."""
        self._integral = 0.0
        self._at = clock()
        self._past: dict[Expected, None] = {}
        self._got: dict[Key, int] = {}
        self._got_all = 0
        self._clients = np.zeros(1, np.int64)
        self._looked = -1.0

    def set_cores(self, cores: int) -> None:
        """Count this many cores from now on, because workers came or went."""
        self._advance()
        self.cores = float(cores)

    # Charging

    def charge(self, key: Key, work: int, images: int = 0) -> None:
        """Count work of a client, and its images, as admitted; negative numbers count less."""
        if work:
            self._counters.add(Total.WORK, work)
            self._counters.add_for(key, ByKey.WORK, work)
        if images:
            self._counters.add(Total.EXPECTED, images)

    def wait_for_turn(self, image: Expected, charged: int | None) -> None:
        """Charge an image that asks for its turn; `charged` of it are charged already, if any."""
        self.charge(image.key, image.charged - (charged or 0), int(charged is None))

    def begin(self, image: Expected) -> None:
        """Note that an image has passed the line."""
        self._advance()
        image.began = self._integral
        self._past[image] = None
        self._counters.add(Total.THROUGH, 1)
        self._counters.add(Total.PAST, image.charged)

    def end(self, image: Expected, *, completed: bool) -> None:
        """Note that the work on an image has ended; its cost is learnt if it was completed."""
        if image.began is not None:
            self._advance()
            del self._past[image]
            self._counters.add(Total.THROUGH, -1)
            self._counters.add(Total.PAST, -image.charged)
            learn = self.costs.learn if completed else self.costs.at_least
            learn(image.kinds, image.pixels() or 1, self._integral - image.began)
            image.began = None
        self.charge(image.key, -image.charged, -1)
        image.charged = 0

    def _advance(self) -> None:
        """Continue the integral to now; while no worker is there, nothing is done."""
        now = self._clock()
        seconds, self._at = now - self._at, now
        through = self._counters.total(Total.THROUGH)
        if through <= 0 or self.absence():
            return
        self._integral += seconds * min(float(through), self.cores) / through

    def _look(self) -> None:
        """Add up what clients have, and what images past the line had; rarely, as it takes 20 µs.

        An image that took longer than it was expected to counts as done.
        """
        now = self._clock()
        if now - self._looked < FRESH:
            return
        self._looked = now
        self._advance()
        self._got = {}
        for image in self._past:
            assert image.began is not None
            got = int((self._integral - image.began) * MICRO)
            self._got[image.key] = self._got.get(image.key, 0) + min(got, image.charged)
        self._got_all = sum(self._got.values())
        self._clients = self._counters.all_of(ByKey.WORK)

    # Waits

    def stay(self, seconds: float) -> float:
        """Return how long an image that costs these seconds is past the line, beside the others."""
        return seconds * max(1.0, (self._counters.total(Total.THROUGH) + 1) / self.cores)

    def room(self) -> float:
        """Return the seconds of work that this front end may have past its line."""
        horizon = HORIZON if self._clock() > self.shared_until else HORIZON_SHARED
        return horizon * self.cores / self._counters.front_ends

    def backlog(self) -> float:
        """Return the seconds until all admitted work is done."""
        self._look()
        left = self._counters.total(Total.WORK) - self._got_all
        return self.absence() + max(0, left) / MICRO / self.cores

    def wait(self, key: Key, more: int) -> float:
        """Return the seconds before `more` work of a client begins; 0 while a core is free.

        Clients take turns, so only as much of each other client's work comes first as this one has
        itself, and what is past the line already.
        """
        counters, absence = self._counters, self.absence()
        if counters.total(Total.EXPECTED) < self.cores:
            return absence
        self._look()
        total = counters.total(Total.WORK)
        own = counters.of(key, ByKey.WORK)
        before = total - self._got_all
        if own < total:
            ahead = int(np.minimum(self._clients, own + more).sum()) - self._got.get(key, 0)
            others = self._got_all - self._got.get(key, 0)
            busy = counters.total(Total.THROUGH) >= self.cores
            past = max(0, counters.total(Total.PAST) - others) if busy else 0
            before = min(before, max(own - self._got.get(key, 0), ahead) + past)
        return absence + max(0, before) / MICRO / self.cores

    def too_late(
        self,
        key: Key,
        remaining: float,
        work: int = 0,
        largest: int = 0,
        longest: float = TARGET,
    ) -> Overloaded | None:
        """Return the refusal of `work` more for a client, if it would end after its deadline, which
        is `remaining` seconds away, or wait for more than `longest` seconds. `largest` is the part
        of its largest image.

        What can begin at once is never refused: whether its deadline can be met shows itself.
        """
        if remaining > NEVER:
            return None
        start = self.wait(key, work)
        if start <= 0:
            return None
        end = start * MARGIN + max(largest / MICRO, work / MICRO / self.cores)
        if end > remaining:
            return _refusal(
                f"this request would end in about {longer(end, remaining)} seconds, behind the "
                "work that was admitted before it, and its deadline is in "
                f"{remaining:.1f}; try again later or allow more time (X-Deadline-Ms)",
                start,
            )
        queued = start - self.absence()
        if queued <= longest:
            return None
        return _refusal(
            "the work that was admitted before this request takes about "
            f"{longer(queued, longest)} seconds, and the server admits more while that is at most "
            f"{longest:g}; try again later",
            start,
        )


def longer(seconds: float, allowed: float) -> str:
    """Return the seconds in tenths, so that they are more than the `allowed` ones as written."""
    return f"{max(seconds, float(f'{allowed:.1f}') + 0.1):.1f}"


def _refusal(detail: str, retry_after: float) -> Overloaded:
    return Overloaded(detail, retry_after=retry_after, reason="deadline")
