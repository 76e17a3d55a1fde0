"""The messages between the service, its fork server and the decoder processes.

Each is one packet of MessagePack on a Unix socket of kind SOCK_SEQPACKET, with at most one
descriptor beside it. Bytes travel in the shared area of the decoder (`memory.py`), or, where they
are too large for it, in a file whose descriptor comes beside the frame. Replies are parsed by type,
never unpickled: a decoder process that a hostile file has taken over can give wrong pixels for its
own image and for those that it decodes afterwards, until it is replaced, and nothing else.
"""

import os
import socket
import sys

import msgspec

from models.codec import Description, Encoding, ImageFormat, ImageInfo

MAX_PACKET = 1 << 16
"""Bytes of a packet; copyright notices and error texts are bounded far below."""

ALPHA = 4
"""Channels of pixels with alpha."""


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


class Bounds(msgspec.Struct, frozen=True):
    """What an image may take that is decoded at once: pixels, bytes of memory, CPU seconds.

    An image that may have alpha has a bound of pixels of its own, because its work takes more.
    """

    opaque: int
    with_alpha: int
    memory: int
    cost: float

    def allow(self, info: ImageInfo, memory: int = 0, cost: float = 0.0) -> bool:
        """Return whether an image with this header, and these estimates, is within the bounds."""
        pixels = self.with_alpha if info.most_channels == ALPHA else self.opaque
        return info.n_pixels <= pixels and memory <= self.memory and cost <= self.cost


class DecodeTask(msgspec.Struct, frozen=True, tag=True):
    """Ask a decoder for the image in a file of `size` bytes.

    The answer is Pixels for an image within the bounds, and Info for any other image.
    """

    size: int
    max_pixels: int
    seconds: float
    """CPU seconds that an image of `max_pixels` may take."""
    bounds: Bounds
    describe: bool = False
    """True if the answer is Described in place of Pixels."""
    colour: bool = False
    """True if a description contains the dominant colour, for which pixels are decoded."""


class Info(msgspec.Struct, frozen=True, tag=True):
    """The header of a file, and the estimated cost of decoding: CPU seconds, and bytes of memory
    with the pixels and the file.
    """

    info: ImageInfo
    cost: float
    memory: int


class Pixels(msgspec.Struct, frozen=True, tag=True):
    """The decoded image: its pixels, and behind them `exif` bytes of metadata."""

    info: ImageInfo
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


class ImageFailed(msgspec.Struct, frozen=True, tag=True):
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
    | DecodeTask
    | Info
    | Pixels
    | Described
    | Encode
    | Encoded
    | ImageFailed
)

_ONE_DESCRIPTOR = socket.CMSG_LEN(4)  # the kernel closes any more

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


class Broken(Exception):
    """The other end closed the connection, or sent bytes that are no frame."""


class Closed(Broken):
    """The other end closed the connection, as the end of its process does."""


class Descriptor:
    """A file descriptor, which is closed with the last reference to it.

    A thread that reads the file keeps the descriptor open, also when its caller was cancelled.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


def send(connection: socket.socket, frame: Frame, *descriptors: int) -> None:
    """Send one frame; raises Closed where the other end is closed."""
    try:
        if descriptors:
            socket.send_fds(connection, [_encoder.encode(frame)], list(descriptors))
        else:  # sendmsg(2), because the sandbox refuses sendto(2), which `send` calls
            connection.sendmsg([_encoder.encode(frame)])
    except (BrokenPipeError, ConnectionError) as error:
        raise Closed("the connection is closed") from error


def receive(connection: socket.socket) -> tuple[Frame, Descriptor | None]:
    """Return the next frame and the descriptor that came with it.

    Raises Broken, and BlockingIOError if the socket does not block and there is no frame.
    """
    try:
        data, beside, _, _ = connection.recvmsg(
            MAX_PACKET, _ONE_DESCRIPTOR, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError as error:
        raise Closed("the connection is closed") from error
    # No credentials were asked for, so only descriptors can come beside a packet (unix(7)).
    descriptor = Descriptor(int.from_bytes(beside[0][2][:4], sys.byteorder)) if beside else None
    if not data:
        raise Closed("the connection is closed")
    try:
        return _decoder.decode(data), descriptor
    except msgspec.DecodeError as error:
        raise Broken("this is no frame") from error
