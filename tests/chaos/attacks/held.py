"""Requests that a server holds until the attack lets go, counted by the clients and by a gauge."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import answer, connect

_METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_SETTLED_WITHIN = 40.0
"""Seconds within which each request is refused or counted, also on a busy machine."""


class Held:
    """Requests that are held by the server; `each` is what one of them adds to the gauge."""

    def __init__(self, target: Target, limit: str, each: int) -> None:
        self._target, self._limit, self._each = target, limit, each
        self._silent: list[socket.socket] = []
        self._refused: list[Outcome] = []
        self._started = time.monotonic()
        self._settled = True
        self._most = 0

    def fill(self, request: bytes, count: int) -> None:
        """Send `count` at once, then one after the other until none is taken any more.

        Two front ends that want the last place in the same microsecond may both be refused: those
        that come one after the other take it.
        """
        for _ in range(count):
            self._send(request)
        self._settle()
        refused = -1
        while refused != len(self._refused) or refused == 0:
            refused = len(self._refused)
            before = len(self._silent)
            self._send(request)
            self._settle()
            if len(self._silent) == before:
                break

    def findings(self, name: str, limit: int) -> Steps:
        """Yield what is held now, by the clients' count and by the gauge; both must equal the
        limit.
        """
        yield Finding(f"{name}_held", len(self._silent), most=limit, least=limit)
        yield Finding(f"{name}_at_most_by_gauge", self._most / self._each, most=limit, least=limit)
        yield Finding(f"{name}_undecided", not self._settled, most=0)
        unlike = sum(o.status not in (429, 503) for o in self._refused)
        yield Finding(f"{name}_refused_otherwise", unlike, most=0)
        yield from self._refused

    def send(self, piece: bytes) -> None:
        """Send more on every connection that is held."""
        for each in self._silent:
            with suppress(OSError):
                each.sendall(piece)

    def answered(self, statuses: set[int], patience: float) -> Steps:
        """Read the answers of what was held: none of it may be lost."""
        outcomes = [answer(each, self._started, patience) for each in self._silent]
        lost = sum(o.status not in statuses for o in outcomes)
        yield from (o for o in outcomes if o.status not in statuses)
        yield Finding(f"{self._limit}_not_answered", lost, most=0)
        self._wait(lambda: _gauge(self._target, self._limit) == 0)
        yield Finding(f"{self._limit}_afterwards", _gauge(self._target, self._limit), most=0)

    def close(self) -> None:
        """Close all connections."""
        for each in self._silent:
            each.close()

    def _send(self, request: bytes) -> None:
        connection = connect(self._target)
        with suppress(OSError):  # refused before all of it was sent
            connection.sendall(request)
        self._silent.append(connection)

    def _settle(self) -> None:
        """Wait until each request is refused or counted by the gauge."""
        self._settled = self._wait(lambda: self._look() == len(self._silent) * self._each)

    def _look(self) -> int:
        """Read the gauge, after the refused connections have been sorted out."""
        found = _gauge(self._target, self._limit)
        self._most = max(self._most, found)
        for each in _readable(self._silent):
            self._silent.remove(each)
            with each:
                self._refused.append(answer(each, time.monotonic(), 30.0))
        return found

    def _wait(self, ready: Callable[[], bool]) -> bool:
        end = time.monotonic() + _SETTLED_WITHIN
        while time.monotonic() < end:
            if ready():
                return True
            time.sleep(0.05)
        return False


def _readable(connections: Sequence[socket.socket]) -> list[socket.socket]:
    """Return the connections that have an answer or have ended."""
    found = []
    for each in connections:
        each.setblocking(False)
        try:
            each.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        except OSError:
            pass
        found.append(each)
    return found


def _gauge(target: Target, limit: str) -> int:
    """Return what all front ends state that they hold of a limit."""
    with connect(replace(target, source="127.0.0.1")) as connection:
        connection.sendall(_METRICS)
        text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    word = f'darkroom_in_use{{limit="{limit}"}} '
    return int(float(next(line for line in text.splitlines() if line.startswith(word)).split()[-1]))
