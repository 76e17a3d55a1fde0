"""Cut a tensor into its images as it arrives, each into a spool of its own.

So large ones go to disk, and no body is ever held whole.
"""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
import numpy as np

from app.intake.inference.layout import PREFIX, Layout
from app.intake.json_items import from_base64, from_data_uri
from app.intake.spool import Blob, Spool, keep
from models.domain.errors import MalformedRequest, ServiceError, TooLarge
from models.settings import Settings


class BodyReader:
    """Gives the bytes of a body in its order, in pieces of known sizes."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self._place = 0

    async def pieces(self, n: int) -> AsyncGenerator[bytes, None]:
        """Yield the next `n` bytes; raises MalformedRequest if the body ends before."""
        left = n
        while left:
            if not self._rest:
                self._rest = await self._next(left)
            piece, self._rest = self._rest[:left], self._rest[left:]
            self._place += len(piece)
            left -= len(piece)
            yield piece

    async def take(self, n: int) -> bytes:
        """Return the next `n` bytes, of which there are few."""
        return b"".join([piece async for piece in self.pieces(n)])

    async def end(self) -> None:
        """Read the end of the body; raises MalformedRequest if there are more bytes."""
        error = MalformedRequest(
            f"the body goes on after its tensors, which end at byte {self._place}"
        )
        if self._rest:
            raise error
        async for chunk in self._chunks:
            if chunk:
                raise error

    async def _next(self, left: int) -> bytes:
        async for chunk in self._chunks:
            if chunk:
                return chunk
        raise MalformedRequest(
            f"the body ends after {self._place} bytes, {left} before the end of its tensors"
        )


Content = Blob | ServiceError

PIECE = 1 << 16
"""Characters of numbers that are parsed at a time, in about a millisecond."""

_SPACES = bytes.maketrans(b"[]", b"  ")
_LEVELS = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=255)]])
_FLOATS = msgspec.json.Decoder(list[float])


async def of_one_size(pieces: AsyncIterator[bytes], layout: Layout) -> list[Content]:
    """Return the images of a tensor whose bytes come in pieces.

    Raises MalformedRequest if there are more or fewer bytes than its shape has.
    """
    size, found, rest = layout.n_bytes, list[Content](), b""
    for _ in range(layout.n):
        async with Spool(size) as spool:
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


def base64_files(data: bytes, n: int, settings: Settings) -> list[Content]:
    """Return the files that the strings of a JSON array hold as base64, or as data URIs.

    One that is no base64, or over the limit of a file, is an error of its own.
    """
    strings = _flat(msgspec.json.decode(data))
    if len(strings) != n:
        raise MalformedRequest(f"`data` has {len(strings)} strings; the shape has {n}")
    return [_file(each, settings) for each in strings]


def _flat(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise MalformedRequest("`data` is no array of strings")
    return [string for each in value for string in _flat(each)]


def _file(text: str, settings: Settings) -> Content:
    try:
        if text.lstrip()[:5].lower() == "data:":
            return keep(from_data_uri(text), settings)
        return keep(from_base64(text.encode(errors="replace"), "the element"), settings)
    except (MalformedRequest, TooLarge) as error:
        return error.with_traceback(None)


def numbers(data: bytes, shape: Sequence[int], layout: Layout, settings: Settings) -> list[Content]:
    """Return the images of a JSON array of numbers: uint8, or float32 if preprocessed.

    The numbers stand in one list, or in lists as the shape has them. A parser makes an object of
    every number, 32 bytes for two characters, so PIECE characters are parsed at a time. Raises
    MalformedRequest.
    """
    lists = [math.prod(shape[:depth]) for depth in range(len(shape))]
    if data.count(b"[") not in (1, sum(lists)):
        raise MalformedRequest("the lists in `data` do not have the given shape")
    text, found, start = data.translate(_SPACES), bytearray(), 0
    while start < len(text):
        end = text.find(b",", start + PIECE)
        end = len(text) if end < 0 else end
        found += _parsed(text[start:end], whole=not layout.preprocessed)
        start = end + 1
    size = layout.n_bytes
    if len(found) != layout.n * size:
        raise _other_size(layout, len(found))
    starts = range(0, len(found), size)
    return [keep(bytes(found[start : start + size]), settings, size) for start in starts]


def _parsed(piece: bytes, *, whole: bool) -> bytes:
    text = b"[" + piece + b"]"
    try:
        if whole:
            return bytes(_LEVELS.decode(text))
        with np.errstate(over="ignore"):  # infinite values are found where images are checked
            return np.asarray(_FLOATS.decode(text), np.float32).astype("<f4").tobytes()
    except msgspec.DecodeError as error:
        kind = "whole numbers from 0 to 255" if whole else "numbers"
        reason = str(error).partition(" - at ")[0]
        if not isinstance(error, msgspec.ValidationError):
            reason = "it is not valid JSON"
        raise MalformedRequest(f"`data` has to be {kind}: {reason}") from None


async def _spooled(pieces: AsyncIterator[bytes], length: int, settings: Settings) -> Content:
    """Return a file, or its error if it is over the limit of a file.

    `length` is the number of its bytes, or 0 if that is unknown.
    """
    async with Spool(settings.max_image_bytes) as spool:
        refusal: TooLarge | None = None
        try:
            spool.expect(length)
        except TooLarge as error:
            refusal = error
        async for piece in pieces:
            if refusal is None:
                await spool.write(piece)
        return await spool.finish() if refusal is None else refusal.with_traceback(None)
