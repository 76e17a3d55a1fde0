"""The messages between the service, its fork server and the decoder processes.

Each is one packet of MessagePack on a Unix socket of kind SOCK_SEQPACKET, with at most one
descriptor beside it. Bytes travel in the shared area of the decoder (`area.py`), or, where they are
too large for it, in a file whose descriptor comes beside the frame. Replies are parsed by type,
never unpickled: a decoder process that a hostile file has taken over can give wrong pixels for its
own image and for those that it decodes afterwards, until it is replaced, and nothing else.
"""

import os
import socket
import sys
from collections.abc import Sequence

import msgspec

from models.codec import Description, Encoding, ImageFormat

MAX_PACKET = 1 << 16
"""Bytes of a packet; copyright notices and error texts are bounded far below."""


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The first frame to a new decoder, together with the descriptor of its shared area."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A process is ready for work; `problem` names the part of the sandbox that the kernel
    lacks.
    """

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
    """Ask a decoder for the image in a file of `size` bytes.

    The answer is Pixels at once for an image that is within the `unasked` bounds, and Info for a
    larger one, which the decoder then decodes after Go only.
    """

    size: int
    max_pixels: int
    seconds: float
    """CPU seconds that an image of `max_pixels` may take."""
    unasked_pixels: int = 0
    """Most pixels, of an image without alpha, that are sent without asking."""
    unasked_with_alpha: int = 0
    """The same for an image that may have alpha, whose work takes more memory."""
    unasked_cost: float = 0.0
    """Estimated CPU seconds of decoding up to which pixels are sent without asking."""
    describe: bool = False
    """True if the answer is Described in place of Pixels."""
    colour: bool = False
    """True if a description contains the dominant colour, for which pixels are decoded."""


class Go(msgspec.Struct, frozen=True, tag=True):
    """Ask for the pixels of the file whose Info came last."""


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Forget the file whose Info came last: it is not decoded now."""


class Info(msgspec.Struct, frozen=True, tag=True):
    """`models.codec.ImageInfo`, field by field, and the estimated cost of decoding: CPU seconds,
    and bytes of memory with the pixels and the file.
    """

    format: str
    width: int
    height: int
    orientation: int
    frames: int
    mode: str
    fast_jpeg: bool
    transparent: bool
    cost: float
    memory: int


class Pixels(msgspec.Struct, frozen=True, tag=True):
    """The decoded image: its pixels, and behind them `exif` bytes of metadata."""

    info: Info
    shape: tuple[int, int, int]
    copyright: str | None
    exif: int | None


class Described(msgspec.Struct, frozen=True, tag=True):
    """The description of the file."""

    description: Description


class Encode(msgspec.Struct, frozen=True, tag=True):
    """Ask for a file of the pixels handed over, behind which `exif` bytes of metadata stand."""

    shape: tuple[int, int, int]
    format: ImageFormat
    encoding: Encoding
    copyright: str | None
    exif: int | None
    seconds: float
    """CPU seconds that encoding may take."""


class Encoded(msgspec.Struct, frozen=True, tag=True):
    """The encoded file has `size` bytes."""

    size: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The image's own error: the code of a class in `models.domain.errors`, and its text."""

    code: str
    detail: str
    last: bool = False
    """True if the process ends with this image, because its memory is used up."""


Frame = (
    Begin
    | Ready
    | Fork
    | Forked
    | NotForked
    | Exited
    | Task
    | Go
    | Drop
    | Info
    | Pixels
    | Described
    | Encode
    | Encoded
    | Failed
)

_ONE_DESCRIPTOR = socket.CMSG_LEN(4)  # the kernel closes any more

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


class Broken(Exception):
    """The other end closed the connection, or sent bytes that are no frame."""


class Closed(Broken):
    """The other end closed the connection, as the end of its process does."""


def send(connection: socket.socket, frame: Frame, descriptors: Sequence[int] = ()) -> None:
    """Send one frame; raises Closed where the other end is closed."""
    try:
        if descriptors:
            socket.send_fds(connection, [_encoder.encode(frame)], list(descriptors))
        else:  # sendmsg(2), because the sandbox refuses sendto(2), which `send` calls
            connection.sendmsg([_encoder.encode(frame)])
    except (BrokenPipeError, ConnectionError) as error:
        raise Closed("the connection is closed") from error


def receive(connection: socket.socket) -> tuple[Frame, int | None]:
    """Return the next frame and the descriptor that came with it, which the caller closes.

    Raises Broken, and BlockingIOError if the socket does not block and there is no frame.
    """
    try:
        data, beside, _, _ = connection.recvmsg(
            MAX_PACKET, _ONE_DESCRIPTOR, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError as error:
        raise Closed("the connection is closed") from error
    # No credentials were asked for, so only descriptors can come beside a packet (unix(7)).
    descriptor = int.from_bytes(beside[0][2][:4], sys.byteorder) if beside else None
    try:
        if not data:
            raise Closed("the connection is closed")
        return _decoder.decode(data), descriptor
    except (msgspec.DecodeError, Broken) as error:
        if descriptor is not None:
            os.close(descriptor)
        raise error if isinstance(error, Broken) else Broken("this is no frame") from error
