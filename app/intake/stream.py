"""Read the images of a body of any length while earlier images are answered.

`application/x-ndjson` has one JSON object a line, as `images` of a JSON body has them.
`application/x-length-delimited` has files, each after its length in four bytes.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request

from app.admission import Permit, StreamPermits
from app.http.negotiation import JSON_LINES
from app.http.request import StreamWindow, content_type, media_type
from app.intake.item import Found, Item
from app.intake.json_items import MOST_BYTES, json_line
from app.intake.spool import Blob, ImageSpool, Spool, too_large
from app.intake.wanted import Admitted
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


def is_stream(kind: str) -> bool:
    """Return whether a body of this Content-Type is read as a stream."""
    return media_type(kind) in MEDIA_TYPES


class BodyReader:
    """Gives the bytes of a body by number, however it is cut on its way; `place` counts them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self.place = 0

    async def ended(self) -> bool:
        """Return whether all bytes have been read; waits for the next byte or the end."""
        while not self._rest:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                return True
            self._rest = chunk
        return False

    async def some(self, most: int | None = None) -> bytes:
        """Return the next bytes as they came, at most `most` of them; none at the end."""
        if await self.ended():
            return b""
        size = len(self._rest) if most is None else most
        piece, self._rest = self._rest[:size], self._rest[size:]
        self.place += len(piece)
        return piece

    async def pieces(self, size: int) -> AsyncGenerator[bytes, None]:
        """Yield the next `size` bytes; raises MalformedRequest if the body has fewer."""
        left = size
        while left:
            piece = await self.some(left)
            if not piece:
                raise MalformedRequest(
                    f"the body ends after {self.place} bytes, where {left} more have to follow"
                )
            left -= len(piece)
            yield piece

    async def exactly(self, size: int) -> bytes:
        """Return the next `size` bytes, of which there are few; raises as `pieces` does."""
        return b"".join([piece async for piece in self.pieces(size)])


class ImageStream:
    """The images of one body; each gets a permit from `permits` before the next is read."""

    def __init__(
        self,
        request: Request,
        permits: StreamPermits,
        window: StreamWindow,
        settings: Settings,
    ) -> None:
        self._reader = BodyReader(request.stream())
        self._delimited = media_type(content_type(request.scope)) == LENGTH_DELIMITED
        self._permits = permits
        self._window = window
        self._settings = settings
        self._longest = min(-(-settings.max_image_bytes // 3) * 4 + LINE_REST, MOST_BYTES)
        self._permit: Permit | None = None
        self._ends = False

    async def begin(self) -> None:
        """Wait for the first bytes: before them no answer may be sent (RFC 9110, section 10.1.1).

        Raises SlowBody.
        """
        await self._reader.ended()

    async def items(self) -> AsyncGenerator[Admitted, None]:
        """Yield the images in their order.

        A slow client, a line or a body that is cut off, and a server that stops end the stream with
        the error of a further item. Raises Cancelled if the client leaves.
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
        except ClientDisconnect:
            raise Cancelled("the client left") from None
        finally:
            self._dropped()

    async def _found(self) -> AsyncGenerator[Found, None]:
        if self._delimited:
            async for content in self._files():
                yield content, None, None
        else:
            async with aclosing(self._lines()) as lines:
                async for line in lines:
                    yield await json_line(line, self._settings)

    async def _files(self) -> AsyncGenerator[Blob | ServiceError, None]:
        """Yield images, or TooLarge for a larger one, which is skipped.

        Raises MalformedRequest if the body ends inside an image.
        """
        most = self._settings.max_image_bytes
        while not await self._reader.ended():
            self._window.inside_item = True
            size = int.from_bytes(await self._reader.exactly(LENGTH_BYTES), "big")
            if size > most:
                async for _ in self._reader.pieces(size):
                    pass
                image: Blob | ServiceError = too_large(size, most)
            else:
                with ImageSpool(size) as spool:
                    async for piece in self._reader.pieces(size):
                        await self._arrives(len(piece))
                        await spool.write(piece)
                    image = spool.outcome()
            self._window.inside_item = False
            yield image

    async def _lines(self) -> AsyncGenerator[Blob, None]:
        """Yield the lines of a body that are not blank.

        Raises TooLarge for a line that is too long, without waiting for its end, and Overloaded.
        """
        spool = self._line()
        try:
            while chunk := await self._reader.some():
                *complete, rest = chunk.split(b"\n")
                for line in complete:
                    self._window.inside_item = False
                    if spool.size or line.strip():
                        await spool.write(line)
                        yield spool.finish()
                        spool = self._line()
                if spool.size or rest.strip():
                    await spool.write(rest)
                    self._window.inside_item = True
                    await self._arrives(len(rest))
            if spool.size:
                yield spool.finish()
        finally:
            spool.close()

    def _line(self) -> Spool:
        refusal = TooLarge(
            f"a line has more than {self._longest} bytes; send larger images as "
            "application/x-length-delimited; the stream ends here"
        )
        return Spool(self._longest, refusal)

    async def _arrives(self, n_bytes: int) -> None:
        """Charge for bytes of an item that is not complete; its permit is taken before it is."""
        if self._permit is None:
            self._permit = await self._permits.enter()
        await self._permits.arrives(self._permit, n_bytes)

    async def _admitted(self, index: int, found: Found) -> Admitted:
        """Return an item with the permit of its work, or as the error that refuses it."""
        content, source, id_ = found
        try:
            if self._permit is None:
                self._permit = await self._permits.enter()
            size = content.size if isinstance(content, Blob) else 0
            await self._permits.complete(self._permit, size)
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
