"""A client of HTTP/2 that sends what no library of gRPC would: messages that never end."""

import asyncio
import struct
from contextlib import suppress

from h2.connection import H2Connection
from h2.events import StreamEnded, StreamReset

FIELDS = [
    *((":method", "POST"), (":scheme", "http"), (":authority", "localhost")),
    *(("te", "trailers"), ("content-type", "application/grpc")),
]


class Connection:
    """One connection with calls that never end; `sent` counts the bytes of their messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer, self.sent, self.closed = writer, 0, False
        self._reader, self._protocol = reader, H2Connection()
        self._left: dict[int, int] = {}
        """The bytes of each message, behind its prefix of five bytes, that are still to be sent."""

    @classmethod
    async def to(cls, port: int, source: str) -> "Connection":
        """Connect from an address of this host."""
        made = cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))
        made._protocol.initiate_connection()
        return made

    def call(self, path: str, announced: int) -> None:
        """Begin a call with a message of `announced` zeros; `follow` sends all but the last."""
        number = self._protocol.get_next_available_stream_id()
        self._protocol.send_headers(number, [(":path", path), *FIELDS])
        self._protocol.send_data(number, b"\0" + struct.pack(">I", announced))
        self._left[number] = announced - 1
        self.writer.write(self._protocol.data_to_send())

    async def follow(self) -> None:
        """Read frames, and send as much of all messages as flow control allows, until the end."""
        with suppress(OSError):
            while data := await self._reader.read(1 << 16):
                for event in self._protocol.receive_data(data):
                    if isinstance(event, StreamEnded | StreamReset):
                        self._left.pop(event.stream_id, None)
                self._send()
                await self.writer.drain()
        self.closed = True

    def _send(self) -> None:
        for number, left in self._left.items():
            window = self._protocol.local_flow_control_window(number)
            while (size := min(left, window, self._protocol.max_outbound_frame_size)) > 0:
                self._protocol.send_data(number, bytes(size))
                left, window, self.sent = left - size, window - size, self.sent + size
            self._left[number] = left
        self.writer.write(self._protocol.data_to_send())
