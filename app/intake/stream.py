"""Read the images of a body of any length, one by one while earlier ones are answered.

`application/x-ndjson` has one JSON object a line, as `images` of a JSON body has them.
`application/x-length-delimited` has files, each after its length in four bytes.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.types import Message, Receive

from app.admission import Permit
from app.admission.stream_permits import StreamPermits
from app.http.negotiation import JSON_LINES
from app.http.request import StreamWindow, media_type
from app.intake import framing
from app.intake.item import Found, Item
from app.intake.json_items import MOST_BYTES, json_line
from app.intake.spool import Blob
from app.intake.wanted import Admitted, pixels_of
from models.domain.errors import (
    Cancelled,
    Draining,
    MalformedRequest,
    Overloaded,
    RateLimited,
    SlowBody,
    TooLarge,
)
from models.settings import Settings

LENGTH_DELIMITED = "application/x-length-delimited"
MEDIA_TYPES = (*JSON_LINES, LENGTH_DELIMITED)
"""The types of bodies that are streams."""

LINE_REST = 1 << 16
"""Bytes that a line may have besides the base64 of the largest image."""


def is_stream(content_type: str) -> bool:
    """Return whether a body of this type is read as a stream."""
    return media_type(content_type) in MEDIA_TYPES


class ImageStream:
    """The images of one body; each gets a permit from `permits` before the next is read."""

    def __init__(
        self,
        receive: Receive,
        content_type: str,
        permits: StreamPermits,
        window: StreamWindow,
        settings: Settings,
    ) -> None:
        self._receive = receive
        self._delimited = content_type.startswith(LENGTH_DELIMITED)
        self._permits = permits
        self._window = window
        self._settings = settings
        self._first: Message | None = None
        self._permit: Permit | None = None
        self._ends = False

    async def begin(self) -> None:
        """Wait for the first bytes: before them no answer may be sent (RFC 9110, section 10.1.1).

        Raises SlowBody.
        """
        self._first = await self._receive()

    async def items(self) -> AsyncGenerator[Admitted, None]:
        """Yield the images in their order.

        What ends a stream is the error of one more item: a slow client, a line or a body that is
        cut off, a server that stops. Raises Cancelled if the client leaves.
        """
        index = 0
        try:
            async with aclosing(self._found()) as found:
                async for each in found:
                    yield await self._admitted(index, each)
                    index += 1
                    if self._ends:
                        return
        except (SlowBody, TooLarge, MalformedRequest, Overloaded, RateLimited, Draining) as error:
            yield Admitted(Item(index, error.with_traceback(None)), None)
        finally:
            self._dropped()

    async def _found(self) -> AsyncGenerator[Found, None]:
        settings, window = self._settings, self._window
        async with aclosing(self._chunks()) as chunks:
            if self._delimited:
                most = settings.max_image_bytes
                images = framing.images(chunks, self._arrives, window, most)
                async with aclosing(images):
                    async for content in images:
                        yield content, None, None
                return
            longest = min(-(-settings.max_image_bytes // 3) * 4 + LINE_REST, MOST_BYTES)
            lines = framing.lines(chunks, self._arrives, window, longest)
            async with aclosing(lines):
                async for line in lines:
                    yield await json_line(line, settings)

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        message = self._first or await self._receive()
        while True:
            if message["type"] == "http.disconnect":
                raise Cancelled("the client left")
            if chunk := message.get("body", b""):
                yield chunk
            if not message.get("more_body", False):
                return
            message = await self._receive()

    async def _arrives(self, n_bytes: int, announced: int) -> None:
        """Charge for bytes of an item that is not complete; its permit is taken before it is."""
        if self._permit is None:
            self._permit = await self._permits.enter()
        await self._permits.arrives(self._permit, n_bytes, announced)

    async def _admitted(self, index: int, found: Found) -> Admitted:
        """Return an item with the permit of its work, or as the error that refuses it."""
        content, source, id_ = found
        try:
            if self._permit is None:
                self._permit = await self._permits.enter()
            size, sizes = 0, list[int | None]()
            if isinstance(content, Blob):
                size, sizes = content.size, [pixels_of(content, self._settings.max_pixels)]
            await self._permits.complete(self._permit, size, sizes)
        except (Overloaded, RateLimited, TooLarge, Draining) as error:
            self._ends = isinstance(error, Draining)
            self._dropped()
            if isinstance(content, Blob):
                content.close()
            return Admitted(Item(index, error.with_traceback(None), source, id_), None)
        permit, self._permit = self._permit, None
        return Admitted(Item(index, content, source, id_), permit)

    def _dropped(self) -> None:
        """Release the permit of an item that does not become complete."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.release()
