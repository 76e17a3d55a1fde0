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
from models.domain.errors import HeadersTooLarge, MalformedRequest, SlowBody, UrlTooLong
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


class Incoming:
    """A message that is arriving; each method raises the error of the limit that is exceeded."""

    __slots__ = (
        *("_coding", "_head_bytes", "_hosts", "_limits", "_lines", "_size"),
        *("body_bytes", "expects", "in_head", "length"),
    )

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._head_bytes = self._lines = self._hosts = self._size = 0
        self._coding: bytes | None = None
        self.length: int | None = None
        """Bytes of the body if the head states them, else None."""
        self.body_bytes = 0
        self.expects = False
        """Whether the client waits for `100 Continue` before it sends the body."""
        self.in_head = True

    @property
    def chunked(self) -> bool:
        """Return whether the body is sent in chunks."""
        return self._coding is not None

    @property
    def unread(self) -> int | None:
        """Bytes of the body that have not arrived, None if that is unknown."""
        return None if self.chunked else (self.length or 0) - self.body_bytes

    def url(self, piece: bytes) -> None:
        """Count a piece of the request's target; raises UrlTooLong."""
        self._head_bytes += len(piece)
        if self._head_bytes > self._limits.url_bytes:
            raise self._long_url()

    def header(self, name: bytes, value: bytes) -> bytes:
        """Count a header or a trailer; return its name in lower case. Raises HeadersTooLarge."""
        self._lines += 1
        self._head_bytes += len(name) + len(value) + 4
        limits = self._limits
        if self._lines > limits.header_lines:
            raise HeadersTooLarge(
                f"a request may have {limits.header_lines} header lines; send fewer"
            )
        if self._head_bytes > limits.header_bytes:
            raise self._large_head()
        name = name.lower()
        if not self.in_head:
            return name
        if name == b"host":
            self._hosts += 1
            if not _HOST.fullmatch(value):
                raise MalformedRequest("the Host header is no host name or address with its port")
        elif name == b"expect":
            self.expects = value.lower() == b"100-continue"
        elif name == b"content-length":
            self.length = int(value.lstrip(b"0") or b"0")  # a number, as httptools has checked
        elif name == b"transfer-encoding":
            self._coding = value if self._coding is None else self._coding + b", " + value
        return name

    def complete(self, version: str) -> None:
        """Check the complete head; raises MalformedRequest."""
        self.in_head = False
        self._lines = self._head_bytes = 0  # trailers have the same limits as headers
        if version not in ("1.1", "1.0"):
            raise MalformedRequest(f"HTTP/{version} is not supported; use HTTP/1.1")
        if self._hosts > 1 or (self._hosts == 0 and version == "1.1"):
            raise MalformedRequest(
                f"the request has {self._hosts} Host headers; HTTP/1.1 asks for one"
            )
        if self._coding is None:
            return
        if version == "1.0":
            raise MalformedRequest(
                "HTTP/1.0 has no Transfer-Encoding; use Content-Length or HTTP/1.1"
            )
        if self._coding.strip().lower() != b"chunked":
            raise MalformedRequest("the only supported transfer coding is chunked")

    def received(self, size: int) -> None:
        """Check the head or the chunks after `size` more bytes of this message have come.

        The bytes that came with the first byte of the message are not counted here.

        The frames of chunks, their extensions and trailers may take twice as many bytes as the
        body, and the bytes of a head: tiny chunks cost the server more than they cost the client.
        """
        self._size += size
        most = self._limits.header_bytes
        if self.in_head:
            if self._size > most:
                raise self._large_head() if self._lines else self._long_url()
        elif self.chunked and self._size > 3 * self.body_bytes + most:
            raise MalformedRequest(
                f"the body of {self.body_bytes} bytes came in {self._size} bytes; send larger "
                "chunks, without extensions and trailers"
            )

    def _long_url(self) -> UrlTooLong:
        return UrlTooLong(
            f"a URL may have {self._limits.url_bytes} bytes; send options as form fields or JSON"
        )

    def _large_head(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"the URL and headers of a request may have {self._limits.header_bytes} bytes; send "
            "fewer or shorter headers"
        )


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

    __slots__ = ("_bytes", "_counted", "_scope", "_since", "_waited")

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope
        self._since: float | None = None
        """When the application began to wait for the next piece."""
        self._counted = self._waited = 0.0
        """Until when the present wait is counted, and the seconds that were waited before."""
        self._bytes = 0

    def wait(self, now: float) -> None:
        """Note that the application waits for a piece."""
        self._since = self._counted = now

    def piece(self, size: int, now: float) -> None:
        """Note that the application has a piece of `size` bytes, for which it may have waited."""
        if self._since is not None:
            self._waited += now - self._counted
            self._since = None
        self._bytes += size

    def late(self, now: float, seconds: float, rate: int) -> SlowBody | None:
        """Return the error of a body that comes too slowly now, else None.

        A piece may take `seconds`, and in 10 s of waiting `rate` bytes per second must come.
        """
        if self._since is None:
            return None
        stream: StreamWindow | None = self._scope.get(STREAM)
        if now - self._since >= seconds:
            if stream is None or not stream.in_flight:
                return SlowBody(f"no body data for {seconds:g} seconds; send it again")
            self._since = now
        waited = self._waited + now - self._counted
        if waited < WINDOW:
            return None
        due = stream is None or (stream.inside_item and not stream.in_flight)
        if due and self._bytes < rate * waited:
            return SlowBody(
                f"{self._bytes} bytes of the body came in {waited:.0f} seconds; at least "
                f"{rate} per second are expected; send it again"
            )
        self._bytes, self._waited, self._counted = 0, 0.0, now
        return None
