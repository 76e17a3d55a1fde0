"""Encode the results of filters on threads, or in processes that can be killed."""

from functools import partial

import numpy as np

from app.decoders import ENCODE_SECONDS, DecoderPool, Encode
from app.decoders.memory import KEPT, release
from app.intake.wanted import Version
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import HeldImage
from app.pipeline.memory import beside, check_filters
from models import codec
from models.codec import Encoding, ImageFormat
from models.domain.image import Image, NetworkInput
from models.settings import Settings

LONG_ENCODING = 0.2
"""Estimated CPU seconds from which an image is encoded in a process instead of on a thread. Pillow
holds the interpreter's lock meanwhile, and noise takes several times as long as the estimate."""

QUICKLY_COPIED = 1 << 20
"""Bytes of a finished file that are copied on the event loop: a thread takes longer to begin."""

SLOW_ENCODING = 1.0
"""Estimated CPU seconds of encoding from which an image leaves one process to the others."""


class Encoder:
    """Encodes filtered images; `max_pixels` bounds what filters may make."""

    def __init__(self, decoders: DecoderPool, threads: CodecThreads, max_pixels: int) -> None:
        self._decoders = decoders
        self._threads = threads
        self._max_pixels = max_pixels

    def cost(
        self,
        source: HeldImage,
        version: Version,
        format_: ImageFormat,
        *,
        on_gpu: bool,
        shared: bool,
    ) -> float:
        """Return the estimated CPU seconds of encoding a version of an image.

        Raises the error of a version that would take more pixels, memory or time than is allowed.
        """
        chain, encoding, limit = version.operation, version.encoding, Settings.encode_memory
        shape = source.height, source.width, source.channels
        where = {"on_device": on_gpu, "encoded": source.encoded, "shared": shared}
        check_filters(chain, self._max_pixels, shape, limit, **where)
        after, kept = chain.shape_after(shape), beside(shape, shared=shared)
        codec.check_encode_memory(after, format_, encoding, limit, beside=kept)
        pixels = after[0] * after[1]
        return codec.check_encode_cost(pixels, format_, encoding, ENCODE_SECONDS)

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
        An image that takes long by its estimated `cost` in CPU seconds is encoded in a process,
        which is killed if the request ends.
        """
        image, notice, exif = held.image(last=True), held.copyright, held.exif
        assert not isinstance(image, NetworkInput), "filters give images"
        if not isinstance(image, Image):
            finish = partial(codec.finished, image, encoding, copyright=notice, exif=exif)
            if image.data.nbytes <= QUICKLY_COPIED:
                return finish()
            return await self._threads.run(finish, background=background)
        if cost < LONG_ENCODING or not self._decoders.running:
            encode = partial(_encoded, image, format_, encoding, notice, exif)
            return await self._threads.run(encode, background=background)
        shape = image.height, image.width, image.channels
        n = None if exif is None else len(exif)
        task = Encode(shape, format_, encoding, notice, n, ENCODE_SECONDS)
        slow = background or cost > SLOW_ENCODING
        pixels = np.ascontiguousarray(image.pixels)
        del image
        return await self._decoders.encode(task, pixels, exif, slow=slow)


def _encoded(
    image: Image,
    format_: ImageFormat,
    encoding: Encoding,
    notice: str | None,
    exif: bytes | None,
) -> bytes:
    """Return a file with the pixels of an image, which nothing else needs, and its metadata."""
    taken = release if image.pixels.nbytes > KEPT else lambda _rows: None
    return codec.encode(image, format_, encoding, copyright=notice, exif=exif, taken=taken)
