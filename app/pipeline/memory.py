"""Memory that images take from decoding to encoding: how much each needs, and who has it."""

import asyncio
import math
from collections.abc import Callable

from app.admission.counters import Counters, Total
from app.admission.semaphore import FairSemaphore
from app.decoders.memory import SMALL
from app.decoders.messages import Seen
from app.intake.wanted import Parts, Version
from models import codec
from models.domain.errors import ServiceError, TooManyPixels, Unprocessable
from models.settings import Settings
from workers.filters.templates import LINE_BYTES, LONGEST, TILE, TILE_BYTES
from workers.operations import FilterChain

LEAST = 384 << 20
"""Bytes of the budget where there are few decoder processes."""

PER_PROCESS = 192 << 20
"""Bytes of the budget for every process beyond: filtering a photo of 6 megapixels takes half."""

TRIM_AFTER = 0.5
"""Seconds after a large image until freed memory is given back; others end meanwhile as a rule."""

MEASURED = SMALL
"""Least bytes that an image holds whose filters measure pixels. Its sizes may grow beyond those
that its header foretells, as when `resize` follows `trim`, but not beyond the bytes that it holds.
"""

STRIPE = 1 << 22
"""Pixels that are resized at a time, as in `workers/preprocess.py`, which is not imported here."""

FRAMES_AT_ONCE = 16
"""Frames of an animation that are filtered at a time at most."""

MOST_PER_PIXEL = 300
"""Bytes for each pixel of the largest intermediate image that no filter takes more than."""

_PILLOW = 4
"""Bytes per pixel of Pillow's images in colour."""


class Memory:
    """One budget of bytes, by estimate, which front ends with the same `counters` share.

    An image holds the most that it takes at any time, from before it is decoded until it is
    encoded. A small image is not counted and never waits. The others wait until their deadline, and
    clients take turns; an image that needs more than the budget is held alone. Lives on one event
    loop. `trim` gives freed memory back to the system; it is called on a thread after large images.
    """

    def __init__(
        self,
        limit: int,
        counters: Counters | None = None,
        trim: Callable[[], None] = lambda: None,
    ) -> None:
        self.budget = FairSemaphore(limit, counters, Total.MEMORY)
        self._trim = trim
        self.trimming: asyncio.TimerHandle | None = None
        """The timer of the next call of `trim`, while one is due."""

    def trim_soon(self) -> None:
        """Give freed memory back to the system when other large images have ended as a rule."""
        if self.trimming is None:
            self.trimming = asyncio.get_running_loop().call_later(TRIM_AFTER, self.trim_now)

    def trim_now(self) -> None:
        """Give freed memory back to the system, on a thread."""
        self.trimming = None
        asyncio.get_running_loop().run_in_executor(None, self._trim)


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

    A version that will be refused takes the bytes of decoding. `filtering` explains the options.
    """
    info, chain, n = seen.info, version.operation, seen.info.stack
    shape = info.height // n, info.width, info.most_channels
    try:
        if n * chain.most_pixels(*shape[:2]) > max_pixels:
            return seen.memory
        format_ = version.format_for(info)
        where = {"on_device": on_device, "encoded": encoded, "shared": shared}
        needed = filtering(chain, shape, frames=n, **where)
        after = chain.shape_after(shape)
        encoding = codec.encode_memory(after, format_, version.encoding, frames=n)
        if chain.measuring is not None:  # odd sides after `trim` take more in an AVIF
            odd = (after[0] - 1) | 1, (after[1] - 1) | 1, after[2]
            encoding = max(encoding, codec.encode_memory(odd, format_, version.encoding, frames=n))
            needed = max(needed, MEASURED)
    except ServiceError:
        return seen.memory
    return max(seen.memory, needed, encoding + math.prod(shape) * shared)


def to_process(
    wanted: Parts, max_pixels: int, memory: Memory, seen: Seen, *, on_device: bool = False
) -> tuple[int, int]:
    """Return the bytes of an image of which several parts are made, and the parts at a time.

    As many parts run side by side as the whole budget has room for.
    """
    each = [] if wanted.labels is None else [to_classify(seen)]
    each += [
        to_filter(version, max_pixels, seen, on_device=on_device, shared=True)
        for version in wanted.versions
    ]
    parts = max(1, memory.budget.total // max(1, *each))  # some work takes no bytes of its own
    return max(seen.memory, sum(sorted(each)[-parts:])), parts


def to_match(seen: Seen) -> int:
    """Return the bytes of an image with its luma, or of luma and scores, and of a tile."""
    info = seen.info
    tile = TILE_BYTES * min(info.n_pixels, TILE)
    tile += LINE_BYTES * min(max(info.height, info.width), LONGEST)
    return max(seen.memory, info.n_pixels * (max(3, info.most_channels) + 2) + tile)


def frames_at_once(chain: FilterChain, shape: tuple[int, int, int], frames: int) -> tuple[int, int]:
    """Return how many frames of an animation are filtered at a time, and the bytes it takes.

    `shape` is that of a frame. All frames, and all that become of them, are held meanwhile.
    """
    held = frames * (math.prod(shape) + math.prod(chain.shape_after(shape)))
    each = chain.memory(shape)
    n = max(1, min(frames, FRAMES_AT_ONCE, (Settings.encode_memory - held) // each))
    return n, held + n * each


def filtering(
    chain: FilterChain,
    shape: tuple[int, int, int],
    *,
    frames: int = 1,
    on_device: bool = False,
    encoded: bool = False,
    shared: bool = False,
) -> int:
    """Return the bytes that filtering an image takes, with its source.

    `on_device`: a GPU filters it, so that only the source and the result take memory here, unless
    pixels are measured; `encoded`: it decodes the source too. `shared`: other parts need the
    pixels, so that filters may not overwrite them. `frames` of this shape are filtered as an
    animation. Raises InvalidParameter if a filter cannot be applied.
    """
    if frames > 1:
        return frames_at_once(chain, shape, frames)[1]
    if on_device and chain.measuring is None:
        return math.prod(chain.shape_after(shape)) + (0 if encoded else math.prod(shape))
    return chain.memory(shape, overwrite=not shared)


def check_filters(
    chain: FilterChain,
    max_pixels: int,
    shape: tuple[int, int, int],
    most: int,
    *,
    frames: int = 1,
    **options: bool,
) -> None:
    """Raise TooManyPixels for filters that make more than `max_pixels`, Unprocessable for filters
    that take more than `most` bytes by estimate, and InvalidParameter for filters that cannot take
    an image of this shape. The options are those of `filtering`.
    """
    if (pixels := frames * chain.most_pixels(*shape[:2])) > max_pixels:
        raise TooManyPixels(
            f"the filters make {pixels:,} pixels of the image, more than the {max_pixels:,} "
            "allowed here; ask for fewer"
        )
    if pixels * MOST_PER_PIXEL <= most:
        return
    if (needed := filtering(chain, shape, frames=frames, **options)) > most:
        images = "an image" if frames == 1 else f"{frames} frames"
        raise Unprocessable(
            f"filtering {images} of {shape[1]} × {shape[0]} pixels as asked takes about "
            f"{needed >> 20:,} MiB of memory, more than the {most >> 20:,} allowed; "
            "send it smaller or in parts, or resize or crop it first"
        )
