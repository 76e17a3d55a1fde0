"""One image under way: what accompanies it, its pixels, and how its errors become its outcome."""

import logging
from collections.abc import Coroutine
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from app.admission import Permit
from app.decoders import Seen
from app.intake.item import Item
from app.pipeline.memory import HeldMemory
from app.pipeline.results.timings import Timings
from models.codec import Decoded, ImageInfo
from models.domain.alarms import Timeout, interrupted
from models.domain.errors import InternalError, ServiceError
from models.domain.image import Jpeg, Source

log = logging.getLogger("darkroom.pipeline")

T = TypeVar("T")


@dataclass(slots=True)
class ImageContext:
    """One image under way: its item, the permit of its request, its stopwatch and its memory.

    `alarm` ends the work at the deadline of the request. `seen` is the header that a decoder has
    sent; `may_be_plain` tells whether the file may be a plain baseline JPEG.
    """

    item: Item
    permit: Permit
    stages: Timings
    alarm: Timeout
    memory: HeldMemory
    seen: Seen | None = None
    may_be_plain: bool = True


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


def alarm_of(permit: Permit) -> Timeout:
    """Return the alarm of an image. That of a job goes on while its requests are given up: jobs end
    in their own way, which loses none of their images.
    """
    return Timeout(permit.deadline, ends_early=not permit.in_background)


async def caught(item: Item, alarm: Timeout, work: Coroutine[Any, Any, T]) -> T | ServiceError:
    """Await `work` until `alarm` rings; return its result, or its error as a value."""
    try:
        async with alarm:
            return await work
    except ServiceError as error:
        return error.with_traceback(None)  # its frames hold the pixels
    except TimeoutError:
        return interrupted()
    except Exception:  # the other images of the request are protected from a fault of ours
        log.exception("image failed", extra={"source": item.source})
        return InternalError("an unexpected error; it has been logged")
