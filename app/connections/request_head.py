"""Check one request as it arrives: the limits of its headers, its lines and its chunks.

The framing is checked beyond what httptools checks: requests that RFC 9112 forbids, or that two
servers in a row could read differently (request smuggling), are refused. httptools itself refuses
Content-Length beside Transfer-Encoding, more than one Content-Length, folded lines, bare line
feeds, spaces before colons, unknown methods and bad chunk sizes.
"""

import re
import urllib.parse
from ipaddress import AddressValueError, IPv6Address

import httptools

from app.connections.limits import ConnectionLimits
from models.domain.errors import HeadersTooLarge, MalformedRequest, UrlTooLong

_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|[\w.~%!$&'()*+,;=-]*)(?::\d{0,5})?", re.ASCII)
"""A name or an address, and a port (RFC 3986, section 3.2.2)."""

_NOTED = frozenset((b"host", b"expect", b"transfer-encoding", b"content-length"))

MOST_DIGITS = 64
"""Digits of a Content-Length, which may begin with zeros: `int` refuses thousands of digits."""

MORE_PIECES = 65536
"""Chunks that a body may have beyond one for every `PIECE` bytes. Smaller chunks cost the server
more CPU time than they cost the client."""

PIECE = 64
"""Bytes of a chunk that is not counted as tiny."""

FRAMING = 16
"""Bytes that a chunk may have besides its data: its size in hexadecimal digits and line ends."""


class Incoming:
    """One message that is arriving; each method raises the error of the limit that is exceeded."""

    __slots__ = (
        *("_coding", "_head_bytes", "_hosts", "_limits", "_lines", "_pieces", "_size"),
        *("body_bytes", "expects", "in_head", "length"),
    )

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._head_bytes = self._lines = self._hosts = self._pieces = self._size = 0
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
        if name in _NOTED and self.in_head:
            self._note(name, value)
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

    def piece(self, size: int) -> None:
        """Count a piece of `size` bytes of the body."""
        self.body_bytes += size
        self._pieces += 1

    def received(self, size: int) -> None:
        """Check the head or the chunks after `size` more bytes, all of this message, have come."""
        self._size += size
        most = self._limits.header_bytes
        if self.in_head:
            if self._size > most:
                raise self._large_head() if self._lines else self._long_url()
        elif self.chunked:
            if self._pieces > MORE_PIECES + self.body_bytes // PIECE:
                raise MalformedRequest(
                    f"the body comes in {self._pieces} chunks for {self.body_bytes} bytes; "
                    "send larger chunks"
                )
            if self._size - self.body_bytes > most + FRAMING * self._pieces:
                raise MalformedRequest(
                    f"chunk extensions and trailers have more than {most} bytes; leave them out"
                )

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
            _check_host(value)
        elif name == b"expect":
            self.expects = value.lower() == b"100-continue"
        elif name == b"content-length":
            if len(value) > MOST_DIGITS:
                raise MalformedRequest(f"Content-Length has more than {MOST_DIGITS} digits")
            self.length = int(value)  # httptools has checked that it is a number
        else:
            self._coding = value if self._coding is None else self._coding + b", " + value

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


def _check_host(value: bytes) -> None:
    """Raise MalformedRequest if the value of a Host header is not a host."""
    found = _HOST.fullmatch(value)
    if found is None:
        raise MalformedRequest("the Host header is not a host name or address, with a port or not")
    if found[1] is not None:
        try:
            IPv6Address(found[1].decode())
        except AddressValueError as error:
            raise MalformedRequest(f"the Host header is not an IPv6 address: {error}") from None
