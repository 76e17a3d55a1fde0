"""Limits of connections, of the head of a request, of its framing, and of the rate of its body.

The framing is checked beyond what httptools checks: requests that RFC 9112 forbids, or that two
servers in a row could read differently (request smuggling), are refused. httptools itself refuses
Content-Length beside Transfer-Encoding, more than one Content-Length, folded lines, bare line
feeds, spaces before colons, unknown methods and bad chunk sizes.
"""

import re
import resource
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import httptools

from app.admission.clients import network_of
from app.http.request import STREAM, StreamWindow
from models.domain.errors import MalformedRequest, SlowBody
from models.settings import Network, Settings

WITHOUT_LIMIT = 1 << 20
"""Descriptors that are assumed where the operating system states no limit."""

SPARE_DESCRIPTORS = 256
"""Descriptors that connections never use: for logs, spooled files, fetched URLs and workers."""

LEAST_CONNECTIONS = 16
"""Connections that are allowed even if there are too few descriptors."""

WINDOW = 10.0
"""Seconds of waiting over which the rate of a body is measured; the first check comes at their
end."""

_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d{0,5})?", re.ASCII)
"""A name or an address, and a port (RFC 3986, section 3.2.2)."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections. Sizes are in bytes, times in seconds, rates in bytes per second."""

    header_timeout: float
    idle_timeout: float
    body_timeout: float
    min_rate: int
    connections: int
    per_client: int
    trusted: tuple[Network, ...] = ()
    header_bytes: int = 65536
    """Bytes of a URL and its headers."""
    header_lines: int = 100
    url_bytes: int = 32768

    @classmethod
    def of(cls, settings: Settings, descriptors: int) -> "ConnectionLimits":
        """Return the limits for a process that may open `descriptors` files.

        One client never gets more than three quarters of all connections.
        """
        room = max(LEAST_CONNECTIONS, descriptors - SPARE_DESCRIPTORS)
        connections = min(settings.max_connections, room)
        return cls(
            settings.header_timeout,
            settings.idle_timeout,
            settings.body_timeout,
            settings.min_body_rate,
            connections,
            min(settings.max_connections_per_client, max(1, connections * 3 // 4)),
            settings.trusted_proxies,
        )

    def client(self, host: str) -> str | None:
        """Return the client of the connections from `host`, as requests are counted.

        Return None for a trusted proxy, whose connections carry requests of many clients, and for a
        Unix socket.
        """
        client = network_of(host)
        try:
            address = ip_address(client if "/" not in client else host.partition("%")[0])
        except ValueError:  # a Unix socket
            return None
        return None if any(address in network for network in self.trusted) else client


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the kernel's own limit may be lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return WITHOUT_LIMIT if soft == resource.RLIM_INFINITY else soft


def framing(headers: list[tuple[bytes, bytes]], version: str) -> tuple[int | None, bool]:
    """Return the bytes of a body, None if it comes in chunks, and whether to send 100 Continue.

    Raises MalformedRequest for a wrong version, Host or Transfer-Encoding.
    """
    length: int | None = 0
    hosts, expects, codings = 0, False, list[bytes]()
    for name, value in headers:
        if name == b"host":
            hosts += 1
            if not _HOST.fullmatch(value):
                raise MalformedRequest("the Host header is no host name or address with its port")
        elif name == b"expect":
            expects = value.lower() == b"100-continue"
        elif name == b"content-length":
            length = int(value.lstrip(b"0") or b"0")  # a number, as httptools has checked
        elif name == b"transfer-encoding":
            codings.append(value)
    if version not in ("1.1", "1.0"):
        raise MalformedRequest(f"HTTP/{version} is not supported; use HTTP/1.1")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise MalformedRequest(f"the request has {hosts} Host headers; HTTP/1.1 asks for one")
    if codings:
        length = None
        if version == "1.0":
            raise MalformedRequest(
                "HTTP/1.0 has no Transfer-Encoding; use Content-Length or HTTP/1.1"
            )
        if b", ".join(codings).strip().lower() != b"chunked":
            raise MalformedRequest("the only supported transfer coding is chunked")
    return length, expects


def target(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path, the raw path and the query of a request's target.

    The target is a path, or an http or https URL as clients send it to proxies. Raises
    MalformedRequest.
    """
    parsed = httptools.parse_url(url)
    if parsed.schema not in (None, b"http", b"https"):
        raise MalformedRequest("the target of the request is neither a path nor an http URL")
    raw = parsed.path or b"/"
    path = raw.decode("ascii")
    return urllib.parse.unquote(path) if "%" in path else path, raw, parsed.query or b""


class BodyRate:
    """Measures the body of one request; `scope` is its ASGI scope.

    Only time in which the application waits for the client counts: a slow application does not make
    the client fail. A stream (see STREAM) may pause while it waits for answers, and needs the rate
    only inside an image.
    """

    __slots__ = ("_bytes", "_scope", "_since", "_waited")

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope
        self._since: float | None = None
        """When the application began to wait for the next piece."""
        self._bytes, self._waited = 0, 0.0
        """Bytes that came in the present window, and the seconds of waiting before this wait."""

    def wait(self, now: float) -> None:
        """Note that the application waits for a piece."""
        self._since = now

    def piece(self, size: int, now: float) -> None:
        """Note that a piece of `size` bytes has come, for which the application may have waited."""
        if self._since is not None:
            self._waited += now - self._since
            self._since = None
        self._bytes += size

    def late(self, now: float, seconds: float, rate: int) -> SlowBody | None:
        """Return the error of a body that comes too slowly now, else None.

        A piece may take `seconds`, and in 10 s of waiting `rate` bytes per second must come; then
        the next 10 s begin.
        """
        if self._since is None:
            return None
        stream: StreamWindow | None = self._scope.get(STREAM)
        if stream is not None and stream.in_flight:
            self._since = now
            return None
        if now - self._since >= seconds:
            return SlowBody(f"no body data for {seconds:g} seconds; send it again")
        waited = self._waited + now - self._since
        if waited < WINDOW:
            return None
        if self._bytes < rate * waited and (stream is None or stream.inside_item):
            return SlowBody(
                f"{self._bytes} bytes of the body came in {waited:.0f} seconds; at least "
                f"{rate} per second are expected; send it again"
            )
        self._bytes, self._waited = 0, self._since - now  # this wait counts from now on
        return None
