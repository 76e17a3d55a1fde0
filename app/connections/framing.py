"""What httptools lets pass although RFC 9112 does not, or although two servers may read it twice.

httptools refuses by itself: Content-Length beside Transfer-Encoding, more than one Content-Length,
folded lines, bare line feeds, spaces before colons, unknown methods and bad chunk sizes.
"""

import re
import urllib.parse
from ipaddress import AddressValueError, IPv6Address

import httptools

from models.domain.errors import MalformedRequest

VERSIONS = ("1.1", "1.0")

_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|[\w.~%!$&'()*+,;=-]*)(?::\d{0,5})?", re.ASCII)
"""RFC 3986, section 3.2.2: a name or address, and a port."""

MORE_PIECES = 65536
"""Chunks of a body beyond one for every `PIECE` bytes: what is smaller costs more to parse than
to send."""

PIECE = 64

FRAMING = 16
"""Bytes that a chunk may have beside its data: its size in hexadecimal and line ends."""


def check_host(value: bytes) -> None:
    """Raise MalformedRequest where the value of a Host header is no host."""
    found = _HOST.fullmatch(value)
    if found is None:
        raise MalformedRequest("the Host header is not a host name or address, with a port or not")
    if found[1] is not None:
        try:
            IPv6Address(found[1].decode())
        except AddressValueError as error:
            raise MalformedRequest(f"the Host header is not an IPv6 address: {error}") from None


def check_head(version: str, hosts: int, coding: bytes | None) -> None:
    """Raise MalformedRequest for another HTTP, a Host header too many or few, a strange coding."""
    if version not in VERSIONS:
        raise MalformedRequest(f"HTTP/{version} is not spoken here; use HTTP/1.1")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise MalformedRequest(f"the request has {hosts} Host headers; HTTP/1.1 asks for one")
    if coding is None:
        return
    if version == "1.0":
        raise MalformedRequest("HTTP/1.0 has no Transfer-Encoding; use Content-Length or HTTP/1.1")
    if coding.strip().lower() != b"chunked":
        raise MalformedRequest("of all transfer codings only chunked is understood here")


def target(url: bytes) -> tuple[str, bytes, bytes]:
    """Return path, raw path and query; of an http or https URL as well, as proxies send it."""
    parsed = httptools.parse_url(url)
    if parsed.schema not in (None, b"http", b"https"):
        raise MalformedRequest("the target of the request is neither a path nor an http URL")
    raw: bytes = parsed.path or b"/"
    path = raw.decode("ascii")
    return urllib.parse.unquote(path) if "%" in path else path, raw, parsed.query or b""


def check_chunks(n_bytes: int, pieces: int, framing: int, most: int) -> None:
    """Raise MalformedRequest for a body of tiny chunks, or one that is extensions and trailers.

    `framing` counts the bytes that are no data; `most` of them may be extensions and trailers.
    """
    if pieces > MORE_PIECES + n_bytes // PIECE:
        raise MalformedRequest(
            f"the body comes in {pieces} chunks for {n_bytes} bytes; send larger chunks"
        )
    if framing > most + FRAMING * pieces:
        raise MalformedRequest(
            f"chunk extensions and trailers have more than {most} bytes; leave them out"
        )
