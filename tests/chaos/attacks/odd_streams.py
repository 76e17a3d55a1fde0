"""Streams of images whose answers are never read.

Promise: memory stays flat, and other clients are answered.
"""

import base64
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import connect
from tests.pictures import png

_LINES = "application/x-ndjson"

LASTING = 20
"""Seconds for which streams are held open."""


def head(path: str, kind: str = _LINES) -> bytes:
    """Return the head of a POST whose body is chunked and of unknown length."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nConnection: close\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()


def image_uri() -> bytes:
    """Return a small PNG as a data URI."""
    return b"data:image/png;base64," + base64.b64encode(png(1))


def chunk(data: bytes) -> bytes:
    """Return one chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream_never_read(target: Target) -> Steps:
    """Send images on 40 streams as fast as they are taken, and never read an answer."""
    line = b'{"id": "%b", "data": "%b"}\n' % (b"a" * 200, image_uri())
    piece = chunk(line * 100)
    yield None
    yield from _held(target, 40, head("/filter?name=invert"), lambda _: piece, reads=0)


def _held(
    target: Target, count: int, begin: bytes, piece: Callable[[int], bytes], *, reads: int
) -> Iterator[Finding]:
    """Hold streams for LASTING seconds, and tell how many are left and what they took.

    Each second every stream is sent as much of its pieces as it takes at once, one piece where it
    is read, and `reads` bytes of it are read.
    """
    held = [each for _ in range(count) if (each := _Held.opened(target, begin)) is not None]
    for turn in range(LASTING):
        began = time.monotonic()
        for each in held:
            while each.sends(piece(turn)) and not reads:
                pass
            each.reads(reads)
        time.sleep(max(0.0, began + 1.0 - time.monotonic()))
    yield Finding("streams_open_at_the_end", sum(each.open for each in held))
    yield Finding("mb_taken_of_one_stream", max((each.sent for each in held), default=0) / 1e6)
    for each in held:
        each.connection.close()


@dataclass
class _Held:
    """One stream that is held open, and the rest of the piece that it is being sent."""

    connection: socket.socket
    rest: bytes = b""
    sent: int = 0
    open: bool = True

    @classmethod
    def opened(cls, target: Target, begin: bytes) -> "_Held | None":
        """Return a stream whose head was sent, None where the server takes no connection."""
        try:
            connection = connect(target)
            connection.sendall(begin)
        except OSError:
            return None
        connection.setblocking(False)
        return cls(connection)

    def sends(self, piece: bytes) -> bool:
        """Send the rest, or else a piece; return whether all of it was taken."""
        data = self.rest or piece
        try:
            n = self.connection.send(data) if self.open else 0
        except BlockingIOError:
            n = 0
        except OSError:
            self.open, n = False, 0
        self.sent, self.rest = self.sent + n, data[n:]
        return self.open and not self.rest

    def reads(self, n_bytes: int) -> None:
        """Read at most that many bytes."""
        if n_bytes and self.open:
            try:
                self.open = bool(self.connection.recv(n_bytes))
            except BlockingIOError:
                pass
            except OSError:
                self.open = False
