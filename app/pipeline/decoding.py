"""Decode the file of an image, which holds the memory that it needs.

Codec threads decode plain baseline JPEGs, and decoder processes all other files. An image is
decoded at once if it is small; otherwise its header comes back, the image waits for the memory that
it needs by its header, and is decoded. Nothing here depends on an operation or a backend.
"""

import operator
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from app.decoders import EXPENSIVE, LARGE_FILE, Bounds, DecoderPool, Seen, opening_bytes
from app.decoders import Wanted as Of
from app.intake.spool import Blob
from app.intake.wanted import ClassifyTensors
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import HeldImage, ImageContext
from app.pipeline.results.timings import Timings
from models import codec
from models.codec import Decoded, Description, ImageFormat, ImageInfo, identify
from models.domain.backend import Load
from models.domain.errors import InvalidParameter
from models.domain.image import Image, NetworkInput, Source
from models.settings import Settings

MAGIC = 16
"""Number of bytes that distinguish a JPEG from other formats."""

AT_ONCE = 1 << 19
"""Largest JPEG, in bytes, that is scanned on the event loop: 0.2 ms, about the cost of a thread."""

TENSOR_AT_ONCE = 1 << 20
"""Largest tensor, in bytes, that is looked at on the event loop: 0.1 ms for its 262,144 values."""

COPIES = 4
"""Times the bytes of samples that a tall image takes: its samples, and Pillow's copy of them."""

TYPICAL = (1250, 1600)
"""Height and width of the largest image that a decoder process decodes without asking."""

AHEAD = 256
"""Jobs at the device that do not count as a queue: they form its next batches while it works."""

DECODING = 0.8
"""Least share of its recent time that the device must have spent on decoding."""

SPARE = 0.3
"""Least share of all cores that must have been idle recently."""

Need = Callable[[Seen], int]
"""Maps the header of an image to the most bytes that the image takes at any time."""

assert sys.byteorder == "little", "tensors are little-endian, and are used as they come"


