"""Open the listening sockets before anything slow is loaded, so that errors show at once."""

import asyncio
import logging
import socket
from collections.abc import Iterable

from models.settings import Settings

log = logging.getLogger("darkroom.server")

BACKLOG = 16384
"""Connections that the kernel queues until they are accepted; net.core.somaxconn bounds it."""


PAUSE = 0.02
"""Seconds between two looks whether a socket listens."""


def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Listen on every address of `host`; raises OSError with the address that cannot be bound.

    If it is `shared`, other processes of this user may listen at the same port.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if port == 0 and sockets:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            made = socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=shared)
            sockets.append(made)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def bind_metrics(settings: Settings) -> list[socket.socket]:
    """Listen at the port for metrics if the settings have one; the OSError has its address."""
    if not settings.metrics_port:
        return []
    try:
        return bind(settings.metrics_host, settings.metrics_port)
    except OSError as error:
        error.filename = f"{settings.metrics_host}:{settings.metrics_port} (--metrics-port)"
        raise


async def listens(bound: socket.socket) -> None:
    """Wait until another process lets a socket that it shares with this one listen."""
    while not bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):  # noqa: ASYNC110
        await asyncio.sleep(PAUSE)


def announce(settings: Settings, sockets: Iterable[socket.socket]) -> None:
    """Log the URLs of the sockets once connections are accepted there."""
    log.info("listening on %s", " and ".join(url_of(settings, each) for each in sockets))


def url_of(settings: Settings, listening: socket.socket) -> str:
    """Return the URL of a listening socket, such as `http://127.0.0.1:8000`."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
