"""Sockets that listen, bound before anything slow is loaded."""

import socket

BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on every address that `host` has; OSError says which one cannot be had."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if port == 0 and sockets:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            made = socket.create_server(address, family=family, backlog=BACKLOG)
            sockets.append(made)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
