"""Learn what images cost: seconds of the device for each kind of work and size of image."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from models.domain.job import Trace

NEWEST = 0.2
"""Weight of the newest image; so mainly the last five images count."""

MOST_KINDS = 512
"""Kinds that are remembered. Clients name chains of filters, so their number must be bounded."""

LASTS = 30.0
"""Seconds for which the cost of work that expired is remembered. The machine may have been slower
than usual, so such work is tried again after that."""

SMALL = 17
"""Bits of the number of pixels up to which the cost does not follow the pixels: the cost of an
image of at most 256 × 256 is mainly that of any image. Without this bound one pixel that took a
millisecond would let a photo with the same filters count as hours."""

OVERHEAD_PER_PIXEL = 8e-9
"""Seconds a pixel for decoding and encoding, at about 120 megapixels a second; workers do not
report them.

Only relations between costs matter, because capacity is measured in the same unit."""


@dataclass(slots=True)
class _Kind:
    """Seconds by the number of bits of the pixels, their mean, and time from launch to result."""

    sizes: dict[int, float] = field(default_factory=dict)
    mean: float = 0.0
    latency: float = 0.0


class CostModel:
    """Exponentially weighted means of costs for each kind of work and size of image.

    Of a kind whose images all expire while they are computed nothing is measured. For some time
    an image of such a kind costs at least what the device spent on the last one that expired; a
    smaller image costs its part of that, by its pixels.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._expired: OrderedDict[Hashable, tuple[float, int, float]] = OrderedDict()
        """Seconds, pixels, and the moment until which they count, of unknown kinds."""
        self._mean = 0.0
        self._clock = clock

    def estimate(self, kind: Hashable, pixels: int | None = None) -> float:
        """Return the seconds for one image; of an unknown kind the mean of all, 0 before the first.

        Before its header was read an image counts as the mean of its kind. A size that was not
        seen yet costs what the nearest one does for each pixel; up to `SMALL` bits all cost alike.
        """
        known = self._kinds.get(kind)
        if known is None:
            return max(self._mean, self._least(kind, pixels))
        if pixels is None:
            return known.mean
        size = size_class(pixels)
        if (cost := known.sizes.get(size)) is not None:
            return cost
        nearest = min(known.sizes, key=lambda each: abs(each - size))
        return known.sizes[nearest] * 2.0 ** (max(size, SMALL) - max(nearest, SMALL))

    def measured(self, kind: Hashable, pixels: int | None = None) -> float:
        """Return the seconds for one image; of an unknown kind at least for decoding and encoding,
        and what is known of images that expired.
        """
        if kind in self._kinds:
            return self.estimate(kind, pixels)
        return max((pixels or 0) * OVERHEAD_PER_PIXEL, self._least(kind, pixels))

    def expired(self, kind: Hashable, pixels: int, seconds: float) -> None:
        """Note that an image was not complete after `seconds` seconds on the device."""
        if kind in self._kinds or seconds <= 0:
            return
        self._expired[kind] = seconds, pixels, self._clock() + LASTS
        self._expired.move_to_end(kind)
        if len(self._expired) > MOST_KINDS:
            self._expired.popitem(last=False)

    def _least(self, kind: Hashable, pixels: int | None) -> float:
        """Return the seconds that an image of an unknown kind takes at least; 0 without a size."""
        seconds, noted, until = self._expired.get(kind, (0.0, 1, 0.0))
        if not pixels or self._clock() >= until:
            return 0.0
        # The seconds of a tiny image that expired are mainly overhead. Multiplied to the pixels of
        # a large one they would be hours, and the images of all clients would be refused.
        return seconds * min(1.0, pixels / noted)

    def least(self) -> float:
        """Seconds for an image of the kind that costs least, of those finished lately; or 0."""
        return min([kind.mean for kind in self._kinds.values()], default=0.0)

    def knows(self, kind: Hashable) -> bool:
        """Return whether an image of this kind was completed recently."""
        return kind in self._kinds

    def latency(self, kind: Hashable) -> float:
        """Return the seconds that an image of this kind takes when it is alone; 0 if unknown."""
        known = self._kinds.get(kind)
        return known.latency if known else 0.0

    def learn(self, kind: Hashable, pixels: int, trace: Trace) -> float:
        """Learn from a completed image; its equal part of the time of its batch counts.

        Return what such an image is estimated to cost now.
        """
        took = trace.upload + trace.decode + trace.compute + trace.download
        seconds = took / max(1, trace.batch_size) + pixels * OVERHEAD_PER_PIXEL
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind()
            self._expired.pop(kind, None)
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        size = size_class(pixels)
        known.sizes[size] = cost = _mean(known.sizes.get(size, 0.0), seconds)
        known.mean = _mean(known.mean, seconds)
        known.latency = _mean(known.latency, took + pixels * OVERHEAD_PER_PIXEL)
        self._mean = _mean(self._mean, seconds)
        return cost


class ImageCost:
    """The cost of one image on which work of some kinds is wanted, whenever it is asked for.

    `pixels` returns the size of the image as far as it is known.
    """

    __slots__ = ("_costs", "_kinds", "_pixels")

    def __init__(
        self, costs: CostModel, kinds: Sequence[Hashable], pixels: Callable[[], int | None]
    ) -> None:
        self._costs = costs
        self._kinds = kinds
        self._pixels = pixels

    def estimate(self) -> float:
        """Return the estimated seconds."""
        return sum([self._costs.estimate(kind, self._pixels()) for kind in self._kinds])

    def measured(self) -> float:
        """Return the seconds as far as they were measured."""
        return sum([self._costs.measured(kind, self._pixels()) for kind in self._kinds])

    def group(self) -> Hashable:
        """Return what images have in common that cost the same: their kinds and their size."""
        return self._kinds, size_class(self._pixels() or 0)


def size_class(pixels: int) -> int:
    """Return the class of sizes for which one cost is learnt: the bits of the pixels' number."""
    return pixels.bit_length()


def _mean(before: float, newest: float) -> float:
    return before + (newest - before) * NEWEST if before else newest
