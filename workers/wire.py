"""What front ends and workers say to each other: frames of a length and MessagePack, on a socket.

Pixels never travel here, they lie in the arena; nothing is pickled.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

import msgspec

from models import errors
from models.errors import InternalError, ServiceError
from models.job import Operation, ReleaseReason, Trace
from workers.filters import parse_chain
from workers.operations import Classify, FilterChain, FunctionToApply

Shape = tuple[int, int, int]

_LENGTH = struct.Struct("<I")

LONGEST = 1 << 20
"""Bytes of a frame; a longer one is no frame. Thousands of labels take a tenth of it."""


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Anything said."""


class Submit(Frame, frozen=True):
    """A front end hands a job and its slot over. `deadline` is on the host's monotonic clock."""

    number: int
    offset: int
    size: int
    shape: Shape
    operation: Any
    deadline: float
    bulk: bool


class Cancel(Frame, frozen=True):
    """Nobody waits for this job any more."""

    number: int


class Welcome(Frame, frozen=True):
    """A worker's first word: its device, what it classifies with, or why with nothing."""

    device: str
    model: dict[str, Any] | None
    labels: tuple[str, list[str], list[str | None]] | None
    problem: str | None


class Done(Frame, frozen=True):
    """A worker hands a job's slot back, with the outcome; of a cancelled job, nothing else.

    An image's pixels lie in the slot.
    """

    number: int
    trace: tuple[float, float, float, float, int, int, str] | None = None
    class_ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    shape: Shape | None = None
    error: tuple[str, str] | None = None


class LoadReport(Frame, frozen=True):
    """How busy a worker is."""

    queued_jobs: int
    queued_pixels: int
    running_jobs: int
    service_rate: float


class Batched(Frame, frozen=True):
    """A micro-batch was finished; told to one front end, for its metrics."""

    operation: str
    size: int
    reason: str


ToWorker = Submit | Cancel
FromWorker = Welcome | Done | LoadReport | Batched

_ENCODER = msgspec.msgpack.Encoder()
TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)

_ERRORS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ServiceError) and "__init__" not in vars(kind)
} | {ServiceError.code: InternalError}

T = TypeVar("T")


class FrameProtocol(asyncio.Protocol, Generic[T]):
    """One end of a connection: every frame that came with one read goes to `on_frames` at once.

    What cannot be read goes to `on_broken`, and nothing is read any more. The connection is not
    closed: to the other end that would mean that nobody here uses the arena any more.
    """

    def __init__(
        self,
        decoder: "msgspec.msgpack.Decoder[T]",
        on_frames: Callable[[list[T]], None],
        on_lost: Callable[[], None],
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._decoder = decoder
        self._on_frames, self._on_lost, self._on_broken = on_frames, on_lost, on_broken
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._buffer += data
        try:
            frames = self._whole_frames()
            if frames:
                self._on_frames(frames)
        except Exception as error:  # the event loop would close the connection
            if self._transport is not None:
                self._transport.pause_reading()
            self._on_broken(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        lost, self._transport = self._on_lost, None
        # No cycle may keep the arena mapped until the garbage collector comes.
        self._on_frames, self._on_lost, self._on_broken = _nothing, _nothing, _nothing
        lost()

    def send(self, frames: Iterable[Frame]) -> None:
        """Write frames in one piece; nothing once the other end is gone."""
        if self._transport is not None:
            bodies = [_ENCODER.encode(frame) for frame in frames]
            self._transport.write(b"".join(_LENGTH.pack(len(b)) + b for b in bodies))

    @property
    def behind(self) -> bool:
        """Whether the other end reads so slowly that it should be told only what it must know."""
        return self._transport is not None and self._transport.get_write_buffer_size() > LONGEST

    def close(self) -> None:
        """Write what is left, then hang up."""
        if self._transport is not None:
            self._transport.close()

    def _whole_frames(self) -> list[T]:
        frames, start = [], 0
        while (end := self._end(start)) is not None:
            frames.append(self._decoder.decode(bytes(self._buffer[start + 4 : end])))
            start = end
        del self._buffer[:start]
        return frames

    def _end(self, start: int) -> int | None:
        if len(self._buffer) < start + 4:
            return None
        length = int(_LENGTH.unpack_from(self._buffer, start)[0])
        if length > LONGEST:
            raise ValueError(f"a frame of {length} bytes")
        end = start + 4 + length
        return end if len(self._buffer) >= end else None


def _nothing(*_: object) -> None:
    """What a connection that is gone does."""


def same_user(connection: socket.socket) -> bool:
    """Whether the other end is a process of this user: abstract sockets have no permissions."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())


def operation_said(operation: Operation) -> object:
    """An operation as MessagePack can carry it."""
    if isinstance(operation, FilterChain):
        return [each.model_dump() for each in operation.filters]
    assert isinstance(operation, Classify)
    return {"top_k": operation.top_k, "function": operation.function_to_apply.value}


def operation_heard(said: Any) -> Operation:
    """The reverse of `operation_said`."""
    if isinstance(said, list):
        return FilterChain(parse_chain(said))
    return Classify(said["top_k"], FunctionToApply(said["function"]))


def trace_said(trace: Trace) -> tuple[float, float, float, float, int, int, str]:
    """A trace in a fixed order."""
    times = (trace.queue, trace.upload, trace.compute, trace.download)
    return (*times, trace.batch_size, trace.max_batch_size, trace.reason.value)


def trace_heard(said: tuple[float, float, float, float, int, int, str]) -> Trace:
    """The reverse of `trace_said`."""
    queue, upload, compute, download, size, limit, reason = said
    return Trace(queue, upload, compute, download, size, limit, ReleaseReason(reason))


def error_heard(said: tuple[str, str]) -> ServiceError:
    """The error of a code and a text; of a code that is not known here, a fault of ours."""
    code, detail = said
    return _ERRORS.get(code, InternalError)(detail)
