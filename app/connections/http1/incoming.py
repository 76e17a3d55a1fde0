"""Count one request as it arrives against the limits of headers, lines and chunks."""

from app.connections.http1.framing import check_chunks, check_head, check_host
from app.connections.limits import ConnectionLimits
from models.domain.errors import HeadersTooLarge, MalformedRequest, UrlTooLong

_NOTED = frozenset((b"host", b"expect", b"transfer-encoding", b"content-length"))

MOST_DIGITS = 64
"""Digits of a Content-Length. httptools takes numbers of 64 bits, with any number of zeros before
them."""


class Incoming:
    """One message that is arriving; each method raises the error of the limit that is exceeded."""

    __slots__ = (
        "_coding",
        "_head_bytes",
        "_hosts",
        "_limits",
        "_lines",
        "_pieces",
        "_size",
        "body_bytes",
        "expects",
        "in_head",
        "length",
        "since",
    )

    def __init__(self, limits: ConnectionLimits, now: float = 0.0) -> None:
        self._limits = limits
        self.since = now
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
        if self.chunked:
            return None
        return (self.length or 0) - self.body_bytes

    def rate(self, now: float, grace: float) -> float | None:
        """Return the bytes of the body per second so far, None in the first `grace` seconds."""
        age = now - self.since
        return None if age <= grace else self.body_bytes / age

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
                f"a request may have {limits.header_lines} header lines "
                "(DARKROOM_MAX_HEADER_LINES); send fewer"
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
        check_head(version, self._hosts, self._coding)
        self._lines = self._head_bytes = 0  # trailers have the same limits as headers

    def piece(self, size: int) -> None:
        """Count a piece of `size` bytes of the body."""
        self.body_bytes += size
        self._pieces += 1

    def received(self, size: int) -> None:
        """Check the head or the chunks after `size` more bytes, all of this message, have come."""
        self._size += size
        limits = self._limits
        if self.in_head:
            if self._size > limits.header_bytes:
                raise self._large_head() if self._lines else self._long_url()
        elif self.chunked:
            framing = self._size - self.body_bytes
            check_chunks(self.body_bytes, self._pieces, framing, limits.header_bytes)

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
            check_host(value)
        elif name == b"expect":
            self.expects = value.lower() == b"100-continue"
        elif name == b"content-length":
            if len(value) > MOST_DIGITS:  # `int` refuses thousands, with an error that is logged
                raise MalformedRequest(f"Content-Length has more than {MOST_DIGITS} digits")
            self.length = int(value)  # httptools has checked that it is a number
        else:
            self._coding = value if self._coding is None else self._coding + b", " + value

    def _long_url(self) -> UrlTooLong:
        return UrlTooLong(
            f"a URL may have {self._limits.url_bytes} bytes (DARKROOM_MAX_URL_BYTES); "
            "send options as form fields or JSON"
        )

    def _large_head(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"the URL and headers of a request may have {self._limits.header_bytes} bytes "
            "(DARKROOM_MAX_HEADER_BYTES); send fewer or shorter ones"
        )
