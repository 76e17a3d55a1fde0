"""Fakes of what decodes images: a pool without processes, memory that notes, and a context."""

from dataclasses import dataclass
from typing import Any, cast

from app.decoders import Bounds, DecoderPool, Limits, Seen
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import ImageContext
from app.pipeline.decoding import ImageDecoder
from app.pipeline.results.timings import Timings
from models import codec
from models.codec import Decoded, Description

MOST = 50_000_000
"""Pixels of an image, at most."""


class Pool:
    """A pool that notes the bounds of what it was asked for, and decodes on the event loop."""

    running = True
    limits = Limits(2, MOST, 1 << 20, 10.0)

    def __init__(self) -> None:
        self.bounds: list[Bounds] = []
        self.slow: list[bool] = []

    async def decode(
        self, file: bytes, _size: int, bounds: Bounds, *, slow: bool
    ) -> Decoded | Seen:
        opened = self._opened(file, bounds, slow)
        return opened if isinstance(opened, Seen) else opened.decode()

    async def describe(
        self, file: bytes, _size: int, bounds: Bounds, *, colour: bool, slow: bool
    ) -> Description | Seen:
        opened = self._opened(file, bounds if colour else None, slow)
        return opened if isinstance(opened, Seen) else opened.describe(colour=colour)

    def _opened(self, file: bytes, bounds: Bounds | None, slow: bool) -> codec.Opened | Seen:
        self.slow.append(slow)
        opened = codec.open_file(file, max_pixels=MOST)
        if bounds is None:
            return opened
        self.bounds.append(bounds)
        if bounds.allow(opened.info, opened.memory, opened.cost):
            return opened
        return Seen(opened.info, opened.cost, opened.memory)


class Memory:
    """The memory of an image, with room for everything; notes what was held and let go of."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._held = 0

    async def hold(self, n_bytes: int) -> None:
        """Hold memory in place of what was held."""
        self.release()
        self._held = n_bytes
        if n_bytes:
            self.steps.append(n_bytes)

    def release(self) -> None:
        """Hold nothing."""
        if self._held:
            self.steps.append(-self._held)
        self._held = 0


@dataclass(frozen=True)
class Permit:
    """What the decoder reads of a permit."""

    in_background: bool


class Context:
    """What the decoder reads of the context of an image."""

    def __init__(self, *, in_background: bool = False) -> None:
        self.stages, self.memory, self.permit = Timings(), Memory(), Permit(in_background)


def context(*, in_background: bool = False) -> ImageContext:
    """Return the context of an image, as its type says."""
    return cast(ImageContext, Context(in_background=in_background))


def decoder_of(pool: Pool, threads: CodecThreads | None = None) -> ImageDecoder:
    """Return a decoder on a pool, with one thread."""
    fetcher = cast(Any, None)
    return ImageDecoder(fetcher, cast(DecoderPool, pool), threads or CodecThreads(1), MOST)
