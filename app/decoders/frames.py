"""The messages between the service, its fork server and the decoder processes.

Each is one packet of MessagePack on a Unix socket of kind SOCK_SEQPACKET, with at most one
descriptor beside it. Replies are parsed by type, never unpickled: a decoder process that a hostile
file has taken over can give wrong pixels for its own image, and nothing else.
"""

import os
import socket
from collections.abc import Sequence

import msgspec

from models.codec import Encoding, ImageFormat

MAX_PACKET = 1 << 16
"""Bytes of a packet; copyright notices and error texts are bounded far below."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A process can take work; `problem` says which part of the sandbox the kernel lacks."""

    problem: str = ""


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Ask the fork server for one more decoder; its end of the connection comes beside."""


class Forked(msgspec.Struct, frozen=True, tag=True):
    """Answer to Fork: the new process, whose pidfd comes beside."""

    pid: int


class NotForked(msgspec.Struct, frozen=True, tag=True):
    """Answer to Fork: the kernel refused."""

    reason: str


class Exited(msgspec.Struct, frozen=True, tag=True):
    """A decoder has ended, with this exit status as waitpid(2) gives it."""

    pid: int
    status: int


class Task(msgspec.Struct, frozen=True, tag=True):
    """Ask a decoder to read the header of a file of `size` bytes, whose descriptor comes beside."""

    size: int
    max_pixels: int
    seconds: float
    """CPU time that an image of `max_pixels` may take."""


class Go(msgspec.Struct, frozen=True, tag=True):
    """Ask for the pixels of the file whose header came last."""


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Let go of the file whose header came last."""


class Info(msgspec.Struct, frozen=True, tag=True):
    """`models.codec.ImageInfo`, field by field, and the estimated CPU seconds of decoding."""

    format: str
    width: int
    height: int
    orientation: int
    frames: int
    mode: str
    fast_jpeg: bool
    cost: float


class Pixels(msgspec.Struct, frozen=True, tag=True):
    """The decoded image; its memory file, beside, holds the pixels and then `exif` bytes."""

    info: Info
    shape: tuple[int, int, int]
    copyright: str | None
    exif: int | None


class Encode(msgspec.Struct, frozen=True, tag=True):
    """Ask for a file; the memory file beside holds the pixels, and then `exif` bytes."""

    shape: tuple[int, int, int]
    format: ImageFormat
    encoding: Encoding
    copyright: str | None
    exif: int | None
    seconds: float
    """CPU time it may take."""


class Encoded(msgspec.Struct, frozen=True, tag=True):
    """The encoded file: `size` bytes in the memory file beside."""

    size: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The image's own error: the code of a class in `models.domain.errors`, and its text."""

    code: str
    detail: str
    last: bool = False
    """The process ends with this image: its memory is used up."""


Frame = (
    Ready
    | Fork
    | Forked
    | NotForked
    | Exited
    | Task
    | Go
    | Drop
    | Info
    | Pixels
    | Encode
    | Encoded
    | Failed
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


class Broken(Exception):
    """The other end closed the connection, or what it sent is no frame."""


def send(connection: socket.socket, frame: Frame, descriptors: Sequence[int] = ()) -> None:
    """Send one frame; raises Broken where the other end is closed."""
    try:
        socket.send_fds(connection, [_encoder.encode(frame)], list(descriptors))
    except (BrokenPipeError, ConnectionError) as error:
        raise Broken("the connection is closed") from error


def receive(connection: socket.socket) -> tuple[Frame, int | None]:
    """The next frame, and the descriptor that came beside it, which the caller closes.

    Raises Broken, and BlockingIOError where the socket does not block and nothing is there.
    """
    try:
        data, descriptors, _, _ = socket.recv_fds(
            connection, MAX_PACKET, 1, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError as error:
        raise Broken("the connection is closed") from error
    descriptor = descriptors[0] if descriptors else None
    try:
        if not data:
            raise Broken("the connection is closed")
        return _decoder.decode(data), descriptor
    except (msgspec.DecodeError, Broken) as error:
        if descriptor is not None:
            os.close(descriptor)
        raise error if isinstance(error, Broken) else Broken("this is no frame") from error
