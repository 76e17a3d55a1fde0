"""The messages between front ends and workers, in MessagePack, and their way over a Unix socket.

Pixels never travel here, they are in the arena; nothing is pickled. A message on a socket is its
length in bytes, uint32 little-endian, and the MessagePack of a list of frames.
"""

import asyncio
import logging
import math
import os
import socket
import struct
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
import numpy as np

from models.domain import errors
from models.domain.backend import Load
from models.domain.errors import InternalError, ServiceError
from models.domain.image import Image, Jpeg, NetworkInput, Pixels, Source, Subsampling
from models.domain.job import Job, Labels, Lane, Operation, ReleaseReason, Trace
from models.exit_codes import ExitCode
from models.networks.served import ServedNetwork
from workers.filters.registry import parse_chain
from workers.ipc.arena import ArenaSlot
from workers.operations import (
    Classify,
    DeviceJpeg,
    FilterChain,
    FunctionToApply,
    NetworkOutput,
)

log = logging.getLogger("darkroom.wire")

Shape = tuple[int, int, int]


class JpegHeader(NamedTuple):
    """The header of a JPEG in a slot: size in pixels, orientation, subsampling, and shaper."""

    height: int
    width: int
    orientation: int
    subsampling: Subsampling
    shaper: bytes | None = None


EncodedError = tuple[str, str]
"""An error's code and text; front ends have checked every field before."""


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base class of all frames."""


class Submit(Frame, frozen=True):
    """A front end hands over a job and its slot. `deadline` is on the host's monotonic clock.

    The content of the slot has this `shape`; with `jpeg` it is a file, (bytes, 1, 1). `operation`
    is the text of `encode_operation`.
    """

    number: int
    slot: ArenaSlot
    shape: Shape
    operation: bytes
    deadline: float
    lane: Lane
    jpeg: JpegHeader | None = None
    alone: bool = False
    """True if it must be computed with no other job on the device: a worker died with it."""
    counted: bool = True


class Cancel(Frame, frozen=True):
    """The front end does not wait for this job any more."""

    number: int


class Welcome(Frame, frozen=True):
    """The first frame of a worker: its device, and the networks that it serves, default first.

    `degraded` says why the device is not the device that was asked for.
    """

    device: str
    networks: tuple[ServedNetwork, ...] = ()
    degraded: str | None = None


class Done(Frame, frozen=True):
    """A worker hands a job's slot back, with the outcome; of a cancelled job, nothing else.

    The slot holds pixels of this `shape`; with `jpeg` a file, (bytes, 1, 1). `vector` holds the
    float32 values of logits or of an embedding, in the byte order of the host.
    """

    number: int
    trace: Trace | None = None
    labels: Labels | None = None
    shape: Shape | None = None
    error: EncodedError | None = None
    jpeg: JpegHeader | None = None
    vector: bytes | None = None


class LoadReport(Frame, frozen=True):
    """How busy a worker is."""

    load: Load


class Batched(Frame, frozen=True):
    """A finished micro-batch, reported to a single front end for its metrics; filters name no
    network.
    """

    operation: str
    size: int
    reason: ReleaseReason
    network: str = ""
    device: str = ""
    seconds: float = 0.0
    """How long the device was busy with it, without the time that batches before it had."""


class Leaving(Frame, frozen=True):
    """A worker takes no more jobs and has closed its address; it answers the jobs that it has."""


ToWorker = Submit | Cancel
FromWorker = Welcome | Done | LoadReport | Batched | Leaving

# Records of models are Pydantic's; all other values are structs and dataclasses.
ENCODER = msgspec.msgpack.Encoder(enc_hook=lambda record: record.model_dump())
TO_WORKER = msgspec.msgpack.Decoder(list[ToWorker])
FROM_WORKER = msgspec.msgpack.Decoder(
    list[FromWorker], dec_hook=lambda kind, fields: kind.model_validate(fields)
)

# Domain objects in frames.


MAX_CHANNELS = 4
"""Channels of the largest answer: a filter writes it over its image, and it may have more."""

_CHAIN = tuple[DeviceJpeg | None, list[dict[str, Any]]]
_CLASSIFY = tuple[int, FunctionToApply, str, NetworkOutput, bool]


def encode_operation(operation: Operation) -> bytes:
    """Return an operation as MessagePack: an array of two values for filters, else of five."""
    if isinstance(operation, FilterChain):
        return ENCODER.encode((operation.jpeg, operation.filters))
    assert isinstance(operation, Classify)
    found = operation
    return ENCODER.encode(
        (found.top_k, found.function_to_apply, found.network, found.output, found.preprocessed)
    )


@lru_cache(32)  # operations with the picture of an overlay have up to 1 MiB
def decode_operation(encoded: bytes) -> Operation:
    """Reverse `encode_operation`, once for equal bytes: a chain of two filters takes 60 µs."""
    found = msgspec.msgpack.decode(encoded)
    if len(found) == 2:
        jpeg, filters = msgspec.convert(found, _CHAIN)
        return FilterChain(parse_chain(filters), jpeg)
    return Classify(*msgspec.convert(found, _CLASSIFY))


def encode_source(source: Source) -> tuple[Pixels, JpegHeader | None]:
    """Return the content of a slot, uint8 with three dimensions, and the header of a JPEG.

    A file has the shape (bytes, 1, 1), and a network's input (3, height, 4 · width).
    """
    if isinstance(source, Image):
        return source.pixels, None
    if isinstance(source, NetworkInput):
        return source.values.view(np.uint8), None
    size = source.height, source.width
    header = JpegHeader(*size, source.orientation, source.subsampling, source.shaper)
    return source.data.reshape(-1, 1, 1), header


def bytes_for(job: Job, content: Pixels) -> int:
    """Return the bytes for the content of a job, and for a filter's answer in its place."""
    if not isinstance(job.operation, FilterChain):
        return content.nbytes
    after = job.operation.shape_after((job.image.height, job.image.width, MAX_CHANNELS))
    return max(content.nbytes, math.prod(after[:2]) * MAX_CHANNELS)


