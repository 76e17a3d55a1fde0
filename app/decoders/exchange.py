"""The exchange with a decoder process about one file: header first, then pixels if wanted."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from app.decoders.conversion import decoded_from, info_from
from app.decoders.frames import Broken, Drop, Encoded, Failed, Frame, Go, Info, Pixels
from app.decoders.memory import contents, memory_file
from app.decoders.processes import Decoder
from models.codec import Decoded, ImageInfo

INLINE = 1 << 20
"""Bytes that are copied or mapped on the event loop, in about 0.1 ms; more go through a thread."""

File = bytes | memoryview | int
"""A file's bytes, or a descriptor of it that stays the caller's."""

T = TypeVar("T", bound=Frame)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the header says, and the CPU seconds that decoding is estimated to take."""

    info: ImageInfo
    cost: float


@asynccontextmanager
async def handed_over(file: File, *more: bytes) -> AsyncIterator[int]:
    """A descriptor from which a process can read the file."""
    if isinstance(file, int):
        yield file
        return
    if len(file) <= INLINE:
        memory = memory_file(file, *more)
    else:
        memory = await asyncio.to_thread(memory_file, file, *more)
    try:
        yield memory
    finally:
        os.close(memory)


async def exchanged(
    decoder: Decoder, accept: Callable[[Seen], bool], max_pixels: int
) -> Decoded | Seen | Failed:
    """The pixels, or the header of an image that `accept` refuses, or the image's own error.

    Raises Broken where the process ends or says what no decoder says.
    """
    info, _ = _expected(await decoder.receive(), Info)
    if isinstance(info, Failed):
        return info
    seen = Seen(info_from(info), info.cost)
    if not accept(seen):
        decoder.send(Drop())
        return seen
    decoder.send(Go())
    pixels, memory = _expected(await decoder.receive(), Pixels)
    if isinstance(pixels, Failed):
        return pixels
    if memory is None:
        raise Broken("pixels came without their memory")
    return await decoded_from(pixels, memory, max_pixels, INLINE)


async def encoded(decoder: Decoder) -> bytes | Failed:
    """The file that was asked for, or the image's own error; raises Broken."""
    made, memory = _expected(await decoder.receive(), Encoded)
    if isinstance(made, Failed):
        return made
    if memory is None:
        raise Broken("a file came without its memory")
    try:
        return await asyncio.to_thread(contents, memory, made.size)
    finally:
        os.close(memory)


def _expected(answer: tuple[Frame, int | None], kind: type[T]) -> tuple[T | Failed, int | None]:
    frame, descriptor = answer
    if isinstance(frame, kind | Failed):
        return frame, descriptor
    if descriptor is not None:
        os.close(descriptor)
    raise Broken(f"a frame of another kind than {kind.__name__}")
