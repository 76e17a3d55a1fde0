"""Name servers for attacks: Python imports this file at its start where its folder is on the path.

Names of the top-level domain `test` (RFC 6761) are resolved here, in the thread that asked and
without the interpreter's lock, as the system's resolver does it. The first word of a name says what
its name server does; all other names go to the system.
"""

import itertools
import socket
import time
from typing import Any

PUBLIC, INTERNAL = "127.0.0.2", "127.0.0.1"
"""What the server may connect to, and what it may not."""

GIVEN_UP = 30.0
"""Seconds after which the system's resolver gives up on silent name servers, if there are three."""

LATE = 29.0
"""Seconds of a name server that answers at last."""

_Found = list[tuple[int, int, int, str, tuple[str, int]]]


def _found(*addresses: str) -> _Found:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in addresses]


MANY = _found(*(f"10.0.{n >> 8}.{n & 255}" for n in range(10_000)))
"""Made before the attack, because the system's resolver makes them in less time."""

_system = socket.getaddrinfo
_turn = itertools.count()


def _addresses(name: str) -> _Found:
    word = name.partition("-")[0]
    if word == "dead":
        time.sleep(GIVEN_UP)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    if word == "failing":
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    if word == "late":
        time.sleep(LATE)
    if word == "many":
        return MANY
    if word == "both":
        return _found(PUBLIC, INTERNAL)
    if word == "rebinding":
        return _found((PUBLIC, INTERNAL)[next(_turn) % 2])
    return _found(PUBLIC)


def getaddrinfo(host: Any, port: Any, *more: Any, **named: Any) -> Any:
    """Resolve names below `test` as this module says, and all others by the system."""
    if not isinstance(host, str) or not host.lower().rstrip(".").endswith(".test"):
        return _system(host, port, *more, **named)
    return _addresses(host.lower())


socket.getaddrinfo = getaddrinfo
