"""Raise the limit of file descriptors, and keep one in reserve for when none is left."""

import logging
import os
import socket
from contextlib import suppress

try:
    import resource
except ImportError:  # pragma: no cover (Windows has no such limit)
    resource = None  # type: ignore[assignment]  # the name of a module

log = logging.getLogger("darkroom.connections")

WITHOUT_LIMIT = 1 << 20
"""Descriptors that are assumed where the operating system states no limit."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return the limit that holds now."""
    if resource is None:
        return WITHOUT_LIMIT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the kernel's own limit may be lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return WITHOUT_LIMIT if soft == resource.RLIM_INFINITY else soft


class Spare:
    """One open descriptor that is closed in order to answer a client when no other one is left."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._fill()

    def accept(self, listening: socket.socket) -> socket.socket | None:
        """Accept one connection in place of the spare descriptor; return None if that fails."""
        self.close()
        try:
            return listening.accept()[0]
        except OSError:
            self._fill()
            return None

    def refill(self) -> None:
        """Open the spare descriptor again after that connection has been closed."""
        if self._fd is None:
            self._fill()

    def close(self) -> None:
        """Close the spare descriptor."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _fill(self) -> None:
        with suppress(
            OSError
        ):  # another thread took the descriptor first; the next refill tries again
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
