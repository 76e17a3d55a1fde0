"""Fakes of what decodes images: a pool without processes, and a context that notes."""

from dataclasses import dataclass
from typing import Any, cast

from app.decoders.memory import SMALL
from app.decoders.messages import Bounds, Seen, Wanted
from app.decoders.pool import DecoderLimits, DecoderPool
from app.intake.spool import Blob
from app.pipeline.coding import CodecThreads, ImageCodec, ImageContext, Need
from models import codec
from models.codec import Decoded, Description

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
            return opened.describe()
        self.bounds.append(bounds)
        if not bounds.allow(opened.info, opened.memory, opened.cost):
            return Seen(opened.info, opened.cost, opened.memory)
        return (
            opened.decode() if wanted is Wanted.PIXELS else opened.describe(**{wanted.value: True})
        )


@dataclass(frozen=True)
class Permit:
    """What the decoder reads of a permit."""

    in_background: bool


class Context(ImageContext):
    """The context of an image that has memory for everything; `steps` are what it held and let go
    of.
    """

    def __init__(self, *, in_background: bool = False) -> None:
        unused = cast(Any, None)
        super().__init__(unused, cast(Any, Permit(in_background)), unused)
        self.steps: list[int] = []

    async def hold(self, n_bytes: int) -> None:
        """Hold memory in place of what was held."""
        if n_bytes > self.most:
            self.release()
            self.most = n_bytes
            self.steps.append(n_bytes)

    def release(self) -> None:
        """Hold nothing."""
        if self.most > SMALL:
            self.steps.append(-self.most)
        self.most = SMALL


def decoder_of(pool: Pool, threads: CodecThreads | None = None) -> ImageCodec:
    """Return a decoder on a pool, with one thread."""
    return ImageCodec(cast(DecoderPool, pool), threads or CodecThreads(1), MOST)


async def decode(
    decoder: ImageCodec, data: bytes, need: Need, image: Context | None = None
) -> Decoded:
    """Decode a file, whose image holds as much memory as it asks for."""
    return await decoder.decoded(Blob.of(data), image or Context(), need)
