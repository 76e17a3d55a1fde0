"""Estimate the most memory that an image takes at any time: decoded, filtered or encoded."""

from app.decoders import Seen
from app.intake.wanted import Parts, Version
from app.pipeline.pixel_cost import check
from models import codec
from models.codec import ImageInfo
from models.domain.errors import ServiceError

_PILLOW = 4
"""Bytes per pixel of Pillow's images in colour."""

_GREY = frozenset(("1", "L", "I", "I;16", "I;16B", "I;16L", "F"))
_COLOUR = frozenset(("RGB", "CMYK", "YCbCr", "LAB", "HSV"))


def to_classify(seen: Seen) -> int:
    """Return the bytes of an image that is classified.

    They are those of decoding it, or of the pixels with a copy that is flattened on white, and for
    tall images with Pillow's copy, whose columns are resized first.
    """
    info, channels = seen.info, _channels(seen.info)
    flattened = 3 if channels == 4 else 0
    copied = _PILLOW if info.height > 2 * info.width else 0
    return max(seen.memory, info.n_pixels * (channels + flattened + copied))


def to_filter(
    version: Version,
    max_pixels: int,
    seen: Seen,
    *,
    on_device: bool = False,
    shared: bool = False,
) -> int:
    """Return the bytes of an image that becomes this version.

    Those of its decoding, if the version will be refused. `on_device`: the device decodes and
    filters it, so that only its result takes memory here. `shared`: other parts need its pixels
    too, so that filters may not overwrite them.
    """
    info, chain = seen.info, version.operation
    shape = info.height, info.width, _channels(info)
    try:
        check(chain, max_pixels, info.height, info.width)
        format_ = version.output.format_for(info.format)
        filtering = 0 if on_device else chain.memory(shape, overwrite=not shared)
        height, width, channels = chain.shape_after(shape)
    except ServiceError:
        return seen.memory
    encoding = codec.encode_memory(height * width, channels, format_, version.output.encoding)
    return max(seen.memory, filtering, encoding)


def to_process(wanted: Parts, max_pixels: int, seen: Seen) -> list[int]:
    """Return the bytes of each part that is wanted of an image."""
    labels = [] if wanted.labels is None else [to_classify(seen)]
    return labels + [to_filter(each, max_pixels, seen, shared=True) for each in wanted.versions]


def _channels(info: ImageInfo) -> int:
    """Return the channels of the pixels; 4 where the header leaves open whether they have alpha."""
    return 1 if info.mode in _GREY else 3 if info.mode in _COLOUR else 4
