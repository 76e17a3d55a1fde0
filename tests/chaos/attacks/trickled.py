"""Connections that send a byte of their headers now and then.

Old effect: no limit and no timeout for headers; a body could take 30 s for each chunk. Promise:
headers must be complete after 10 s, and a body must come at a minimum rate.
"""

import socket
import time

from tests.chaos.harness.attack import Outcome, Steps, Target
from tests.chaos.harness.http import answer, close_all, connect

_EVERY = 1.0


def _trickle(target: Target, count: int, start: bytes, piece: bytes, seconds: float) -> Steps:
    """Send `piece` on each connection once a second until the server ends it."""
    started = time.monotonic()
    held = []
    for _ in range(count):
        try:
            connection = connect(target)
            connection.sendall(start)
            connection.setblocking(False)
            held.append(connection)
        except OSError as error:
            yield Outcome("closed", None, time.monotonic() - started, excerpt=str(error))
    while held and time.monotonic() - started < seconds:
        time.sleep(_EVERY)
        for connection in list(held):
            if _alive(connection, piece):
                continue
            held.remove(connection)
            yield answer(connection, started, 1.0)
            connection.close()
    for _ in held:
        yield Outcome("never", None, time.monotonic() - started)
    close_all(held)


def _alive(connection: socket.socket, piece: bytes) -> bool:
    try:
        if connection.recv(1, 2) is not None:  # 2 is MSG_PEEK: an answer, or the end
            return False
    except BlockingIOError:
        pass
    except OSError:
        return False
    try:
        connection.send(piece)
    except OSError:
        return False
    return True


def trickled_headers(target: Target) -> Steps:
    """Send header bytes one a second on 300 connections."""
    yield None
    yield from _trickle(
        target, 300, b"POST /classify HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"a", 60.0
    )
