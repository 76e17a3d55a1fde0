"""The messages between the service, its fork server and the decoder processes.

Each is one packet of MessagePack on a Unix socket of kind SOCK_SEQPACKET. Bytes travel in the
shared area of the decoder (`memory.py`). Replies are parsed by type, never unpickled: a decoder
process that a hostile file has taken over can give wrong pixels for its own image and for the
images that it decodes afterwards, until it is replaced, and nothing else.
"""

from enum import Enum

import msgspec

from models.codec import Animation, Description, Encoding, ImageFormat, ImageInfo

MAX_PACKET = 1 << 16
"""Bytes of a packet; copyright notices and error texts are bounded far below."""

ALPHA = 4
"""Channels of pixels with alpha."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The first frame of a new decoder; `problem` names the part of the sandbox that the kernel
    lacks. The fork server sends it with the `pid` 0 where the kernel refused a new decoder.
    """

    pid: int
    problem: str = ""


class Exited(msgspec.Struct, frozen=True, tag=True):
    """The fork server's report that the decoder has ended, with its exit status as waitpid(2) gives
    it.
    """

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


class Wanted(Enum):
    """Parts of a file that are wanted; a colour and the appearance need the pixels decoded."""

    PIXELS = "pixels"
    FRAMES = "frames"
    """The pixels of all frames, one below the other."""
    DESCRIPTION = "description"
    COLOUR = "colour"
    """A description with the dominant colour."""
    APPEARANCE = "appearance"
    """A description with hashes and dominant colours."""


class DecodeTask(msgspec.Struct, frozen=True, tag=True):
    """Ask a decoder for the image in a file of `size` bytes.

    The answer is Pixels or Described for an image within the bounds, and Seen for any other image.
    """

    size: int
    max_pixels: int
    seconds: float
    """CPU seconds that an image of `max_pixels` may take."""
    bounds: Bounds
    wanted: Wanted = Wanted.PIXELS


class Seen(msgspec.Struct, frozen=True, tag=True):
    """The header of a file, and the estimated cost of decoding: CPU seconds, and bytes of memory
    with the pixels and the file.
    """

    info: ImageInfo
    cost: float
    memory: int = 0


class Pixels(msgspec.Struct, frozen=True, tag=True):
    """The decoded image: its pixels, and behind them `exif` bytes of metadata."""

    info: ImageInfo
    shape: tuple[int, int, int]
    copyright: str | None
    exif: int | None
    animation: Animation | None = None


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
    animation: Animation | None = None


class Encoded(msgspec.Struct, frozen=True, tag=True):
    """The encoded file has `size` bytes, and the quality that `max_bytes` has led to."""

    size: int
    quality: int | None = None


class ImageFailed(msgspec.Struct, frozen=True, tag=True):
    """The image's own error: the code of a class in `models.domain.errors`, and its text."""

    code: str
    detail: str
    last: bool = False
    """True if the process ends with this image, because its memory is used up."""


Frame = Ready | Exited | DecodeTask | Seen | Pixels | Described | Encode | Encoded | ImageFailed

encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Frame)


class Broken(OSError):
    """The other end closed the connection, or sent bytes that are no frame."""


def decode(packet: bytes) -> Frame:
    """Return the frame of a packet; raises Broken."""
    try:
        frame: Frame = _decoder.decode(packet)
    except msgspec.DecodeError as error:
        raise Broken("this is no frame") from error
    return frame
