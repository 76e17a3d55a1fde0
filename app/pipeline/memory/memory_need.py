"""Estimate the most memory that an image takes at any time: decoded, filtered or encoded."""

import math
from collections.abc import Callable

from app.decoders import Seen
from app.intake.wanted import Parts, Version
from models import codec
from models.domain.errors import InvalidParameter, ServiceError, TooManyPixels, Unprocessable
from workers.operations import FilterChain

STRIPE = 1 << 22
"""Pixels that are resized at a time, as in `workers/preprocess.py`, which is not imported here."""

MOST_PER_PIXEL = 300
"""Bytes for each pixel of the largest intermediate image that no filter takes more than."""

_PILLOW = 4
"""Bytes per pixel of Pillow's images in colour."""


def to_classify(seen: Seen) -> int:
    """Return the bytes of an image that is classified.

    They are those of decoding it, or of the pixels with a stripe of them that is resized: its copy
    in RGB if they are grey or have alpha, and for tall images Pillow's copy of that.
    """
    info, channels = seen.info, seen.info.most_channels
    flattened = 0 if channels == 3 else 3
    copied = _PILLOW if info.height > 2 * info.width else 0
    stripe = min(info.n_pixels, STRIPE) * (flattened + copied)
    return max(seen.memory, info.n_pixels * channels + stripe)


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

    Those of its decoding, if the version will be refused. The options are those of `filtering`.
    """
    info, chain = seen.info, version.operation
    shape = info.height, info.width, info.most_channels
    try:
        check(chain, max_pixels, info.height, info.width)
        format_ = version.output.format_for(info.format)
        needed = filtering(chain, shape, on_device=on_device, encoded=encoded, shared=shared)
        encoding = codec.encode_memory(chain.shape_after(shape), format_, version.output.encoding)
    except ServiceError:
        return seen.memory
    return max(seen.memory, needed, encoding + beside(shape, shared=shared))


def filtering(
    chain: FilterChain,
    shape: tuple[int, int, int],
    *,
    on_device: bool = False,
    encoded: bool = False,
    shared: bool = False,
) -> int:
    """Return the bytes that filtering an image takes, with its source.

    `on_device`: a GPU filters it, so that only the source and the result take memory here;
    `encoded`: it decodes the source too. `shared`: other parts need the pixels, so that filters may
    not overwrite them. Raises InvalidParameter if a filter cannot be applied.
    """
    if on_device:
        return math.prod(chain.shape_after(shape)) + (0 if encoded else math.prod(shape))
    return chain.memory(shape, overwrite=not shared)


def beside(shape: tuple[int, int, int], *, shared: bool) -> int:
    """Return the bytes of the source that are kept while its result is encoded."""
    return math.prod(shape) if shared else 0


def check_filtering(needed: int, shape: tuple[int, int, int], most: int) -> None:
    """Raise Unprocessable for filters that take more than `most` bytes by estimate."""
    if needed > most:
        raise Unprocessable(
            f"filtering an image of {shape[1]} × {shape[0]} pixels as asked takes about "
            f"{needed >> 20:,} MiB of memory, more than the {most >> 20:,} allowed; "
            "send it smaller or in parts, or resize or crop it first"
        )


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


def check(chain: FilterChain, max_pixels: int, height: int, width: int) -> int:
    """Return the pixels of the largest intermediate image; raises TooManyPixels or InvalidParameter
    if the chain cannot take an image of this size.
    """
    if (most := chain.most_pixels(height, width)) > max_pixels:
        raise TooManyPixels(
            f"the filters make {most:,} pixels of the image, more than the {max_pixels:,} "
            "allowed here; ask for fewer"
        )
    return most


def peak_pixels(chain: FilterChain, max_pixels: int, height: int, width: int) -> int:
    """Return the pixels of the largest intermediate image.

    If the chain will be refused, they are those of the image itself.
    """
    try:
        return check(chain, max_pixels, height, width)
    except (InvalidParameter, TooManyPixels):
        return height * width


def peak_pixels_of_parts(wanted: Parts, max_pixels: int, height: int, width: int) -> list[int]:
    """Return the largest number of pixels of each part that is wanted of an image."""
    labels = [] if wanted.labels is None else [height * width]
    return labels + [
        peak_pixels(each.operation, max_pixels, height, width) for each in wanted.versions
    ]
