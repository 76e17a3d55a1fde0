"""Exchange one file with a decoder process: hand it over, and take the pixels back.

No answer of a process is trusted: each is checked before it becomes a type of `models`.
"""

import asyncio
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.decoders.frames import (
    Broken,
    Described,
    Drop,
    Encode,
    Encoded,
    Failed,
    Frame,
    Go,
    Info,
    Pixels,
    Task,
)
from app.decoders.memory import AREA_SIZE, contents_of_answer, mapped, memory_file, moved_to_file
from app.decoders.process import DecoderProcess
from models.codec import Decoded, Description, ImageFormat, ImageInfo, decode_memory
from models.domain.errors import (
    InvalidParameter,
    ServiceError,
    TooManyPixels,
    Undecodable,
    Unprocessable,
    UnsupportedMedia,
)
from models.domain.image import Image

INLINE = 1 << 20
"""Bytes that are copied on the event loop, in about 0.1 ms; more are copied on a thread."""

File = bytes | memoryview | int
"""A file's bytes, or a descriptor of it that stays the caller's."""

T = TypeVar("T", bound=Frame)
Data = TypeVar("Data", bytes, NDArray[np.uint8])


_ERRORS: dict[str, type[ServiceError]] = {
    each.code: each
    for each in (Undecodable, TooManyPixels, UnsupportedMedia, Unprocessable, InvalidParameter)
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A file's header, and what decoding is estimated to take.

    `cost` is CPU seconds, `memory` is bytes, with the pixels and the file.
    """

    info: ImageInfo
    cost: float
    memory: int = 0


class Unasked(NamedTuple):
    """The most pixels of images that a process decodes before it asks, by whether they may have
    alpha.
    """

    opaque: int
    with_alpha: int


NEVER = Unasked(0, 0)


async def filled_memory_file(*parts: bytes | memoryview) -> int:
    """Return a descriptor of a new memory file, which a thread fills with `parts`."""
    return await _filled(partial(memory_file, *parts))


async def moved_memory_file(pixels: NDArray[np.uint8], behind: bytes) -> int:
    """Return the same of `pixels`, which lose their memory, and of the bytes `behind` them."""
    return await _filled(partial(moved_to_file, pixels, behind))


async def _filled(fill: Callable[[], int]) -> int:
    """Return the descriptor that a thread makes.

    Cancelling cannot stop the thread. The shield keeps its future, by which the descriptor is
    closed when the thread has ended.
    """
    filling = asyncio.get_running_loop().run_in_executor(None, fill)
    try:
        return await asyncio.shield(filling)
    except asyncio.CancelledError:
        filling.add_done_callback(_close_result)
        raise


def _close_result(filled: "asyncio.Future[int]") -> None:
    if not filled.cancelled() and filled.exception() is None:
        os.close(filled.result())


async def hand_over(
    decoder: DecoderProcess, task: Task | Encode, file: File, more: bytes = b""
) -> None:
    """Send a task with its file and the bytes `more` behind it.

    They go through the shared area where they fit, or as a descriptor. Raises Broken where the
    process has ended.
    """
    if isinstance(file, int):
        decoder.send(task, file)
        return
    size = len(file) + len(more)
    if size > AREA_SIZE:
        memory = await filled_memory_file(file, more)
        try:
            decoder.send(task, memory)
        finally:
            os.close(memory)
        return
    if size > INLINE:
        await asyncio.to_thread(decoder.area.put, file, more)
    else:
        decoder.area.put(file, more)
    decoder.send(task)


async def decoded_by(
    decoder: DecoderProcess, accept: Callable[[Seen], bool], task: Task
) -> Decoded | Seen | Failed:
    """Return the pixels, or the header of an image that `accept` refuses, or the image's own error.

    The pixels are the service's alone: no decoder process can write to them any more. Raises
    Broken where the process ends or sends what no decoder sends.
    """
    reply = await _reply(decoder, accept, task)
    if isinstance(reply, Seen):
        return reply
    pixels = _expected(reply.frame, reply.memory, Pixels)
    if isinstance(pixels, Failed):
        return pixels
    try:
        seen, size = _seen(pixels.info, task.size), pixels_size(pixels, task.max_pixels)
        if reply.header is not None and not same_size(pixels.info, reply.header):
            raise Broken("pixels of another size than the header that was accepted")
    except Broken:
        if reply.memory is not None:
            os.close(reply.memory)
        raise
    memory = reply.memory
    take = decoder.area.take if memory is None else partial(_closing, mapped, memory)
    data = await _taken(take, size)
    wanted = reply.header is not None or accept(seen)
    return decoded_from(pixels, seen.info, data) if wanted else seen


async def described_by(
    decoder: DecoderProcess, accept: Callable[[Seen], bool], task: Task
) -> Description | Seen | Failed:
    """Return the description, or the header of an image that `accept` refuses, or its error.

    Raises Broken where the process ends or sends what no decoder sends.
    """
    reply = await _reply(decoder, accept, task)
    if isinstance(reply, Seen):
        return reply
    found = _expected(reply.frame, reply.memory, Described)
    if isinstance(found, Described):
        _refuse_file(reply.memory)
    return found if isinstance(found, Failed) else found.description


async def encoded_by(decoder: DecoderProcess) -> bytes | Failed:
    """Return the file that was asked for, or the image's own error; raises Broken."""
    answer, memory = await decoder.receive()
    made = _expected(answer, memory, Encoded)
    if isinstance(made, Failed):
        return made
    if memory is None:
        return await _taken(decoder.area.contents, made.size)
    return await _taken(partial(_closing, contents_of_answer, memory), made.size)


class _Reply(NamedTuple):
    """A decoder's answer, the file beside it, and the header that was accepted before, if any."""

    frame: Frame
    memory: int | None
    header: Info | None


async def _reply(
    decoder: DecoderProcess, accept: Callable[[Seen], bool], task: Task
) -> _Reply | Seen:
    """Return the answer to a task, or the header alone if `accept` refuses it; raises Broken."""
    answer, memory = await decoder.receive()
    if not isinstance(answer, Info):
        return _Reply(answer, memory, None)
    _refuse_file(memory)
    seen = _seen(answer, task.size)
    if not accept(seen):
        decoder.send(Drop())
        return seen
    decoder.send(Go())
    return _Reply(*await decoder.receive(), answer)


def _seen(answer: Info, size: int) -> Seen:
    """Return the header of a file of `size` bytes; raises Broken.

    The process has read the whole file, so its estimate of memory may be larger than ours. It is
    never smaller, unless a hostile file has taken the process over.
    """
    info = info_from(answer)
    return Seen(info, answer.cost, max(answer.memory, decode_memory(info, size)))


def _refuse_file(memory: int | None) -> None:
    """Close a file that came beside a frame which has none, and raise Broken for it."""
    if memory is not None:
        os.close(memory)
        raise Broken("a frame that has no file came with one")


async def _taken(take: Callable[[int], Data], size: int) -> Data:
    """Return `size` bytes of an answer, which `take` takes out of the area or of a memory file.

    The thread that maps or reads the file closes it, also when its caller was cancelled meanwhile:
    closed any earlier, the number could already mean another file when the thread maps it. The
    shield keeps the thread's turn, so that it runs in any case.
    """
    try:
        if size <= INLINE:
            return take(size)
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, take, size))
    except (ValueError, OSError) as error:
        raise Broken("an impossible size") from error


