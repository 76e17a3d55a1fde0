"""URLs whose names lead to internal addresses.

Promise: no internal address is connected to, and clients of other addresses fetch beside it.
"""

import json
import socket

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.good_origin import PUBLIC
from tests.chaos.harness.http import ask_all, post
from tests.chaos.harness.origin import listening
from tests.pictures import jpeg

FORGETFUL = ("--fetch-dns-cache", "0")
"""Flags of a server that resolves a name anew for each connection."""

_IN_A_REQUEST, _REQUESTS = 60, 8

_LASTING = 20.0
"""Seconds for which requests are repeated."""


def _names(target: Target, words: tuple[str, ...], port: int = 80) -> Steps:
    """Send URLs of 480 different names at once, and again while the attack lasts."""
    requests = []
    for start in range(_REQUESTS):
        hosts = [f"{words[n % len(words)]}-{start}-{n}.test" for n in range(_IN_A_REQUEST)]
        urls = [f"http://{host}:{port}/" for host in hosts]
        requests.append(post("/classify", json.dumps({"urls": urls}).encode(), "application/json"))
    yield None
    yield from ask_all(target, requests, 80.0, _LASTING)


def names_rebinding(target: Target) -> Steps:
    """Ask for URLs of 480 names that lead to a public address, to an internal one, or to both."""
    inside: list[str] = []
    photo = jpeg(4, 64, 48)
    head = b"HTTP/1.1 302 Found\r\nLocation: /\r\nConnection: close\r\n"

    def outside(connection: socket.socket) -> None:
        connection.settimeout(10)
        connection.recv(65536)
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(photo) + photo)

    def internal(connection: socket.socket) -> None:
        inside.append(connection.recv(100).decode("latin-1"))

    with listening(PUBLIC, outside) as port, listening("127.0.0.1", internal, port):
        yield from _names(target, ("rebinding", "both"), port)
    yield Finding("internal_connections", len(inside), most=0)
