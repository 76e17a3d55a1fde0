"""Bind sockets, and check TLS, before anything slow is loaded; listen when the server can answer.

Errors of an address show at once, and a client is refused while the server starts: in the queue of
a socket that listened earlier it waited for as long as the start took.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterable

from models.settings import Settings

log = logging.getLogger("darkroom.server")

BACKLOG = 16384
"""Connections that the kernel queues until they are accepted; net.core.somaxconn bounds it."""

PAUSE = 0.02
"""Seconds between two looks whether a socket listens."""


def bind(host: str, port: int, *, family: int = socket.AF_UNSPEC) -> list[socket.socket]:
    """Bind a socket to every address of `host`; raises OSError with the address that is in use."""
    passive = socket.AI_PASSIVE
    found = socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM, flags=passive)
    sockets: list[socket.socket] = []
    try:
        for kind, _, _, _, address in dict.fromkeys(found):
            if port == 0 and sockets:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            sockets.append(made := socket.socket(kind, socket.SOCK_STREAM))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if kind == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                made.bind(address)
            except OSError as error:
                text = f"{error.strerror} (while attempting to bind on address {address!r})"
                raise OSError(error.errno, text) from None
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def bind_metrics(settings: Settings) -> list[socket.socket]:
    """Bind the port for metrics if the settings have one; the OSError has its address."""
    if not settings.metrics_port:
        return []
    try:
        return bind(settings.host, settings.metrics_port)
    except OSError as error:
        error.filename = f"{settings.host}:{settings.metrics_port} (--metrics-port)"
        raise


async def listens(bound: socket.socket) -> None:
    """Wait until another process lets a socket that it shares with this one listen."""
    while not is_listening(bound):  # noqa: ASYNC110
        await asyncio.sleep(PAUSE)


def is_listening(bound: socket.socket) -> bool:
    """Return whether a socket listens already."""
    return bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def announce(settings: Settings, sockets: Iterable[socket.socket]) -> None:
    """Log the URLs of the sockets once connections are accepted there."""
    log.info("listening on %s", " and ".join(url_of(settings, each) for each in sockets))


def url_of(settings: Settings, listening: socket.socket) -> str:
    """Return the URL of a listening socket, such as `http://127.0.0.1:8000`."""
    if listening.family == socket.AF_UNIX:
        return f"unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def check_tls(settings: Settings) -> None:
    """Raise ValueError, which says what to do, if TLS is impossible with these settings."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        if key is not None:
            raise ValueError("--tls-key is given without --tls-certificate; give both, or neither")
        return
    for flag, path in (("--tls-certificate", certificate), ("--tls-key", key)):
        if path is not None and not path.is_file():
            raise ValueError(f"{flag}: there is no file {path}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(
            f"--tls-certificate: {certificate} and its key cannot be used: {error}; "
            "both must be PEM files and belong together"
        ) from None