def _closing(take: Callable[[int, int], Data], descriptor: int, size: int) -> Data:
    """Take `size` bytes of a file, which is closed in any case."""
    try:
        return take(descriptor, size)
    finally:
        os.close(descriptor)


def _expected(frame: Frame, memory: int | None, kind: type[T]) -> T | Failed:
    if isinstance(frame, kind):
        return frame
    _refuse_file(memory)
    if isinstance(frame, Failed):
        return frame
    raise Broken(f"a frame of another kind than {kind.__name__}")


def info_from(frame: Info) -> ImageInfo:
    """Return the header; raises Broken for values that no header has."""
    try:
        format_ = ImageFormat(frame.format)
    except ValueError as error:
        raise Broken("an unknown format") from error
    if min(frame.width, frame.height, frame.frames) < 1 or not 1 <= frame.orientation <= 8:
        raise Broken("an impossible header")
    if not 0 <= frame.cost < math.inf:
        raise Broken("an impossible cost")
    return ImageInfo(
        format_,
        frame.width,
        frame.height,
        frame.orientation,
        frame.frames,
        frame.mode,
        frame.fast_jpeg,
        frame.transparent,
    )


def error_from(frame: Failed) -> ServiceError:
    """Return the error of the image itself."""
    return _ERRORS.get(frame.code, Undecodable)(frame.detail)


def pixels_size(frame: Pixels, max_pixels: int) -> int:
    """Return the bytes of an answer, pixels and EXIF.

    Raises Broken for those that cannot be, and for another shape than the header's, by which memory
    was reserved.
    """
    height, width, channels = frame.shape
    header, exif_size = info_from(frame.info), frame.exif or 0
    if min(frame.shape) < 1 or height * width > max_pixels or exif_size < 0:
        raise Broken("an impossible image")
    if (height, width) != (header.height, header.width) or channels > header.most_channels:
        raise Broken("an image of another shape than its header states")
    return height * width * channels + exif_size


def same_size(frame: Info, accepted: Info) -> bool:
    """Return whether an image has the pixels, and no more channels, of the header accepted before.

    The sides may be swapped: a PNG may have its orientation after its pixels.
    """
    sides = sorted((frame.width, frame.height)), sorted((accepted.width, accepted.height))
    channels = info_from(frame).most_channels, info_from(accepted).most_channels
    return sides[0] == sides[1] and channels[0] <= channels[1]


def decoded_from(frame: Pixels, info: ImageInfo, data: NDArray[np.uint8]) -> Decoded:
    """Return the image whose pixels, and then EXIF, are `data`; raises Broken."""
    height, width, channels = frame.shape
    size = height * width * channels
    try:
        image = Image(data[:size].reshape(frame.shape))
    except ValueError as error:
        raise Broken("an impossible image") from error
    exif = None if frame.exif is None else data[size:].tobytes()
    return Decoded(image, info, frame.copyright, exif)
