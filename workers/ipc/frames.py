"""The messages between front ends and workers, in MessagePack, and their way over a Unix socket.

Pixels never travel here, they are in the arena; nothing is pickled. A frame on a socket is its
length in bytes, uint32 little-endian, and MessagePack.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

import msgspec

from models.api.schemas import ModelRecord
from models.labels import LabelSet
from models.networks.served import Model, ServedNetwork

log = logging.getLogger("darkroom.wire")

Shape = tuple[int, int, int]


class EncodedNetwork(msgspec.Struct, frozen=True, array_like=True):
    """A network that a worker serves: its record and its labels, or the problem instead.

    `labels` are the name of the set, the names of the classes in order, and their WordNet ids.
    """

    name: str
    model: dict[str, Any] | None = None
    labels: tuple[str, list[str], list[str | None]] | None = None
    problem: str | None = None

    @property
    def identity(self) -> object:
        """Return what must not change in a server's life: the weights and their labels."""
        return self.name, self.labels, (self.model or {}).get("sha256"), self.problem


def encode_network(network: ServedNetwork) -> EncodedNetwork:
    """Return a served network as MessagePack can carry it."""
    model = network.model
    if model is None:
        return EncodedNetwork(network.name, problem=network.problem)
    labels = (model.labels.name, list(model.labels.labels), list(model.labels.wnids))
    return EncodedNetwork(network.name, model.record.model_dump(), labels, network.problem)


def decode_network(network: EncodedNetwork) -> ServedNetwork:
    """Reverse `encode_network`."""
    model = None
    if network.model is not None and network.labels is not None:
        name, labels, wnids = network.labels
        label_set = LabelSet(name, tuple(labels), tuple(wnids))
        model = Model(ModelRecord.model_validate(network.model), label_set)
    return ServedNetwork(network.name, model, network.problem)


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base class of all frames."""


EncodedJpeg = tuple[int, int, int, str]
"""Height, width, orientation and subsampling of a JPEG."""

Times = tuple[float, float, float, float, float, int, int, str, float, str]
"""The fields of a trace, in order."""

EncodedError = tuple[str, str, list[tuple[str, str, Any]]]
"""An error's code and text, and the path, message and value of each wrong field."""


class Submit(Frame, frozen=True):
    """A front end hands over a job and its slot. `deadline` is on the host's monotonic clock.

    The content of the slot has this `shape`; with `jpeg` it is a file, (bytes, 1, 1).
    """

    number: int
    offset: int
    size: int
    shape: Shape
    operation: Any
    deadline: float
    lane: str
    jpeg: EncodedJpeg | None = None
    alone: bool = False
    """True if it must be computed with no other job on the device: a worker died with it."""
    counted: bool = True


class Cancel(Frame, frozen=True):
    """The front end does not wait for this job any more."""

    number: int


class Welcome(Frame, frozen=True):
    """The first frame of a worker: its device, and the networks that it serves, default first.

    `degraded` says why the device is not the one that was asked for. `start` is the seconds that
    the worker's start took, which a successor that is not warm will take too.
    """

    device: str
    networks: list[EncodedNetwork]
    takes_jpegs: bool = False
    degraded: str | None = None
    start: float = 0.0

    @property
    def identity(self) -> object:
        """Return what must not change in a server's life: networks, weights and labels."""
        return [each.identity for each in self.networks]

    def beside(self, workers: "Iterable[Welcome]") -> "Welcome":
        """Return this frame with the reasons of all workers that are degraded."""
        reasons = dict.fromkeys(each.degraded for each in workers if each.degraded)
        return msgspec.structs.replace(self, degraded="; ".join(reasons) or None)


class Done(Frame, frozen=True):
    """A worker hands a job's slot back, with the outcome; of a cancelled job, nothing else.

    The slot holds pixels; with `jpeg` a file, (bytes, 1, 1). `vector` holds the float32 values of
    logits or of an embedding, in the byte order of the host.
    """

    number: int
    trace: Times | None = None
    class_ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    shape: Shape | None = None
    error: EncodedError | None = None
    jpeg: EncodedJpeg | None = None
    vector: bytes | None = None


