"""Streams of images that are endless, empty, deep, slow, lying about lengths, or never read.

Promise: memory stays flat, other clients are answered, a wrong item is one error record, and a
client that neither sends nor reads is ended by its timeout.
"""

import base64
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import ask, ask_all, connect, post
from tests.pictures import jpeg, png

_LINES, _DELIMITED = "application/x-ndjson", "application/x-length-delimited"
_PATHS = ("/classify", "/filter?name=invert", "/info")
_PIECE = 1 << 16

LASTING = 20
"""Seconds for which streams are held open."""


def head(path: str, kind: str = _LINES) -> bytes:
    """Return the head of a POST whose body is chunked and of unknown length."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nConnection: close\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()


def image_uri() -> bytes:
    """Return a small PNG as a data URI."""
    return b"data:image/png;base64," + base64.b64encode(png(1))


def chunk(data: bytes) -> bytes:
    """Return one chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def endless(
    target: Target, begin: bytes, piece: bytes, most: int, patience: float
) -> Callable[[], Outcome]:
    """Return a call that sends a chunk again and again until the server ends the stream.

    At most `most` bytes are sent; the answer is read meanwhile.
    """

    def run() -> Outcome:
        started, found = time.monotonic(), bytearray()
        sent = chunk(piece)
        with connect(target, patience) as connection:
            reading = threading.Thread(target=_drain, args=(connection, found))
            reading.start()
            with suppress(OSError):
                connection.sendall(begin)
                for _ in range(most // len(piece)):
                    connection.sendall(sent)
                    if time.monotonic() - started > patience:
                        break
                connection.sendall(b"0\r\n\r\n")
            reading.join(patience)
        words = bytes(found).split(None, 2)
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else None
        return Outcome("answered" if status else "closed", status, time.monotonic() - started)

    return run


def _drain(connection: socket.socket, found: bytearray) -> None:
    with suppress(OSError):
        while piece := connection.recv(_PIECE):
            found += piece[: max(0, 4096 - len(found))]


def stream_lines(target: Target) -> Steps:
    """Stream lines without an end, millions of empty ones, deep ones, and 20 odd ones."""
    good = b'{"data": "%b"}' % image_uri()
    pieces = (
        b"a" * _PIECE,  # lines without an end
        b'{"id": "' + b"a" * _PIECE,
        b"\x00" * _PIECE,
        b"\n" * _PIECE,  # lines without content
        b" \r\n" * (_PIECE // 3),
        b"{}\n" * 20_000,
        b"[" * 60_000 + b"\n",  # deep lines, and lines of much
        b'{"a":' * 12_000 + b"1" + b"}" * 12_000 + b"\n",
        b"[[],[]]\n" * 8000,
        b"9" * 60_000 + b"\n",
    )
    lines = (
        *(
            b'{"data": 1}',
            b'{"data": null}',
            b'{"data": ""}',
            b'{"data": "data:,"}',
            b"null",
            b'""',
        ),
        *(
            b'{"url": ""}',
            b'{"url": "http://"}',
            b'{"url": "file:///etc/passwd"}',
            b"\xef\xbb\xbf{}",
        ),
        *(
            b'{"id": "\\ud800"}',
            b'{"id": "' + b"a" * 100_000 + b'"}',
            b'{"data": "data:image/png;base64,\xff"}',
        ),
        *(
            b'{"data": "data:image/png;base64,' + b"A" * 1_000_000 + b'"}',
            b'{"url": "a", "data": "b"}',
        ),
        *(b'{"path": "a"}', b'{"data"', b'{"data": "x"}}', b"{" * 3000, b'{"id": 1e999}'),
    )
    bodies = [b"\n".join([good, line, good]) for line in lines]
    yield None
    yield from together(
        endless(target, head(path), piece, 300_000_000, 20.0)
        for piece in pieces
        for path in _PATHS[:2]
    )
    for body in bodies:
        yield from (ask(target, post(path, body, _LINES), 30.0) for path in _PATHS)


def stream_lengths(target: Target) -> Steps:
    """Stream images whose lengths lie: four gigabytes, none, 5,000 of none, cut off."""
    photo = jpeg(1)
    size = len(photo).to_bytes(4, "big")
    bodies = (
        b"\xff\xff\xff\xff" + photo,
        b"\x02\x00\x00\x01" + photo,
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x00" * 5000,
        b"\x00\x00\x00\x01a" * 5000,
        size + photo + size + photo[:-1],
        size + photo + b"\x00",
        size + photo[:5000] + size + photo,
        b"PK\x03\x04" * 5,
    )
    yield None
    requests = [post(path, body, _DELIMITED) for body in bodies for path in _PATHS]
    yield from ask_all(target, requests, 80.0, 3.0)
    skipped = b"\xff\xff\xff\xff"
    begun = head("/classify", _DELIMITED) + chunk(skipped)
    yield endless(target, begun, bytes(_PIECE), 1 << 30, 25.0)()


def stream_never_read(target: Target) -> Steps:
    """Send images on 40 streams as fast as they are taken, and never read an answer."""
    line = b'{"id": "%b", "data": "%b"}\n' % (b"a" * 200, image_uri())
    piece = chunk(line * 100)
    yield None
    yield from _held(target, 40, head("/filter?name=invert"), lambda _: piece, reads=0)


def stream_slow_readers(target: Target) -> Steps:
    """Send images on 40 streams as fast as they are taken, and read 200 bytes a second."""
    line = b'{"id": "%b", "data": "%b"}\n' % (b"a" * 200, image_uri())
    piece = chunk(line * 100)
    yield None
    yield from _held(target, 40, head("/filter?name=invert"), lambda _: piece, reads=200)


def stream_slow_writers(target: Target) -> Steps:
    """Send a byte a second of an image on 300 streams, and nothing after an image on 300 more."""
    photo = jpeg(1)
    whole = len(photo).to_bytes(4, "big") + photo
    yield None
    begin = head("/classify", _DELIMITED)
    begun = begin + chunk(whole[:100])
    yield from _held(target, 300, begun, lambda n: chunk(photo[n : n + 1]), reads=_PIECE)
    begun = begin + chunk(b"\x00" * 4 + whole[:100])
    yield from _held(target, 300, begun, lambda _: b"", reads=_PIECE)


def stream_many(target: Target) -> Steps:
    """Send an image a second on each of 300 streams, and read all answers."""
    photo = jpeg(1)
    whole = len(photo).to_bytes(4, "big") + photo
    yield None
    begin = head("/classify", _DELIMITED)
    yield from _held(target, 300, begin, lambda _: chunk(whole), reads=_PIECE)


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


def together(calls: Iterable[Callable[[], Outcome]]) -> Iterator[Outcome]:
    """Run all calls at the same time, and yield what they return."""
    listed = [*calls]
    with ThreadPoolExecutor(len(listed)) as pool:
        for done in as_completed([pool.submit(each) for each in listed]):
            yield done.result()
