"""Check the framing of requests beyond what httptools checks.

These requests are forbidden by RFC 9112, or two servers in a row could read them differently
(request smuggling). httptools itself refuses Content-Length beside Transfer-Encoding, more than one
Content-Length, folded lines, bare line feeds, spaces before colons, unknown methods and bad chunk
sizes.
"""

import re
import urllib.parse
from ipaddress import AddressValueError, IPv6Address

import httptools

from models.domain.errors import MalformedRequest, UrlTooLong

VERSIONS = ("1.1", "1.0")

_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|[\w.~%!$&'()*+,;=-]*)(?::\d{0,5})?", re.ASCII)
"""A name or an address, and a port (RFC 3986, section 3.2.2)."""

MORE_PIECES = 65536
"""Chunks that a body may have beyond one for every `PIECE` bytes. Smaller chunks cost the server
more CPU time than they cost the client."""

PIECE = 64
"""Bytes of a chunk that is not counted as tiny."""

FRAMING = 16
"""Bytes that a chunk may have besides its data: its size in hexadecimal digits and line ends."""


LONGEST_PATH = 2048
"""Bytes of a path, more than any path of this server has. To decode 30 kB of `%41` took 1.2 ms in
the turn of the event loop in which it came, beside that of every other connection."""

MOST_FIELDS = 256
"""Fields of a query, twice as many as a request may have options. To read 4,000 took 2.2 ms."""


def check_host(value: bytes) -> None:
    """Raise MalformedRequest if the value of a Host header is not a host."""
    found = _HOST.fullmatch(value)
    if found is None:
        raise MalformedRequest("the Host header is not a host name or address, with a port or not")
    if found[1] is not None:
        try:
            IPv6Address(found[1].decode())
        except AddressValueError as error:
            raise MalformedRequest(f"the Host header is not an IPv6 address: {error}") from None


def check_head(version: str, hosts: int, coding: bytes | None) -> None:
    """Raise MalformedRequest for a wrong version, number of Host headers, or transfer coding."""
    if version not in VERSIONS:
        raise MalformedRequest(f"HTTP/{version} is not supported; use HTTP/1.1")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise MalformedRequest(f"the request has {hosts} Host headers; HTTP/1.1 asks for one")
    if coding is None:
        return
    if version == "1.0":
        raise MalformedRequest("HTTP/1.0 has no Transfer-Encoding; use Content-Length or HTTP/1.1")
    if coding.strip().lower() != b"chunked":
        raise MalformedRequest("the only supported transfer coding is chunked")


def target(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path, the raw path and the query of a request's target.

    The target is a path, or an http or https URL as clients send it to proxies. Raises
    MalformedRequest, and UrlTooLong for a long path or a query of many fields.
    """
    parsed = httptools.parse_url(url)
    if parsed.schema not in (None, b"http", b"https"):
        raise MalformedRequest("the target of the request is neither a path nor an http URL")
    raw, query = parsed.path or b"/", parsed.query or b""
    if len(raw) > LONGEST_PATH:
        raise UrlTooLong(f"a path may have {LONGEST_PATH} bytes; GET / shows which ones there are")
    if query.count(b"&") >= MOST_FIELDS:
        raise UrlTooLong(f"a query may have {MOST_FIELDS} fields; send fewer")
    path = raw.decode("ascii")
    return urllib.parse.unquote(path) if "%" in path else path, raw, query


def check_chunks(n_bytes: int, pieces: int, framing: int, most: int) -> None:
    """Raise MalformedRequest for a body of many tiny chunks, or of long extensions and trailers.

    `framing` is the number of bytes that are not data; extensions and trailers may have `most`.
    """
    if pieces > MORE_PIECES + n_bytes // PIECE:
        raise MalformedRequest(
            f"the body comes in {pieces} chunks for {n_bytes} bytes; send larger chunks"
        )
    if framing > most + FRAMING * pieces:
        raise MalformedRequest(
            f"chunk extensions and trailers have more than {most} bytes; leave them out"
        )
