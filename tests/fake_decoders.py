"""Fakes of what decodes images: a pool without processes, memory that notes, and a context."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from app.decoders import SMALL, Bounds, DecoderLimits, DecoderPool, Seen, Wanted
from app.intake.spool import Blob
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import HeldImage, ImageContext
from app.pipeline.decoding import ImageDecoder, Need
from app.pipeline.memory import NeedsMemory
from app.pipeline.results.timings import Timings
from models import codec
from models.codec import Decoded, Description

T = TypeVar("T")

MOST = 50_000_000
"""Pixels of an image, at most."""


class Pool:
    """A pool that notes the bounds of what it was asked for, and decodes on the event loop."""

    running = True
    limits = DecoderLimits(2, MOST, 1 << 20, 10.0)

    def __init__(self) -> None:
        self.bounds: list[Bounds] = []
        self.slow: list[bool] = []

    async def decode(
        self, file: bytes, _size: int, bounds: Bounds, wanted: Wanted, *, slow: bool
    ) -> Decoded | Description | Seen:
        self.slow.append(slow)
        opened = codec.open_file(file, max_pixels=MOST)
        if wanted is Wanted.DESCRIPTION:
            return opened.describe(colour=False)
        self.bounds.append(bounds)
        if not bounds.allow(opened.info, opened.memory, opened.cost):
            return Seen(opened.info, opened.cost, opened.memory)
        return opened.decode() if wanted is Wanted.PIXELS else opened.describe(colour=True)


class Memory:
    """The memory of an image, with room for everything; notes what was held and let go of."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.most = SMALL

    def hold(self, n_bytes: int) -> None:
        """Hold memory in place of what was held."""
        self.release()
        if n_bytes > SMALL:
            self.most = n_bytes
            self.steps.append(n_bytes)

    def check(self, n_bytes: int) -> None:
        """Raise NeedsMemory if less is held."""
        if n_bytes > self.most:
            raise NeedsMemory(n_bytes)

    def release(self) -> None:
        """Hold nothing."""
        if self.most > SMALL:
            self.steps.append(-self.most)
        self.most = SMALL


async def with_memory(context: "Context", work: Callable[[], Awaitable[T]]) -> T:
    """Do the work, and hold memory as long as the work needs more."""
    while True:
        try:
            return await work()
        except NeedsMemory as more:
            context.memory.hold(more.n_bytes)


@dataclass(frozen=True)
class Permit:
    """What the decoder reads of a permit."""

    in_background: bool


class Context:
    """What the decoder reads of the context of an image."""

    def __init__(self, *, in_background: bool = False) -> None:
        self.stages, self.memory, self.permit = Timings(), Memory(), Permit(in_background)
        self.seen: Seen | None = None
        self.may_be_plain = True


def decoder_of(pool: Pool, threads: CodecThreads | None = None) -> ImageDecoder:
    """Return a decoder on a pool, with one thread."""
    fetcher = cast(Any, None)
    return ImageDecoder(fetcher, cast(DecoderPool, pool), threads or CodecThreads(1), MOST)


async def decode(
    decoder: ImageDecoder, data: bytes, need: Need, under_way: Context | None = None
) -> HeldImage:
    """Decode a file, whose image holds as much memory as it asks for."""
    under_way = under_way or Context()
    context = cast(ImageContext, under_way)
    return await with_memory(under_way, lambda: decoder.decoded(Blob.of(data), context, need))
