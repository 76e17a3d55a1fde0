"""Decode the file of an image, which holds the memory that it needs, and encode what becomes of it.

Codec threads decode plain baseline JPEGs and encode ordinary results; decoder processes do all
other work. An image is decoded at once if it is small; otherwise its header comes back, the image
waits for the memory that it needs by its header, and is decoded. Nothing here depends on an
operation or a backend.
"""

import math
import operator
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

import numpy as np
import psutil

from app.admission import Permit
from app.admission.line import Turn
from app.decoders.memory import KEPT, LARGE_FILE, SMALL, opening_bytes, release
from app.decoders.messages import Bounds, Encode, Seen
from app.decoders.messages import Wanted as Of
from app.decoders.pool import ENCODE_SECONDS, EXPENSIVE, DecoderPool
from app.intake.item import Item
from app.intake.spool import Blob
from app.intake.wanted import ClassifyTensors, Version
from app.pipeline.memory import Memory, check_filters
from app.pipeline.outcomes import Timings
from models import codec
from models.api.schemas import InfoOptions
from models.codec import Decoded, Description, Encoding, ImageFormat, ImageInfo, identify
from models.codec.decode import NewProfile
from models.domain.alarms import Timeout
from models.domain.backend import Load
from models.domain.errors import InvalidParameter
from models.domain.image import Image, Jpeg, NetworkInput, Source
from models.settings import Settings
from models.threads import lower_priority, run_to_end

T = TypeVar("T")

MAGIC = 16
"""Number of bytes that distinguish a JPEG from other formats."""

AT_ONCE = 1 << 19
"""Largest JPEG, in bytes, that is scanned on the event loop: 0.2 ms, about the cost of a thread."""

BRIEFLY_READ = 1 << 20
"""Largest tensor or finished file, in bytes, that is looked at or copied on the event loop: 0.1 ms
for a tensor of 262,144 values."""

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

LONG_ENCODING = 0.2
"""Estimated CPU seconds from which an image is encoded in a process instead of on a thread. Pillow
holds the interpreter's lock meanwhile, and noise takes several times as long as the estimate."""

Need = Callable[[Seen], int]
"""Maps the header of an image to the most bytes that the image takes at any time."""

assert sys.byteorder == "little", "tensors are little-endian, and are used as they come"


