"""Read the images of a body of any length, one by one while earlier ones are answered.

`application/x-ndjson` has one JSON object a line, as `images` of a JSON body has them.
`application/x-length-delimited` has files, each after its length in four bytes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial

from starlette.types import Message, Receive

from app.admission import Permit
from app.admission.stream_permits import StreamPermits
from app.http.negotiation import JSON_LINES
from app.http.request import StreamWindow, media_type
from app.intake.body import BodyReader
from app.intake.item import Found, Item
from app.intake.json_items import MOST_BYTES, json_line
from app.intake.spool import Blob, Spool
from app.intake.wanted import Admitted, Wanted, work_on
from models.domain.errors import (
    Cancelled,
    Draining,
    MalformedRequest,
    Overloaded,
    RateLimited,
    ServiceError,
    SlowBody,
    TooLarge,
)
from models.settings import Settings

LENGTH_DELIMITED = "application/x-length-delimited"
MEDIA_TYPES = (*JSON_LINES, LENGTH_DELIMITED)
"""The types of bodies that are streams."""

LINE_REST = 1 << 16
"""Bytes that a line may have besides the base64 of the largest image."""

LENGTH_BYTES = 4
"""Bytes of the length before an image: an unsigned number, its most significant byte first."""

BLANK = 64
"""Blank lines that are skipped before other tasks of the event loop have their turn."""


def is_stream(content_type: str) -> bool:
    """Return whether a body of this type is read as a stream."""
    return media_type(content_type) in MEDIA_TYPES


class ImageStream:
    """The images of one body; each gets a permit from `permits` before the next is read."""

    def __init__(
        self,
        receive: Receive,
        content_type: str,
        wanted: Wanted,
        permits: StreamPermits,
        window: StreamWindow,
        settings: Settings,
    ) -> None:
        self._receive = receive
        self._delimited = content_type.startswith(LENGTH_DELIMITED)
        self._wanted = wanted
        self._permits = permits
        self._window = window
        self._settings = settings
        self._longest = min(-(-settings.max_image_bytes // 3) * 4 + LINE_REST, MOST_BYTES)
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
        async with aclosing(self._chunks()) as chunks:
            if self._delimited:
                async for content in self._files(BodyReader(chunks)):
                    yield content, None, None
            else:
                async with aclosing(self._lines(chunks)) as lines:
                    async for line in lines:
                        yield await json_line(line, self._settings)

    async def _files(self, reader: BodyReader) -> AsyncGenerator[Blob | ServiceError, None]:
        """Yield images, or TooLarge for a larger one, which is skipped.

        Raises MalformedRequest if the body ends inside an image.
        """
        while head := await reader.exactly(LENGTH_BYTES):
            if len(head) < LENGTH_BYTES:
                raise MalformedRequest(f"the stream ends inside a length of {LENGTH_BYTES} bytes")
            self._window.inside_item = True
            size = int.from_bytes(head, "big")
            missing = partial(_cut_off, size)
            most = self._settings.max_image_bytes
            image = await reader.file(size, most, missing, self._arrives)
            self._window.inside_item = False
            yield image

    async def _lines(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[Blob, None]:
        """Yield the lines of a body that are not blank.

        Raises TooLarge for a line that is too long, without waiting for its end, and Overloaded.
        """
        longest, blank, size = self._longest, 0, 0
        spool = Spool(longest)
        try:
            async for chunk in chunks:
                *complete, rest = chunk.split(b"\n")
                for line in complete:
                    self._window.inside_item = False
                    if size:
                        await spool.write(line)
                        yield await spool.finish()
                        spool, size = Spool(longest), 0
                    elif line.strip():
                        yield Blob.of(line)
                    else:
                        blank += 1
                        if blank % BLANK == 0:
                            await asyncio.sleep(0)  # a chunk may have 100,000 of them
                if rest:
                    size += len(rest)
                    if size > longest:
                        raise TooLarge(
                            f"a line has more than {longest} bytes; send larger images as "
                            "application/x-length-delimited; the stream ends here"
                        )
                    await spool.write(rest)
                    self._window.inside_item = True
                    await self._arrives(len(rest), 0)
            if size:
                last = await spool.finish()
                if last.start(99).strip():
                    yield last
        finally:
            await spool.__aexit__()

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
            size, works = 0, list[int]()
            if isinstance(content, Blob):
                size = content.size
                works.append(work_on(content, self._wanted, self._settings.max_pixels))
            await self._permits.complete(self._permit, size, works)
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


def _cut_off(size: int, left: int) -> MalformedRequest:
    return MalformedRequest(
        f"the stream ends inside an image: {left} of its {size} bytes are missing"
    )
