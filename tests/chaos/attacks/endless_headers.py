"""Headers without end, and a body in chunks of one byte.

Promise: at most 64 KiB of headers are read; the request is refused, and the answer can be read.
"""

import time

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import answer, connect

_MOST = 60_000_000


def _poured(target: Target, start: bytes, piece: bytes, most: int = _MOST) -> Steps:
    """Send pieces until the server says something, or `most` bytes are taken."""
    started = time.monotonic()
    taken = 0
    with connect(target) as connection:
        connection.settimeout(20)
        try:
            connection.sendall(start)
            while taken < most:
                connection.sendall(piece)
                taken += len(piece)
        except TimeoutError:
            pass
        except OSError:
            yield Outcome("closed", None, time.monotonic() - started)
            yield Finding("bytes_taken", taken, most=8_000_000)
            return
        yield answer(connection, started, 20.0)
    yield Finding("bytes_taken", taken, most=8_000_000)


def endless_headers(target: Target) -> Steps:
    """Send 60 MB of header lines."""
    yield None
    lines = b"".join(b"X-A%06d: %s\r\n" % (n, b"a" * 80) for n in range(1000))
    yield from _poured(target, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", lines)


def tiny_chunks(target: Target) -> Steps:
    """Send a body of 60 MB in 10,000,000 chunks of one byte."""
    yield None
    start = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    started = time.monotonic()
    with connect(target) as connection:
        try:
            connection.sendall(start)
            for _ in range(1000):
                connection.sendall(b"1\r\na\r\n" * 10_000)
            connection.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        yield answer(connection, started, 60.0)
