"""Frames on a Unix socket: each is its length in bytes, uint32 little-endian, and MessagePack."""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

import msgspec

from workers.ipc.frames import ENCODER, Frame

log = logging.getLogger("darkroom.wire")

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
