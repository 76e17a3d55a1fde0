"""Origins that answer a byte at a time, far too much, in circles, or in many connections at once.

Promise: each URL is its own error within the request's deadline; neighbours are spared.
"""

import json
import socket
import time

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post
from tests.chaos.harness.origin import Talk, listening

ADDRESS = "127.0.0.2"
"""The address of the origins, which the server may fetch from."""

FLAGS = ("--fetch-allowed-networks", f"{ADDRESS}/32", "--fetch-ports", "1-65535")

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n"


def _trickled(start: bytes, piece: bytes) -> Talk:
    def talk(connection: socket.socket) -> None:
        connection.sendall(start)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            connection.sendall(piece)
            time.sleep(0.5)

    return talk


def _flooded(start: bytes, piece: bytes) -> Talk:
    def talk(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(2000):
            connection.sendall(piece)

    return talk


def _silent(connection: socket.socket) -> None:
    connection.recv(1)  # the server ends it


_TALKS = (
    _silent,
    _trickled(b"H", b"T"),
    _trickled(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
    _trickled(_HEAD + b"Content-Length: 1000000\r\n\r\n", b"a"),
    _trickled(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    _trickled(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a"),
    _trickled(b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
    _trickled(b"HTTP/1.1 302 Found\r\nLocation: /0\r\nContent-Length: 9999\r\n\r\n", b"a"),
    _flooded(_HEAD + b"\r\n", bytes(1 << 20)),
    _flooded(_HEAD + b"Content-Length: 5\r\n\r\n", bytes(1 << 20)),
    _flooded(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 5000),
    _flooded(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 5000),
    _flooded(b"HTTP/1.1 200 OK\r\nX: ", b"a" * 100_000),
    _flooded(b"HTTP/1.1 200 ", b"a" * 100_000),
    _flooded(_HEAD + b"Content-Encoding: gzip\r\n\r\n", bytes(1 << 20)),
)


def _talk(connection: socket.socket) -> None:
    """Answer by the number in the path."""
    connection.settimeout(70)
    words = connection.recv(65536).decode("latin-1").split()
    number = words[1].strip("/").partition("-")[0] if len(words) > 1 else "0"
    _TALKS[int(number) % len(_TALKS)](connection)


def origin_slow(target: Target) -> Steps:
    """Let fetched URLs be answered a byte at a time, without end, and by floods, 240 at once."""
    with listening(ADDRESS, _talk) as port:
        base = f"http://{ADDRESS}:{port}"
        requests = []
        for start in range(4):
            urls = [f"{base}/{n % len(_TALKS)}-{start}-{n}" for n in range(60)]
            body = json.dumps({"urls": urls}).encode()
            requests.append(post("/classify", body, "application/json"))
        yield None
        yield from ask_all(target, requests, 80.0)
