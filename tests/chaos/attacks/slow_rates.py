"""Clients just above the rates that end a slow one: bodies and answers.

A connection that keeps the rate is not ended by its timeout, so only the limits of connections and
of unread bytes bound such a flood. Promise: neighbours are answered beside it, also those that
share the attacker's address.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import connect, post
from tests.pictures import jpeg

_EVERY = 1.0
_LASTING = 20.0
_OPENED_AT_ONCE = 500
"""Connections that are opened in one turn, so that those that are open keep their rate."""

_BODY = (
    b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
    b"Content-Length: 1000000\r\n\r\n"
)


@dataclass
class _Slow:
    """One connection: what it sends when it is opened, and what it does every second."""

    connection: socket.socket
    opened: float
    turns: int = 0
    data: bytearray = field(default_factory=bytearray)


Turn = Callable[[_Slow], bool]
"""Does what a connection does once a second; returns False where the connection has ended."""


def _sends(pieces: Callable[[int], bytes]) -> Turn:
    """Return a turn that sends the piece of its number and reads what comes."""

    def turn(slow: _Slow) -> bool:
        if not _read(slow, 1 << 16):
            return False
        with suppress(OSError):  # seen at the next turn
            slow.connection.send(pieces(slow.turns))
        return not slow.data or slow.data.startswith(b"HTTP/1.1 200")

    return turn


def _reads(n_bytes: int) -> Turn:
    """Return a turn that reads that many bytes of an answer."""

    def turn(slow: _Slow) -> bool:
        return _read(slow, n_bytes)

    return turn


def _read(slow: _Slow, n_bytes: int) -> bool:
    """Read at most that many bytes; return False at the end of the connection."""
    try:
        piece = slow.connection.recv(n_bytes)
    except BlockingIOError:
        return True
    except OSError:
        return False
    slow.data += piece[: max(0, 4096 - len(slow.data))]
    return bool(piece)


def _opened(target: Target, source: str, start: bytes, buffer: int) -> _Slow | None:
    """Open a connection from an address; None where the server does not take it."""
    try:
        if buffer:
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            connection.bind((source, 0))
            connection.connect(("127.0.0.1", target.port))
        else:
            connection = connect(replace(target, source=source), 5.0)
        connection.sendall(start)
        connection.setblocking(False)
    except OSError:
        return None
    return _Slow(connection, time.monotonic())


def _ended(slow: _Slow) -> Outcome:
    words = bytes(slow.data[:200]).split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else None
    slow.connection.close()
    end = "answered" if status else "closed"
    return Outcome(end, status, time.monotonic() - slow.opened, len(slow.data))


def _flood(
    target: Target,
    sources: list[str],
    count: int,
    start: bytes,
    turn: Turn,
    buffer: int = 0,
    lasting: float = _LASTING,
) -> Iterator[Outcome | Finding]:
    """Hold `count` connections from the addresses in turn; open those that end again.

    With a small `buffer` to read into, those that end are not opened again: their requests cost
    much else.
    """
    held: list[_Slow] = []
    begun, most, opened = time.monotonic(), 0, 0
    while (now := time.monotonic()) < begun + lasting:
        missing = count - (opened if buffer else len(held))
        for _ in range(min(_OPENED_AT_ONCE, missing)):
            found = _opened(target, sources[opened % len(sources)], start, buffer)
            opened += 1
            if found is not None:
                held.append(found)
        most = max(most, len(held))
        for each in list(held):
            each.turns += 1
            if not turn(each):
                held.remove(each)
                yield _ended(each)
        time.sleep(max(0.0, now + _EVERY - time.monotonic()))
    for each in held:
        each.connection.close()
    yield Finding("connections_at_once", most)
    yield Finding("connections_opened", opened)


def slow_bodies(target: Target) -> Steps:
    """Send 1,100 bodies at 1,200 bytes a second from one address."""
    yield None
    yield from _flood(target, [target.source], 1100, _BODY, _sends(lambda _: bytes(1200)))


def slow_answers(target: Target) -> Steps:
    """Read 64 answers of 18 MB at 3,000 bytes a second."""
    photo = jpeg(1, 3000, 2000)
    request = post("/filter?name=noise&format=png&png_level=0", photo, "image/jpeg")
    yield None
    yield from _flood(target, [target.source], 64, request, _reads(3000), 4096, 60.0)
