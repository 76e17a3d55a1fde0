"""Cut a tensor into its images as it arrives, each into a spool of its own.

So large ones go to disk, and no body is ever held whole.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing

from app.intake.inference.body_reader import BodyReader
from app.intake.inference.layout import PREFIX, Layout
from app.intake.spool import Blob, Spool
from app.parsing.arriving import Text
from app.parsing.data_uri import DataUri
from app.parsing.json_arrays import JsonArray
from models.domain.errors import MalformedRequest, ServiceError, TooLarge
from models.settings import Settings

Content = Blob | ServiceError

BEFORE = 64
"""Bytes in which a data URI begins; blanks may stand before the URI."""


async def of_one_size(
    pieces: AsyncIterator[bytes], layout: Layout, settings: Settings
) -> list[Content]:
    """Return the images of a tensor whose bytes come in pieces.

    Raises MalformedRequest if there are more or fewer bytes than its shape has.
    """
    size, found, rest = layout.n_bytes, list[Content](), b""
    for _ in range(layout.n):
        async with Spool(size, settings.spool_bytes) as spool:
            left = size
            while left:
                piece = rest or await anext(pieces, b"")
                if not piece:
                    raise _other_size(layout, len(found) * size + size - left)
                await spool.write(piece[:left])
                rest, left = piece[left:], max(0, left - len(piece))
            found.append(await spool.finish())
    if rest or await anext(pieces, b""):
        raise _other_size(layout, layout.n * size + 1)
    return found


def _other_size(layout: Layout, n_bytes: int) -> MalformedRequest:
    more = "more" if n_bytes > layout.n * layout.n_bytes else "fewer"
    return MalformedRequest(
        f"the tensor has {more} values than its shape, which are {layout.n * layout.n_bytes} bytes"
    )


async def files(reader: BodyReader, size: int, n: int, settings: Settings) -> list[Content]:
    """Return the elements of a BYTES tensor of `size` bytes, each a file after its length.

    A file over its limit is an error of its own. Raises MalformedRequest for a length that reaches
    beyond the tensor.
    """
    found, left = list[Content](), size
    for index in range(n):
        left -= PREFIX
        length = int.from_bytes(await reader.take(PREFIX), "little") if left >= 0 else 0
        left -= length
        if left < 0:
            raise MalformedRequest(
                f"element {index} reaches {-left} bytes beyond the {size} of binary_data_size"
            )
        async with aclosing(reader.pieces(length)) as pieces:
            found.append(await _spooled(pieces, length, settings))
    if left:
        raise MalformedRequest(f"{left} of the {size} bytes of binary_data_size are no element")
    return found


async def base64_files(body: Text, array: JsonArray, settings: Settings) -> list[Content]:
    """Return the files that the strings of a JSON array hold as base64, or as data URIs.

    One that is no base64, or over the limit of a file, is an error of its own.
    """
    found = list[Content]()
    for start, end in array.strings:
        bare = not bytes(body[start : start + BEFORE]).lstrip().lower().startswith(b"data:")
        uri = DataUri(body, start, end, bare)
        try:
            found.append(await _spooled(threaded(uri.pieces()), 0, settings))
        except (MalformedRequest, TooLarge) as error:  # its size is not known before it is decoded
            found.append(error.with_traceback(None))
    return found


async def _spooled(pieces: AsyncIterator[bytes], length: int, settings: Settings) -> Content:
    """Return a file, or its error if it is over the limit of a file.

    `length` is the number of its bytes, or 0 if that is unknown.
    """
    async with Spool(settings.max_image_bytes, settings.spool_bytes) as spool:
        refusal: TooLarge | None = None
        try:
            spool.expect(length)
        except TooLarge as error:
            refusal = error
        async for piece in pieces:
            if refusal is None:
                await spool.write(piece)
        return await spool.finish() if refusal is None else refusal.with_traceback(None)


async def threaded(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield pieces that are made on a thread, one at a time."""
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece
