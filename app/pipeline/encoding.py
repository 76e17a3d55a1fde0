"""Encode the results of filters, on codec threads or in processes that can be ended."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import numpy as np

from app.decoders import DecoderPool, Encode
from app.decoders.exchange import moved_memory_file
from app.decoders.memory import AREA_SIZE, release
from app.pipeline.memory.held_image import HeldImage
from models import codec
from models.codec import Encoding, ImageFormat
from models.domain.image import Image, NetworkInput

LONG_ENCODING = 0.2
"""Estimated CPU seconds from which an image is encoded in a process instead of on a thread. Pillow
holds the interpreter's lock meanwhile, and noise takes several times as long as the estimate."""


class ImageEncoder:
    """Encodes in the processes of `decoders`, and by `in_thread` what takes little time.

    Images in the background hold `processes_behind` while they use a process.
    """

    def __init__(
        self,
        decoders: DecoderPool,
        in_thread: Callable[..., Awaitable[bytes]],
        processes_behind: asyncio.Semaphore,
    ) -> None:
        self._decoders = decoders
        self._in_thread = in_thread
        self._processes_behind = processes_behind

    @property
    def most_memory(self) -> int:
        """Return the estimated bytes that filtering an image, or encoding one, may take."""
        return self._decoders.limits.encode_memory

    def check(
        self,
        shape: tuple[int, int, int],
        format_: ImageFormat,
        encoding: Encoding,
        *,
        beside: int = 0,
    ) -> float:
        """Return the estimated CPU seconds of encoding an image of this shape.

        `beside`: bytes of other pixels that are kept meanwhile. Raises Unprocessable if encoding
        would take more time or memory than is allowed.
        """
        codec.check_encode_memory(shape, format_, encoding, self.most_memory, beside=beside)
        most = self._decoders.limits.encode_seconds
        return codec.check_encode_cost(shape[0] * shape[1], format_, encoding, most)

    async def encode(
        self,
        held: HeldImage,
        format_: ImageFormat,
        encoding: Encoding,
        cost: float,
        *,
        background: bool = False,
    ) -> bytes:
        """Return a file with the pixels of an image and the metadata of its source.

        The pixels are taken from `held`, so that a process which encodes large ones has them alone.

        `cost` is what `check` returned for an image of this shape. An image that takes long is
        encoded in a process, which is killed if the request ends.
        """
        image, notice, exif = held.image(last=True), held.copyright, held.exif
        assert not isinstance(image, NetworkInput), "filters give images"
        if not isinstance(image, Image):
            finished = partial(codec.finished, image, encoding, copyright=notice, exif=exif)
            return await self._in_thread(finished, background=background)
        most = self._decoders.limits.encode_seconds
        if cost < LONG_ENCODING or not self._decoders.running:
            encode = partial(_encoded, image, format_, encoding, notice, exif)
            return await self._in_thread(encode, background=background)
        shape = image.height, image.width, image.channels
        n = None if exif is None else len(exif)
        task = Encode(shape, format_, encoding, notice, n, most)
        pixels = np.ascontiguousarray(image.pixels).data.cast("B")
        if len(pixels) <= AREA_SIZE:
            async with self._process(cost, background=background):
                return await self._decoders.encode(task, pixels, exif)
        del pixels
        descriptor = await moved_memory_file(np.ascontiguousarray(image.pixels), exif or b"")
        del image
        try:
            async with self._process(cost, background=background):
                return await self._decoders.encode(task, descriptor)
        finally:
            os.close(descriptor)

    @asynccontextmanager
    async def _process(self, cost: float, *, background: bool) -> AsyncIterator[None]:
        """Wait until an image may use a process, while the block runs.

        The turn comes first, as where images are decoded, or two could wait for each other.
        """
        async with (
            self._decoders.queues.turn(cost),
            self._processes_behind if background else nullcontext(),
        ):
            yield


def _encoded(
    image: Image,
    format_: ImageFormat,
    encoding: Encoding,
    notice: str | None,
    exif: bytes | None,
) -> bytes:
    """Return a file with the pixels of an image, which nothing else needs, and its metadata."""
    taken = release if image.pixels.nbytes > AREA_SIZE else lambda _rows: None
    return codec.encode(image, format_, encoding, copyright=notice, exif=exif, taken=taken)
