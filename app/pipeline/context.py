"""What accompanies one image through the pipeline, and how its errors become its outcome."""

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from app.admission import Permit, Turn
from app.intake.item import Item
from app.intake.spool import Blob
from app.intake.wanted import pixels_of
from app.pipeline.results.timings import Timings
from models.domain.alarms import Timeout, interrupted
from models.domain.errors import InternalError, ServiceError

log = logging.getLogger("darkroom.pipeline")

T = TypeVar("T")


class ExpectedPixels:
    """The pixels of an image by the start of its file; None before its bytes have come.

    `known` are those of an image that is no file; for `most` see `pixels_of`.
    """

    __slots__ = ("_most", "_pixels", "content")

    def __init__(self, most: int, known: int | None = None) -> None:
        self.content: Blob | None = None
        self._most = most
        self._pixels = known

    def __call__(self) -> int | None:
        """Return the pixels; the file is looked at once."""
        content, self.content = self.content, None
        if content is not None and self._pixels is None:
            self._pixels = pixels_of(content, self._most)
        return self._pixels


@dataclass(frozen=True, slots=True)
class ImageContext:
    """One image under way: its item, the permit of its request, and its stopwatch.

    `alarm` ends the work at the deadline of the request; `turn` is its place among all clients, for
    which `pixels` are estimated.
    """

    item: Item
    permit: Permit
    stages: Timings
    alarm: Timeout
    turn: Turn
    pixels: ExpectedPixels


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
