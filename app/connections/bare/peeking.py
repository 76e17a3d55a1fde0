"""Look at what a client has sent, and leave it where it is."""

import socket

LONGEST_HEAD = 1 << 14
"""Bytes that are looked at under overload; a request whose head is longer goes to the protocol."""

FIRST_LOOK = 1 << 10
"""Bytes of them that are looked at first, because most heads are shorter."""

_PEEK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)


def sent(connection: socket.socket, most: int) -> bytes | None:
    """Return what a client has sent, at most `most` bytes, and leave it in the socket's buffer.

    The result is b"" if the client has left, and None if it is silent.
    """
    try:
        return connection.recv(most, _PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""