class IdleCores:
    """Meter of the share of the machine's core time that was unused recently; 0 if unknown."""

    LOOK = 0.25
    """Seconds between two measurements."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._looked_at = time.monotonic()
        self._share = 0.0
        self._last = self._ticks()

    def share(self) -> float:
        """Return the share, from 0 to 1, by the last measurement."""
        if (now := time.monotonic()) - self._looked_at >= self.LOOK:
            self._looked_at = now
            idle, whole = self._ticks()
            if whole > self._last[1]:
                self._share = (idle - self._last[0]) / (whole - self._last[1])
            self._last = idle, whole
        return self._share

    def _ticks(self) -> tuple[int, int]:
        """Return idle ticks (waiting for disks included) and all ticks since boot (proc(5))."""
        try:
            with self._stat.open() as file:
                ticks = [int(word) for word in file.readline().split()[1:9]]
        except OSError:
            return 0, 0
        return ticks[3] + ticks[4], sum(ticks)


class ImageDecoder:
    """Decodes; `threads` are shared by all requests."""

    def __init__(self, decoders: DecoderPool, threads: CodecThreads, max_pixels: int) -> None:
        self._decoders = decoders
        self._threads = threads
        self._max_pixels = max_pixels
        self._idle = IdleCores()

    async def encoded(self, content: Blob, stages: Timings) -> Decoded | None:
        """Return a JPEG that the device can decode, or None for a file to be decoded here."""
        start = time.monotonic()
        try:
            if content.size <= AT_ONCE and not content.on_disk:
                return codec.encoded(content.read(), max_pixels=self._max_pixels)
            look = partial(codec.encoded, max_pixels=self._max_pixels)
            return await self._threads.run(lambda: look(content.read()))
        finally:
            stages.note("decode", start)

    async def decoded(self, content: Blob, image: ImageContext, need: Need) -> HeldImage:
        """Decode an image, which holds the memory that it needs, and close the file.

        Raises TooManyPixels for an image whose decoding would take more memory than is allowed.
        """
        found = None
        if self._may_be_plain(content):
            found = await self._plain(content, image, need)
        if found is None:
            pixels = await self._in_process(content, image, need, Of.PIXELS)
            assert isinstance(pixels, Decoded)
            found = pixels
        content.close()
        return HeldImage(found)

    async def described(self, content: Blob, image: ImageContext, *, colour: bool) -> Description:
        """Return what a file contains; raises the error of a file that cannot be read.

        EXIF and colour profiles may be hostile: even their readers run in a decoder process.
        """
        wanted = Of.COLOUR if colour else Of.DESCRIPTION
        found = await self._in_process(content, image, operator.attrgetter("memory"), wanted)
        assert isinstance(found, Description)
        return found

    async def tensor(self, content: Blob, wanted: ClassifyTensors, image: ImageContext) -> Source:
        """Return an image that comes as a tensor: decoded samples, or the input of a network.

        Raises InvalidParameter for values that are not finite.
        """
        await image.hold(COPIES * content.size)
        with image.stages.measure("decode"):
            if content.on_disk or content.size > TENSOR_AT_ONCE:
                source = await self._threads.run(_tensor, content, wanted)
            else:
                source = _tensor(content, wanted)
        content.close()
        return source

    def device_is_sooner(self, load: Load) -> bool:
        """Return whether the device should decode a JPEG, as it does if that costs it little.

        Threads help only while decoding is what limits the device and the machine has cores to
        spare: pixels are ten times as large as their file, and a worker that is limited by
        something else loses more time by copying pixels than by decoding. Threads that decoded too
        much lowered the rate from 8,900 to 6,400 images per second.
        """
        if not load.takes_jpegs:
            return False
        if load.queued_jobs <= AHEAD or load.decoding < DECODING:
            return True
        return self._threads.busy >= self._threads.most or self._idle.share() < SPARE

    def _may_be_plain(self, content: Blob) -> bool:
        """Return whether a file may be a plain baseline JPEG; one on disk is only read later."""
        if not self._decoders.running or identify(content.start(MAGIC)) is not ImageFormat.JPEG:
            return False
        return content.on_disk or codec.may_be_baseline(content.read())

    async def _plain(self, content: Blob, image: ImageContext, need: Need) -> Decoded | None:
        """Decode a plain baseline JPEG on a thread; return None for any other file.

        Only decoding shows damage, and no thread decodes a damaged JPEG twice.
        """
        background = image.permit.in_background
        while True:
            with image.stages.measure("decode"):
                found = await self._threads.run(
                    _plain, content, self._max_pixels, need, image.most, background=background
                )
            if not isinstance(found, Seen):
                return found
            await _hold(image, found, need(found))

    async def _in_process(
        self, content: Blob, image: ImageContext, need: Need, wanted: Of
    ) -> Decoded | Description:
        """Return what is in a file, which is opened again when the image holds what it needs.

        A large file holds the memory that opening it takes before it is opened.
        """
        opening = opening_bytes(content.size) if content.size >= LARGE_FILE else 0
        await image.hold(opening)
        bounds = _at_once(content, need, image.most)
        while True:
            slow = image.permit.in_background or bounds.cost > EXPENSIVE
            with image.stages.measure("decode"):
                if self._decoders.running:
                    with content.shown() as file:
                        found = await self._decoders.decode(
                            file, content.size, bounds, wanted, slow=slow
                        )
                else:
                    found = await self._threads.run(self._here, content, bounds, wanted)
            if isinstance(found, Decoded) and need(Seen(found.info, 0.0)) > image.most:
                # Of fewer pixels than was assumed, and another shape.
                found = Seen(found.info, 0.0, codec.decode_memory(found.info, content.size))
            if not isinstance(found, Seen):
                return found
            await _hold(image, found, max(opening, need(found)))
            pixels = found.info.n_pixels
            bounds = Bounds(pixels, pixels, found.memory, max(EXPENSIVE, found.cost))

    def _here(self, content: Blob, bounds: Bounds, wanted: Of) -> Decoded | Description | Seen:
        """Use a file of any format, on a machine without decoder processes."""
        opened = codec.open_file(content.read(), max_pixels=self._max_pixels)
        if wanted is Of.DESCRIPTION:
            return opened.describe(colour=False)
        if not bounds.allow(opened.info, opened.memory, opened.cost):
            return Seen(opened.info, opened.cost, opened.memory)
        return opened.decode() if wanted is Of.PIXELS else opened.describe(colour=True)


def _at_once(content: Blob, need: Need, held: int) -> Bounds:
    """Return the bounds of images that need no more than what is `held`: a process decodes those
    before it sends the header. The typical image stands for all that have no more pixels.
    """
    format_ = identify(content.start(MAGIC)) or ImageFormat.PNG

    def most(mode: str) -> int:
        info = ImageInfo(format_, TYPICAL[1], TYPICAL[0], 1, 1, mode, fast_jpeg=False)
        seen = Seen(info, 0.0, codec.decode_memory(info, content.size))
        return info.n_pixels if need(seen) <= held else 0

    return Bounds(most("RGB"), most("RGBA"), held, EXPENSIVE)


async def _hold(image: ImageContext, seen: Seen, n_bytes: int) -> None:
    """Hold `n_bytes` for an image with this header; raises TooManyPixels if decoding it would take
    more than is allowed.
    """
    codec.check_decode_memory(seen.info, seen.memory, Settings.decode_memory)
    await image.hold(n_bytes)


def _plain(content: Blob, max_pixels: int, need: Need, most: int) -> Decoded | Seen | None:
    """Decode a plain baseline JPEG that needs `most` bytes at most, or return its header; return
    None for any other file, and for a damaged JPEG.
    """
    opened = codec.open_plain(content.read(), max_pixels=max_pixels)
    if opened is None:
        return None
    memory = codec.decode_memory(opened.info, content.size, plain_jpeg=True)
    seen = Seen(opened.info, 0.0, memory)  # its cost is bounded by its pixels
    return opened.decode_plain() if need(seen) <= most else seen


def _tensor(content: Blob, wanted: ClassifyTensors) -> Source:
    data = content.read()
    if not wanted.operation.preprocessed:
        return Image(np.frombuffer(data, np.uint8).reshape(wanted.height, wanted.width, 3))
    values = np.frombuffer(data, np.float32)
    if not np.isfinite(values).all():
        raise InvalidParameter("the tensor of this image has values that are no finite numbers")
    return NetworkInput(values.reshape(3, wanted.height, wanted.width))