class CodecThreads:
    """At most `most` threads, and as many of a lower priority for work in the background."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = 0
        """Calls that have not ended, without those in the background."""
        self._front = ThreadPoolExecutor(most, "codec")
        self._behind = ThreadPoolExecutor(most, "codec-behind", lower_priority)

    async def run(self, function: Callable[..., T], *args: object, background: bool = False) -> T:
        """Run a function on a thread and return its result; see `run_to_end`."""
        self.busy += not background
        try:
            return await run_to_end(self._behind if background else self._front, function, *args)
        finally:
            self.busy -= not background

    def close(self) -> None:
        """End the threads; nothing may be submitted any more."""
        self._front.shutdown()
        self._behind.shutdown()


class ImageContext:
    """One image under way: its item, the permit of its request, its stopwatch, turn and memory.

    `most` are the bytes that the image may take now. `alarm` ends the work at the deadline.
    """

    __slots__ = ("_held", "_memory", "alarm", "item", "most", "permit", "stages", "turn")

    alarm: Timeout
    turn: Turn

    def __init__(self, item: Item, permit: Permit, memory: Memory) -> None:
        self.item = item
        self.permit = permit
        self.stages = Timings()
        self.most = SMALL
        self._memory = memory
        self._held = 0

    async def hold(self, n_bytes: int) -> None:
        """Hold `n_bytes` of memory, if the image may take less now.

        An image that waits for memory holds none, and leaves its turn to another image.
        """
        if n_bytes <= self.most:
            return
        self.turn.leave()
        self.release()
        _, _, self._held = await self._memory.budget.take(self.permit.client, amount=n_bytes)
        self.most = n_bytes
        await self.turn.take()

    def release(self) -> None:
        """Give all memory back; further calls have no effect."""
        if self._held:
            self._memory.budget.give_back(self.permit.client, amount=self._held)
            self._memory.trim_soon()
            self._held, self.most = 0, SMALL


class IdleCores:
    """Meter of the share of the machine's core time that was unused recently; 0 at first."""

    LOOK = 0.25
    """Seconds between two measurements."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()
        self._share = 0.0
        psutil.cpu_percent()  # each call is about the time since the call before

    def share(self) -> float:
        """Return the share, from 0 to 1, by the last measurement."""
        if (now := time.monotonic()) - self._looked_at >= self.LOOK:
            self._looked_at = now
            self._share = 1 - psutil.cpu_percent() / 100
        return self._share


class ImageCodec:
    """Decodes and encodes; `threads` are shared by all requests, `max_pixels` bounds each image."""

    def __init__(self, decoders: DecoderPool, threads: CodecThreads, max_pixels: int) -> None:
        self._decoders = decoders
        self._threads = threads
        self._max_pixels = max_pixels
        self._idle = IdleCores()

    async def encoded(self, content: Blob, stages: Timings, load: Load) -> Decoded | None:
        """Return a JPEG that the device of this load should decode, or None for any other file."""
        if not self.device_is_sooner(load):
            return None

        def look(*, prepare: bool = True) -> Decoded | None:
            return codec.encoded(content.read(), max_pixels=self._max_pixels, prepare=prepare)

        with stages.measure("decode"):
            if content.size <= AT_ONCE and not content.on_disk:
                with suppress(NewProfile):
                    return look(prepare=False)
            return await self._threads.run(look)

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

    async def decoded(
        self, content: Blob, image: ImageContext, need: Need, wanted: Of = Of.PIXELS
    ) -> Decoded:
        """Decode an image, which holds the memory that it needs, and close the file.

        Raises TooManyPixels for an image whose decoding would take more memory than is allowed.
        """
        found = await self._plain(content, image, need)
        if found is None:
            pixels = await self._in_process(content, image, need, wanted)
            assert isinstance(pixels, Decoded)
            found = pixels
        content.close()
        return found

    async def described(
        self, content: Blob, image: ImageContext, wanted: InfoOptions
    ) -> Description:
        """Return what a file contains; raises the error of a file that cannot be read.

        EXIF and colour profiles may be hostile: even their readers run in a decoder process.
        """
        parts = Of.COLOUR if wanted.colour else Of.DESCRIPTION
        if wanted.appearance:
            parts = Of.APPEARANCE
        found = await self._in_process(content, image, operator.attrgetter("memory"), parts)
        assert isinstance(found, Description)
        return found

    async def tensor(self, content: Blob, wanted: ClassifyTensors, image: ImageContext) -> Source:
        """Return an image that comes as a tensor: decoded samples, or the input of a network.

        Raises InvalidParameter for values that are not finite.
        """
        await image.hold(COPIES * content.size)
        with image.stages.measure("decode"):
            if content.on_disk or content.size > BRIEFLY_READ:
                source = await self._threads.run(_tensor, content, wanted)
            else:
                source = _tensor(content, wanted)
        content.close()
        return source

    def encode_cost(
        self,
        source: Decoded,
        version: Version,
        format_: ImageFormat,
        *,
        on_gpu: bool,
        shared: bool,
        limit: int = sys.maxsize,
    ) -> float:
        """Return the estimated CPU seconds of encoding a version of an image.

        Raises the error of a version that would take more pixels, memory or time than is allowed,
        or more than `limit` bytes of memory.
        """
        chain, encoding = version.operation, version.encoding
        limit = min(limit, Settings.encode_memory)
        where = {"on_device": on_gpu, "encoded": isinstance(source.image, Jpeg), "shared": shared}
        n = source.info.stack
        check_filters(chain, self._max_pixels, source.shape, limit, frames=n, **where)
        after, kept = chain.shape_after(source.shape), math.prod(source.shape) * shared
        codec.check_encode_memory(after, format_, encoding, limit, beside=kept, frames=n)
        return codec.check_encode_cost(n * after[0] * after[1], format_, encoding, ENCODE_SECONDS)

    async def encode(
        self,
        held: Decoded,
        format_: ImageFormat,
        encoding: Encoding,
        cost: float,
        *,
        background: bool = False,
    ) -> tuple[bytes, int | None]:
        """Return a file with the pixels of an image and the metadata of its source, and the quality
        that `max_bytes` has led to.

        The pixels are taken from `held`, so that a process which encodes large ones has them alone.
        An image that takes long by its estimated `cost` in CPU seconds is encoded in a process,
        which is killed if the request ends.
        """
        image, notice, exif = held.take(), held.copyright, held.exif
        assert not isinstance(image, NetworkInput), "filters give images"
        if not isinstance(image, Image):
            finish = partial(codec.finished, image, encoding, copyright=notice, exif=exif)
            if image.data.nbytes <= BRIEFLY_READ:
                return finish(), None
            return await self._threads.run(finish, background=background), None
        if cost < LONG_ENCODING or not self._decoders.running:
            taken = release if image.pixels.nbytes > KEPT else lambda _rows: None
            encode = partial(
                codec.encode_within,
                copyright=notice,
                exif=exif,
                taken=taken,
                animation=held.animation,
            )
            return await self._threads.run(encode, image, format_, encoding, background=background)
        n = None if exif is None else len(exif)
        shape, times = image.pixels.shape, held.animation
        task = Encode(shape, format_, encoding, notice, n, ENCODE_SECONDS, times)
        slow = background or cost > EXPENSIVE
        pixels = np.ascontiguousarray(image.pixels)
        del image
        return await self._decoders.encode(task, pixels, exif, slow=slow)

    async def _plain(self, content: Blob, image: ImageContext, need: Need) -> Decoded | None:
        """Decode a plain baseline JPEG on a thread; return None for any other file.

        Only decoding shows damage, and no thread decodes a damaged JPEG twice. A file on disk is
        read on the thread only.
        """
        if not self._decoders.running or identify(content.start(MAGIC)) is not ImageFormat.JPEG:
            return None
        if not content.on_disk and not codec.may_be_baseline(content.read()):
            return None

        def work() -> Decoded | Seen | None:
            opened = codec.open_plain(content.read(), max_pixels=self._max_pixels)
            if opened is None:
                return None
            memory = codec.decode_memory(opened.info, content.size, plain_jpeg=True)
            seen = Seen(opened.info, 0.0, memory)  # its cost is bounded by its pixels
            return opened.decode_plain() if need(seen) <= image.most else seen

        while True:
            with image.stages.measure("decode"):
                found = await self._threads.run(work, background=image.permit.in_background)
            if not isinstance(found, Seen):
                return found
            codec.check_decode_memory(found.info, found.memory, Settings.decode_memory)
            await image.hold(need(found))

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
            codec.check_decode_memory(found.info, found.memory, Settings.decode_memory)
            await image.hold(max(opening, need(found)))
            pixels = found.info.n_pixels
            bounds = Bounds(pixels, pixels, found.memory, max(EXPENSIVE, found.cost))

    def _here(self, content: Blob, bounds: Bounds, wanted: Of) -> Decoded | Description | Seen:
        """Use a file of any format, on a machine without decoder processes."""
        frames = wanted is Of.FRAMES
        opened = codec.open_file(content.read(), max_pixels=self._max_pixels, all_frames=frames)
        if wanted is Of.DESCRIPTION:
            return opened.describe()
        if not bounds.allow(opened.info, opened.memory, opened.cost):
            return Seen(opened.info, opened.cost, opened.memory)
        if wanted in (Of.PIXELS, Of.FRAMES):
            return opened.decode()
        return opened.describe(**{wanted.value: True})


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


def _tensor(content: Blob, wanted: ClassifyTensors) -> Source:
    data = content.read()
    if not wanted.operation.preprocessed:
        return Image(np.frombuffer(data, np.uint8).reshape(wanted.height, wanted.width, 3))
    values = np.frombuffer(data, np.float32)
    if not np.isfinite(values).all():
        raise InvalidParameter("the tensor of this image has values that are no finite numbers")
    return NetworkInput(values.reshape(3, wanted.height, wanted.width))
