"""Estimate the most memory that an image takes at any time: decoded, filtered or encoded."""

import math
from collections.abc import Callable

from app.decoders import Seen
from app.intake.wanted import Parts, Version
from app.pipeline.memory.pixel_cost import check, peak_pixels_of_parts
from models import codec
from models.domain.errors import ServiceError

_PILLOW = 4
"""Bytes per pixel of Pillow's images in colour."""


def to_classify(seen: Seen) -> int:
    """Return the bytes of an image that is classified.

    They are those of decoding it, or of the pixels with a copy in RGB if they are grey or have
    alpha, and for tall images with Pillow's copy, whose columns are resized first.
    """
    info, channels = seen.info, seen.info.most_channels
    flattened = 0 if channels == 3 else 3
    copied = _PILLOW if info.height > 2 * info.width else 0
    return max(seen.memory, info.n_pixels * (channels + flattened + copied))


def to_filter(
    version: Version,
    max_pixels: int,
    seen: Seen,
    *,
    on_device: bool = False,
    encoded: bool = False,
    shared: bool = False,
) -> int:
    """Return the bytes of an image that becomes this version.

    Those of its decoding, if the version will be refused. `on_device`: a GPU filters it, so that
    only the source and the result take memory here; `encoded`: it decodes the source too. `shared`:
    other parts need the pixels, so that filters may not overwrite them.
    """
    info, chain = seen.info, version.operation
    shape = info.height, info.width, info.most_channels
    try:
        check(chain, max_pixels, info.height, info.width)
        format_ = version.output.format_for(info.format)
        height, width, channels = after = chain.shape_after(shape)
        if on_device:
            filtering = math.prod(after) + (0 if encoded else math.prod(shape))
        else:
            filtering = chain.memory(shape, overwrite=not shared)
    except ServiceError:
        return seen.memory
    encoding = codec.encode_memory(height * width, channels, format_, version.output.encoding)
    return max(seen.memory, filtering, encoding)


def to_process(wanted: Parts, max_pixels: int, seen: Seen, *, on_device: bool = False) -> list[int]:
    """Return the bytes of each part that is wanted of an image."""
    labels = [] if wanted.labels is None else [to_classify(seen)]
    return labels + [
        to_filter(each, max_pixels, seen, on_device=on_device, shared=True)
        for each in wanted.versions
    ]


class PartsNeed:
    """What the parts of one image need together: as many as memory has room for run at a time.

    `at_once` maps the most pixels and the most bytes of a part to the parts that fit.
    """

    def __init__(
        self, wanted: Parts, max_pixels: int, at_once: Callable[[int, int], int], *, on_device: bool
    ) -> None:
        self._wanted = wanted
        self._max_pixels = max_pixels
        self._at_once = at_once
        self._on_device = on_device
        self.parts = 1
        """Parts that may run at a time: those for which `memory` returned the bytes last."""

    def pixels(self, seen: Seen) -> int:
        """Return the pixels of the parts that run at a time, if these are the largest ones."""
        pixels, memory = self._needs(seen)
        return sum(sorted(pixels)[-self._at_once(max(pixels), max(memory)) :])

    def memory(self, seen: Seen) -> int:
        """Return the bytes of decoding the image, or of the parts that run at a time."""
        pixels, memory = self._needs(seen)
        self.parts = self._at_once(max(pixels), max(memory))
        return max(seen.memory, sum(sorted(memory)[-self.parts :]))

    def _needs(self, seen: Seen) -> tuple[list[int], list[int]]:
        size = seen.info.height, seen.info.width
        return (
            peak_pixels_of_parts(self._wanted, self._max_pixels, *size),
            to_process(self._wanted, self._max_pixels, seen, on_device=self._on_device),
        )
