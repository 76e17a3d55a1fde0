"""What images cost: seconds of the device for each kind of work and size, as measured lately."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from models.domain.job import Trace

NEWEST = 0.2
"""Weight of the newest image: about the last five count."""

MOST_KINDS = 512
"""Chains of filters are named by clients, so what is remembered of them is bounded."""

OVERHEAD_PER_PIXEL = 8e-9
"""Seconds for decoding and encoding, which workers do not report: about 120 megapixels a second.

Only relations between costs matter, because capacity is measured in the same unit."""


@dataclass(slots=True)
class _Kind:
    """Cost by the power of two of the pixels, the mean, and seconds from launch to result."""

    sizes: dict[int, float] = field(default_factory=dict)
    mean: float = 0.0
    latency: float = 0.0


class CostModel:
    """Exponentially weighted means for each kind of work and size of image."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._mean = 0.0

    def estimate(self, kind: Hashable, pixels: int | None = None) -> float:
        """Seconds for one image. Of an unknown kind: the mean of all, and 0 before the first.

        Before its header was read an image counts as the mean of its kind. A size that was not
        seen yet costs what the nearest one does for each pixel.
        """
        known = self._kinds.get(kind)
        if known is None:
            return self._mean
        if pixels is None:
            return known.mean
        size = _size(pixels)
        if (cost := known.sizes.get(size)) is not None:
            return cost
        nearest = min(known.sizes, key=lambda each: abs(each - size))
        return known.sizes[nearest] * 2.0 ** (size - nearest)

    def least(self) -> float:
        """Seconds for an image of the kind that costs least, of those finished lately; or 0."""
        return min([kind.mean for kind in self._kinds.values()], default=0.0)

    def knows(self, kind: Hashable) -> bool:
        """Whether an image of this kind was finished lately."""
        return kind in self._kinds

    def latency(self, kind: Hashable) -> float:
        """Seconds that an image of this kind takes when nothing is before it; 0: unknown."""
        known = self._kinds.get(kind)
        return known.latency if known else 0.0

    def learn(self, kind: Hashable, pixels: int, trace: Trace) -> float:
        """An image was finished; of what its batch took, its own part counts.

        Return what such an image is estimated to cost now.
        """
        took = trace.upload + trace.decode + trace.compute + trace.download
        seconds = took / max(1, trace.batch_size) + pixels * OVERHEAD_PER_PIXEL
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Kind()
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        size = _size(pixels)
        known.sizes[size] = cost = _mean(known.sizes.get(size, 0.0), seconds)
        known.mean = _mean(known.mean, seconds)
        known.latency = _mean(known.latency, took + pixels * OVERHEAD_PER_PIXEL)
        self._mean = _mean(self._mean, seconds)
        return cost


def _size(pixels: int) -> int:
    return pixels.bit_length()


def _mean(before: float, newest: float) -> float:
    return before + (newest - before) * NEWEST if before else newest
