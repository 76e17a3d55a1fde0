"""Bodies with a content coding that grow a thousandfold when they are unpacked.

Promise: the answer is below 500, and what a body unpacks to is bounded like its bytes.
"""

import gzip
import socket
import zlib
from contextlib import suppress

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask
from tests.pictures import jpeg

_HOST = "Host: localhost\r\n"


def _sent(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


def coded_bodies(target: Target) -> Steps:
    """Send bodies in gzip, deflate and more codings, of which each megabyte is a kilobyte."""
    bomb = gzip.compress(bytes(100_000_000))
    twice = gzip.compress(gzip.compress(bytes(1_000_000_000)[:200_000_000]))
    flat = zlib.compress(bytes(100_000_000))
    yield None
    for coding, body in (
        ("gzip", bomb),
        ("x-gzip", bomb),
        ("gzip, gzip", twice),
        ("deflate", flat),
        ("br", bomb),
        ("zstd", bomb),
        ("identity", jpeg(1)),
        ("gzip" + ", gzip" * 5000, bomb),
        ("", jpeg(1)),
        ("\xe2\x82\xac", bomb),
    ):
        for kind in ("image/jpeg", "application/json", "multipart/form-data; boundary=b"):
            head = (
                f"POST /classify HTTP/1.1\r\n{_HOST}Content-Type: {kind}\r\n"
                f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            yield ask(target, head.encode("latin-1") + body, 30.0)
