"""An origin of photos for good clients, at the address that all good names lead to."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.harness.origin import listening
from tests.pictures import jpeg

PUBLIC = "127.0.0.2"
"""The address that stands for all public ones, from which alone the server may fetch."""


@contextmanager
def good_origin() -> Iterator[int]:
    """Answer every request with a photo; yield the port."""
    photo = jpeg(3, 640, 480)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nConnection: close\r\n"

    def talk(connection: socket.socket) -> None:
        connection.settimeout(30)
        connection.recv(65536)
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(photo) + photo)

    with listening(PUBLIC, talk) as port:
        yield port
