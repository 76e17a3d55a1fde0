"""Connections that are opened and say nothing, or nothing more.

Old effect: no limit and no timeout; at 1,024 descriptors new clients were reset without a log
line. Promise: idle connections end after 60 s at most, and while they are held neighbours and
`/livez` are answered on new connections.
"""

import socket
import time
from collections import Counter

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import close_all, connect

_IDLE_MOST = 60.0


def _idle(target: Target, count: int, start: bytes = b"") -> Steps:
    """Open them, hold them, and see for how long the last one is left open."""
    started = time.monotonic()
    held = []
    ends: Counter[str] = Counter()
    for _ in range(count):
        try:
            connection = connect(target, 5.0)
            if start:
                connection.sendall(start)
            connection.setblocking(False)
            held.append(connection)
        except OSError as error:
            ends[type(error).__name__] += 1
    opened = len(held)
    last = time.monotonic()
    while held and time.monotonic() - last < _IDLE_MOST + 8:
        held = [each for each in held if _open(each)]
        time.sleep(0.5)
    yield Finding("opened", opened)
    yield Finding("not_opened", sum(ends.values()))
    yield Finding("still_open_after_68_s", len(held), most=0)
    end = "never" if held else "closed"
    yield Outcome(end, None, time.monotonic() - last)
    yield Finding("seconds_in_all", time.monotonic() - started)
    close_all(held)


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
    yield from _idle(target, 1100)
