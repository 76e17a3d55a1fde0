"""A client of HTTP/2 that sends what no library would: messages of gRPC that never end.

Source: RFC 9113 (frames), RFC 7541 (header fields), and gRPC's PROTOCOL-HTTP2.md (messages).
"""

import asyncio
import struct
from dataclasses import dataclass, field

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_HEADERS, ACK = 4, 1
LARGEST_FRAME = 16_384
FIRST_WINDOW = 65_535
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(path: str) -> bytes:
    """Return the header fields of a call, as literals without a table."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )


@dataclass(slots=True)
class Stream:
    """A call of which `left` bytes are still to be sent, as far as the `window` allows.

    They are zeros behind the `prefix`.
    """

    prefix: bytes
    left: int
    window: int
    sent: int = 0
    ended: bool = False


@dataclass(slots=True)
class Connection:
    """One connection with calls that never end."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    streams: dict[int, Stream] = field(default_factory=dict)
    window: int = FIRST_WINDOW
    first_window: int = FIRST_WINDOW
    closed: bool = False

    @classmethod
    async def to(cls, port: int, source: str) -> "Connection":
        """Connect from an address of this host."""
        made = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        self = cls(*made)
        self.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
        return self

    def call(self, path: str, announced: int) -> None:
        """Begin a call with a message of `announced` bytes, whose last byte never comes."""
        number = 2 * len(self.streams) + 1
        prefix = b"\0" + struct.pack(">I", announced)
        self.streams[number] = Stream(prefix, 4 + announced, self.first_window)
        self.writer.write(frame(HEADERS, END_HEADERS, number, header_block(path)))
        self._send(number)

    async def follow(self) -> None:
        """Read frames, and send as much of all messages as flow control allows, until the end."""
        try:
            while True:
                head = await self.reader.readexactly(9)
                length = int.from_bytes(head[:3], "big")
                kind, flags, number = struct.unpack(">BBI", head[3:])
                self._on(kind, flags, number, await self.reader.readexactly(length))
                await self.writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            self.closed = True

    @property
    def sent(self) -> int:
        """Return the bytes of all messages that were sent."""
        return sum(each.sent for each in self.streams.values())

    def _on(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.writer.write(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == SETTINGS:
                self._resize(payload)
        elif kind == WINDOW_UPDATE:
            more = struct.unpack(">I", payload)[0]
            if stream is not None:
                stream.window += more
                self._send(number)
            elif number == 0:
                self.window += more
                self._send_all()
        elif stream is not None and (kind == RST_STREAM or (kind == HEADERS and flags & 1)):
            stream.ended = True

    def _resize(self, settings: bytes) -> None:
        """Take the first window of streams out of a server's settings."""
        for place in range(0, len(settings), 6):
            name, value = struct.unpack(">HI", settings[place : place + 6])
            if name == INITIAL_WINDOW_SIZE:
                for each in self.streams.values():
                    each.window += value - self.first_window
                self.first_window = value
        self._send_all()

    def _send_all(self) -> None:
        for number in self.streams:
            self._send(number)

    def _send(self, number: int) -> None:
        stream = self.streams[number]
        while not stream.ended and stream.left > 0:
            size = min(stream.left, stream.window, self.window, LARGEST_FRAME)
            if size <= 0 or (not stream.sent and size < len(stream.prefix)):
                return
            data = bytes(size) if stream.sent else stream.prefix.ljust(size, b"\0")[:size]
            self.writer.write(frame(DATA, 0, number, data))
            stream.left -= size
            stream.window -= size
            self.window -= size
            stream.sent += size
