"""Send the pixels of one image to the backend, and encode what comes back."""

import asyncio
from functools import partial

import numpy as np

from app.admission import Permit
from app.decoders import DecoderPool, Encode
from app.decoders.memory import AREA_SIZE, moved_to_file, release
from app.intake.wanted import Version
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import HeldImage
from app.pipeline.memory import MOST_PER_PIXEL, beside, check, check_filtering, filtering
from app.pipeline.results.encoded_files import EncodedFiles
from app.pipeline.results.outcomes import EncodedImage
from app.pipeline.results.timings import Timings
from models import codec
from models.codec import Encoding, ImageFormat
from models.domain.backend import Backend, Load
from models.domain.errors import InvalidParameter
from models.domain.image import Image, NetworkInput, Source
from models.domain.job import Job, Labels, Operation, Result, Vector
from workers.operations import Classify

LONG_ENCODING = 0.2
"""Estimated CPU seconds from which an image is encoded in a process instead of on a thread. Pillow
holds the interpreter's lock meanwhile, and noise takes several times as long as the estimate."""

SLOW_ENCODING = 1.0
"""Estimated CPU seconds of encoding from which an image leaves one process to the others."""


class Computation:
    """Labels and filtered files of decoded images.

    `max_pixels` bounds what filters may make; `files` keeps the results until they are sent.
    """

    def __init__(
        self,
        backend: Backend,
        decoders: DecoderPool,
        threads: CodecThreads,
        files: EncodedFiles,
        max_pixels: int,
    ) -> None:
        self._backend = backend
        self._decoders = decoders
        self._threads = threads
        self._files = files
        self._max_pixels = max_pixels

    def load(self) -> Load:
        """Return how busy the backend is, and what it takes."""
        return self._backend.load()

    async def labels(
        self, image: Source, operation: Classify, permit: Permit, stages: Timings
    ) -> Labels | Vector:
        """Return the labels of an image, or the vector that is wanted instead of them."""
        result = await self._run(operation, image, permit, stages)
        assert isinstance(result, Labels | Vector)
        return result

    async def filtered(
        self, source: HeldImage, version: Version, permit: Permit, stages: Timings, *, last: bool
    ) -> EncodedImage:
        """Put an image through the filters of a version and encode it.

        `last`: the source is not needed after the filters.
        """
        operation, output = version.operation, version.output
        format_ = output.format_for(source.info.format)
        cost = self._checked(source, version, format_, shared=not last)
        result = await self._run(operation, source.image(last=last), permit, stages, owned=last)
        assert not isinstance(result, Labels | Vector)
        held = source.result(result)
        del result
        with stages.measure("encode"):
            behind = permit.in_background
            data = await self.encode(held, format_, output.encoding, cost, background=behind)
            return EncodedImage(self._files.keep(data), format_, held.width, held.height)

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
            finished = partial(codec.finished, image, encoding, copyright=notice, exif=exif)
            return await self._threads.run(finished, background=background)
        if cost < LONG_ENCODING or not self._decoders.running:
            encode = partial(_encoded, image, format_, encoding, notice, exif)
            return await self._threads.run(encode, background=background)
        shape = image.height, image.width, image.channels
        n = None if exif is None else len(exif)
        task = Encode(shape, format_, encoding, notice, n, self._decoders.limits.encode_seconds)
        slow = background or cost > SLOW_ENCODING
        pixels = np.ascontiguousarray(image.pixels)
        del image
        if pixels.nbytes <= AREA_SIZE:
            return await self._decoders.encode(task, pixels.data.cast("B"), exif, slow=slow)
        moving = asyncio.to_thread(moved_to_file, pixels, exif or b"")
        del pixels
        file = await moving
        return await self._decoders.encode(task, file.number, slow=slow)

    def _checked(
        self, source: HeldImage, version: Version, format_: ImageFormat, *, shared: bool
    ) -> float:
        """Return the estimated CPU seconds of encoding a version of an image.

        Raises the error of a version that would take more pixels, memory or time than is allowed.
        """
        chain, encoding, limits = version.operation, version.output.encoding, self._decoders.limits
        shape = source.height, source.width, source.channels
        most = check(chain, self._max_pixels, source.height, source.width)
        if most * MOST_PER_PIXEL > limits.encode_memory:
            on_device, encoded = self.load().on_gpu, source.encoded
            needed = filtering(chain, shape, on_device=on_device, encoded=encoded, shared=shared)
            check_filtering(needed, shape, limits.encode_memory)
        after, kept = chain.shape_after(shape), beside(shape, shared=shared)
        codec.check_encode_memory(after, format_, encoding, limits.encode_memory, beside=kept)
        pixels = after[0] * after[1]
        return codec.check_encode_cost(pixels, format_, encoding, limits.encode_seconds)

    async def _run(
        self,
        operation: Operation,
        image: Source,
        permit: Permit,
        stages: Timings,
        *,
        owned: bool = False,
    ) -> Result:
        job = Job(operation, image, permit.deadline, permit.lane, owned)
        completed = await self._backend.run(job)
        stages.add(completed.trace)
        return completed.result


def check_finite(found: Labels | Vector) -> Labels | Vector:
    """Return the output of a network; raise InvalidParameter if some of it is no finite number.

    Finite inputs that are far from those of photos overflow half precision.
    """
    values = found.values if isinstance(found, Vector) else np.asarray(found.scores)
    if not np.isfinite(values).all():
        raise InvalidParameter(
            "the network's output for this image is not finite: its values are too large; "
            "normalise them as the network expects"
        )
    return found


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