class LoadReport(Frame, frozen=True):
    """How busy a worker is; `progress` grows while its device gets work done."""

    queued_jobs: int
    queued_pixels: int
    running_jobs: int
    service_rate: float
    decoding: float = 0.0
    progress: float = 0.0


class Batched(Frame, frozen=True):
    """A finished micro-batch, reported to one front end for its metrics; filters name no
    network.
    """

    operation: str
    size: int
    reason: str
    network: str = ""
    device: str = ""
    seconds: float = 0.0
    """How long the device was busy with it, without the time that batches before it had."""


class Leaving(Frame, frozen=True):
    """A worker takes no more jobs and has closed its address; it answers those that it has."""


ToWorker = Submit | Cancel
FromWorker = Welcome | Done | LoadReport | Batched | Leaving

ENCODER = msgspec.msgpack.Encoder()
TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)

# The socket.

_LENGTH = struct.Struct("<I")

LONGEST = 1 << 20
"""Bytes of a frame, at most. Thousands of labels take a tenth of it."""

T = TypeVar("T")


class FrameProtocol(asyncio.Protocol, Generic[T]):
    """One end of a connection: all frames that came with one read go to `on_frames` at once.

    Unreadable bytes go to `on_broken`, and reading stops. The connection stays open: closing it
    would mean that this end no longer uses the arena. An error of `on_frames` is a fault of this
    end: it is logged, and later frames are read.
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
        self._outbox: list[Frame] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the transport from the event loop."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Split the bytes that the event loop read into frames."""
        self._buffer += data
        try:
            frames = self._whole_frames()
        except Exception as error:  # the event loop would close the connection
            if self._transport is not None:
                self._transport.pause_reading()
            self._on_broken(error)
            return
        try:
            if frames:
                self._on_frames(frames)
        except Exception:  # the connection is protected: the event loop would close it
            log.exception("frames could not be handled")

    def connection_lost(self, _error: Exception | None) -> None:
        """Handle the end of the connection."""
        lost, self._transport = self._on_lost, None
        # No cycle may keep the arena mapped until the garbage collector comes.
        self._on_frames, self._on_lost, self._on_broken = _nothing, _nothing, _nothing
        self._outbox.clear()
        lost()

    def send(self, frames: Iterable[Frame]) -> None:
        """Write frames in one piece; write nothing once the other end is gone."""
        if self._transport is not None:
            pieces: list[bytes] = []
            for frame in frames:
                body = ENCODER.encode(frame)
                pieces += _LENGTH.pack(len(body)), body
            self._transport.write(b"".join(pieces))

    def send_soon(self, frame: Frame) -> None:
        """Write a frame, in one piece with all others of this turn of the event loop.

        Each piece is a system call, which wakes the other end. Do not mix with `send`.
        """
        if self._transport is not None:
            if not self._outbox:
                asyncio.get_running_loop().call_soon(self._flush)
            self._outbox.append(frame)

    def _flush(self) -> None:
        frames, self._outbox = self._outbox, []
        if frames:
            self.send(frames)

    @property
    def behind(self) -> bool:
        """Return whether the other end reads so slowly that it should get only necessary frames."""
        return self._transport is not None and self._transport.get_write_buffer_size() > LONGEST

    def close(self) -> None:
        """Write pending bytes, then close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; pending bytes are lost."""
        if self._transport is not None:
            self._transport.abort()

    def _whole_frames(self) -> list[T]:
        frames, start = [], 0
        while (end := self._end(start)) is not None:
            frames.append(self._decoder.decode(self._buffer[start + 4 : end]))
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
    """Do nothing; a lost connection has no more callbacks."""


def same_user(connection: socket.socket) -> bool:
    """Return whether the peer is a process of this user: abstract sockets have no permissions."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # unix(7)
    _pid, user, _group = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())
