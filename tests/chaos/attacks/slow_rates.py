"""Clients just above the rates that end a slow one, and connections that say nothing.

A connection that keeps the rate is not ended by its timeout, so only the limits of connections and
of unread bytes bound such a flood. Silent connections end after 60 s at most. Promise: neighbours
are answered beside both, on new connections.
"""

import socket
import time
from collections.abc import Callable

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import close_all, post
from tests.pictures import jpeg

_EVERY = 1.0
_BODY = (
    b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
    b"Content-Length: 1000000\r\n\r\n"
)

Turn = Callable[[socket.socket], bytes]
"""Does what a connection does once a second; returns the bytes that came."""


def _sends(connection: socket.socket) -> bytes:
    """Send a piece above the least rate, and read what comes."""
    connection.send(bytes(1200))
    return connection.recv(1 << 16)


def _reads(connection: socket.socket) -> bytes:
    """Read a piece above the least rate."""
    return connection.recv(3000)


def _opened(target: Target, start: bytes, buffer: int) -> socket.socket | None:
    """Open a connection; None where the server does not take it."""
    try:
        connection = socket.socket()
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(5.0)
        connection.bind((target.source, 0))
        connection.connect(("127.0.0.1", target.port))
        connection.sendall(start)
        connection.setblocking(False)
    except OSError:
        return None
    return connection


def _flood(
    target: Target, count: int, start: bytes, turn: Turn, lasting: float, buffer: int = 0
) -> Steps:
    """Hold `count` connections; open the ended ones again.

    With a small `buffer` to read into, ended connections are not opened again: their requests cost
    much else.
    """
    held: dict[socket.socket, float] = {}
    begun, most, n_opened = time.monotonic(), 0, 0
    while (now := time.monotonic()) < begun + lasting:
        for _ in range(min(500, count - (n_opened if buffer else len(held)))):
            n_opened += 1
            if (connection := _opened(target, start, buffer)) is not None:
                held[connection] = now
        most = max(most, len(held))
        for connection in list(held):
            try:
                piece = turn(connection)
                ended = not piece or (turn is _sends and not piece.startswith(b"HTTP/1.1 200"))
            except BlockingIOError:
                continue
            except OSError:
                piece, ended = b"", True
            if ended:
                status = int(piece[9:12]) if piece.startswith(b"HTTP") else None
                seconds = time.monotonic() - held.pop(connection)
                connection.close()
                yield Outcome("answered" if status else "closed", status, seconds, len(piece))
        time.sleep(max(0.0, now + _EVERY - time.monotonic()))
    for connection in held:
        connection.close()
    yield Finding("connections_at_once", most)
    yield Finding("connections_opened", n_opened)


def slow_bodies(target: Target) -> Steps:
    """Send 1,100 bodies at 1,200 bytes a second from one address."""
    yield None
    yield from _flood(target, 1100, _BODY, _sends, 20.0)


def slow_answers(target: Target) -> Steps:
    """Read 64 answers of 18 MB at 3,000 bytes a second."""
    photo = jpeg(1, 3000, 2000)
    request = post("/filter?name=noise&format=png&png_level=0", photo, "image/jpeg")
    yield None
    yield from _flood(target, 64, request, _reads, 60.0, 4096)


_IDLE_MOST = 60.0


def _open(connection: socket.socket) -> bool:
    try:
        while piece := connection.recv(65536):
            del piece
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False


def idle_connections(target: Target) -> Steps:
    """Hold 1,100 silent connections at a server of 1,024 descriptors."""
    yield None
    opened = [_opened(target, b"", 0) for _ in range(1100)]
    held = [each for each in opened if each is not None]
    yield Finding("opened", len(held))
    last = time.monotonic()
    while held and time.monotonic() - last < _IDLE_MOST + 8:
        held = [each for each in held if _open(each)]
        time.sleep(0.5)
    yield Finding("still_open_after_68_s", len(held), most=0)
    yield Outcome("never" if held else "closed", None, time.monotonic() - last)
    close_all(held)