def decode_source(lying: Pixels, jpeg: JpegHeader | None) -> Image | Jpeg:
    """Reverse `encode_source` for pixels and JPEGs."""
    return Image(lying) if jpeg is None else Jpeg(lying.reshape(-1), *jpeg)


_ERRORS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ServiceError) and "__init__" not in vars(kind)
} | {ServiceError.code: InternalError}


def encode_error(error: ServiceError) -> EncodedError:
    """Return an error without its traceback."""
    return error.code, error.detail


def decode_error(encoded: EncodedError) -> ServiceError:
    """Reverse `encode_error`; an unknown code becomes an InternalError."""
    code, detail = encoded
    return _ERRORS.get(code, InternalError)(detail)


# The socket.

_LENGTH = struct.Struct("<I")

T = TypeVar("T")


class FrameProtocol(asyncio.Protocol, ABC, Generic[T]):
    """An end of a connection; the classes of both ends derive from this class.

    Unreadable bytes end this process: a front end cannot know any more which slots a worker uses,
    nor a worker which slots it may use. An error of `on_frame` is a fault of this end: the error is
    logged, and later frames are read.
    """

    def __init__(self, decoder: "msgspec.msgpack.Decoder[list[T]]") -> None:
        self._decoder = decoder
        self._buffer = bytearray()
        self._outbox: list[Frame] = []
        self._transport: asyncio.Transport | None = None

    @abstractmethod
    def on_frame(self, frame: T) -> None:
        """Handle a frame of the other end."""

    @abstractmethod
    def on_lost(self) -> None:
        """Handle the end of the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the transport from the event loop."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Handle all frames of the messages that have come in full."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            try:
                frames = self._decoder.decode(self._buffer[_LENGTH.size : end])
            except Exception:  # to close the connection would free slots that are in use
                log.critical("the other end sent what cannot be read", exc_info=True)
                os._exit(ExitCode.BROKEN)
            del self._buffer[:end]
            for frame in frames:
                try:
                    self.on_frame(frame)
                except Exception:  # the other frames are protected, and the connection
                    log.exception("a %s could not be handled", type(frame).__name__)

    def connection_lost(self, _error: Exception | None) -> None:
        """Handle the end of the connection."""
        self._transport = None  # no cycle may keep the arena mapped until it is collected
        self._outbox.clear()
        self.on_lost()

    def send(self, *frames: Frame) -> None:
        """Write frames, in a single message with all frames of this turn of the event loop.

        Each message is a system call, which wakes the other end. Nothing is written once the other
        end is gone.
        """
        if self._transport is not None and frames:
            if not self._outbox:
                asyncio.get_running_loop().call_soon(self._flush)
            self._outbox += frames

    def _flush(self) -> None:
        frames, self._outbox = self._outbox, []
        if frames and self._transport is not None:
            body = ENCODER.encode(frames)
            self._transport.write(_LENGTH.pack(len(body)) + body)

    def close(self) -> None:
        """Write pending frames, then close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; pending bytes are lost."""
        if self._transport is not None:
            self._transport.abort()


def same_user(connection: socket.socket) -> bool:
    """Return whether the peer is a process of this user: abstract sockets have no permissions."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # unix(7)
    _pid, user, _group = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())
