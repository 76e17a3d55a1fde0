"""Learn what images cost: seconds of one core, or of one GPU, by kind of work and size of image.

Of a kind that was never measured, the cost is expected by its declaration (`Kind`): figures of one
machine, times the factor by which this machine was slower or faster for other kinds. So the first
images of a server have an expected cost already.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

NEWEST = 0.05
"""Lowest weight of the newest image; so mainly the last twenty images count, and all of fewer."""

MEMORY = 2.0
"""Seconds after which what was measured before has at most 1/e of its influence left, however few
images came meanwhile: the machine may have become slower."""

MOST_KINDS = 512
"""Kinds that are remembered. Clients name chains of filters, so their number must be bounded."""

FALL, LITTLE = 0.5, 1 / 8
"""The weight of an image that took less than the second part of what was expected: the first images
of a kind are often slow, and nothing should be refused for long because of them."""

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
        lately = 1 - math.exp((known.at - now) / MEMORY)
        weight = max(NEWEST, 1 / (known.measured + 1), lately)
        if seconds < expected * LITTLE:
            weight = max(weight, FALL)
        more = (min(seconds, STEP * expected) - expected) * weight
        self._set(kinds, pixels, expected + more, completed=1)

    def at_least(self, kinds: Kinds, pixels: int, seconds: float) -> bool:
        """Learn from an image that took so long and is not complete; return whether it is new.

        Of kinds that were measured, nothing is learnt: the machine is slow at this moment.
        """
        known = self._kinds.get(kinds)
        if (known and known.measured) or seconds <= self.estimate(kinds, pixels):
            return False
        self._set(kinds, pixels, seconds, completed=0)
        return True

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
