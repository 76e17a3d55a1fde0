"""One connection to a server, over TCP, TLS or a Unix socket, with the standard library alone."""

import http.client
import socket
import ssl
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from app.bulk.errors import WrongUsage

UNIX = "unix:"
"""The beginning of the address of a Unix socket; its path follows."""


class _UnixConnection(http.client.HTTPConnection):
    """Connection to the Unix socket at `path`."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect; http.client calls this."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection(url: str, timeout: float, *, verified: bool = True) -> http.client.HTTPConnection:
    """Return a connection that opens with its first request, and never goes to a proxy.

    `timeout` bounds each wait in seconds. Unless `verified`, any certificate is accepted. Raises
    WrongUsage if `url` is none.
    """
    if url.startswith(UNIX):
        return _UnixConnection(url.removeprefix(UNIX), timeout)
    parts, port = _parts(url)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout)
    context = ssl.create_default_context() if verified else ssl._create_unverified_context()  # noqa: S323
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def path_of(url: str) -> str:
    """Return the path of a server's URL, below which its endpoints are, without a slash at the end.

    Raises WrongUsage if `url` is none.
    """
    return "" if url.startswith(UNIX) else _parts(url)[0].path.rstrip("/")


def _parts(url: str) -> tuple[SplitResult, int | None]:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and parts.scheme in ("http", "https"):
            return parts, parts.port
    raise WrongUsage(f"{url} is no URL; write http://host:port or https://host:port")
