"""One image under way: its turn, its memory, its stopwatch and its pixels."""

from copy import copy

from app.admission import Permit
from app.admission.line import Turn
from app.decoders import SMALL
from app.intake.item import Item
from app.pipeline.memory import Memory
from app.pipeline.results.timings import Timings
from models.codec import Decoded, ImageInfo
from models.domain.alarms import Timeout
from models.domain.image import Jpeg, Source


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


class HeldImage:
    """The pixels of an image and what its file contained beside them.

    A filtered image is encoded without its source. The last user of the pixels takes them away, so
    that they do not stay in memory until the answer is complete. `info`, `copyright` and `exif` are
    as in `models.codec.Decoded`.
    """

    __slots__ = ("_image", "channels", "copyright", "exif", "height", "info", "width")

    def __init__(self, decoded: Decoded) -> None:
        self._image: Source | None = decoded.image
        self.height, self.width = decoded.image.height, decoded.image.width
        self.channels = decoded.image.channels
        self.info: ImageInfo = decoded.info
        self.copyright = decoded.copyright
        self.exif = decoded.exif

    @property
    def encoded(self) -> bool:
        """Return whether the image is a JPEG that the device will decode."""
        return isinstance(self._image, Jpeg)

    def result(self, image: Source) -> "HeldImage":
        """Return what filters made of this image: other pixels of the same file."""
        held = copy(self)
        held._image = image
        held.height, held.width, held.channels = image.height, image.width, image.channels
        return held

    def image(self, *, last: bool = False) -> Source:
        """Return the pixels; the `last` user takes them away."""
        image = self._image
        assert image is not None, "the pixels were taken away before"
        if last:
            self._image = None
        return image
