"""Requests whose framing is in doubt.

Each goes over a connection of its own, followed by a second request. Promise: an answer below 500
or the end of the connection, and behind a message whose end is in doubt nothing is answered, so
that two servers in a row cannot disagree about where a request ends (request smuggling).
"""

import time

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import connect

_NEXT = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_PATIENCE = 20.0


def _head(*lines: str, start: str = "POST /classify HTTP/1.1") -> bytes:
    return "\r\n".join([start, "Host: localhost", *lines, "", ""]).encode("latin-1")


_IMAGE = "Content-Type: image/jpeg"
_CHUNKED = "Transfer-Encoding: chunked"
_END = b"0\r\n\r\n"

DOUBTFUL: dict[str, bytes] = {
    "te_and_cl": _head(_IMAGE, "Content-Length: 5", _CHUNKED) + _END,
    "cl_and_te": _head(_IMAGE, _CHUNKED, "Content-Length: 5") + _END,
    "te_twice": _head(_IMAGE, _CHUNKED, "Transfer-Encoding: identity") + _END,
    "te_chunked_twice": _head(_IMAGE, "Transfer-Encoding: chunked, chunked") + _END,
    "te_not_last": _head(_IMAGE, "Transfer-Encoding: chunked, gzip") + _END,
    "te_unknown": _head(_IMAGE, "Transfer-Encoding: xchunked") + _END,
    "te_tab": _head(_IMAGE, "Transfer-Encoding:\x0bchunked") + _END,
    "te_space_before_colon": _head(_IMAGE, "Transfer-Encoding : chunked") + _END,
    "te_quoted": _head(_IMAGE, 'Transfer-Encoding: "chunked"') + _END,
    "te_in_1_0": _head(_IMAGE, _CHUNKED, start="POST /classify HTTP/1.0") + _END,
    "cl_twice": _head(_IMAGE, "Content-Length: 0", "Content-Length: 5"),
    "cl_list": _head(_IMAGE, "Content-Length: 0, 5"),
    "cl_plus": _head(_IMAGE, "Content-Length: +0"),
    "cl_minus": _head(_IMAGE, "Content-Length: -1"),
    "cl_hexadecimal": _head(_IMAGE, "Content-Length: 0x0"),
    "cl_huge": _head(_IMAGE, "Content-Length: 99999999999999999999999"),
    "cl_wraps": _head(_IMAGE, "Content-Length: 18446744073709551616"),
    "cl_words": _head(_IMAGE, "Content-Length: 0 0"),
    "cl_folded": _head(_IMAGE, "Content-Length:", " 5"),
    "chunk_minus": _head(_IMAGE, _CHUNKED) + b"-1\r\n\r\n" + _END,
    "chunk_0x": _head(_IMAGE, _CHUNKED) + b"0x0\r\n\r\n",
    "chunk_wraps": _head(_IMAGE, _CHUNKED) + b"10000000000000000\r\n\r\n" + _END,
    "chunk_no_end": _head(_IMAGE, _CHUNKED) + b"1\r\nab" + _END,
    "chunk_spaces": _head(_IMAGE, _CHUNKED) + b" 0\r\n\r\n",
    "header_nul": _head(_IMAGE, "X-A: a\0b", "Content-Length: 0"),
    "header_no_name": _head(_IMAGE, ": a", "Content-Length: 0"),
    "header_no_colon": _head(_IMAGE, "Content-Length", "Content-Length: 0"),
    "header_carriage_return": _head(_IMAGE, "X-A: a\rContent-Length: 5", "Content-Length: 0"),
    "upgrade_with_body": _head(_IMAGE, "Connection: upgrade", "Upgrade: h2c", "Content-Length: 5"),
    "http_2_preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http_0_9": b"GET /livez\r\n",
    "http_9_9": _head(start="GET /livez HTTP/9.9"),
    "connect": _head(start="CONNECT 127.0.0.1:22 HTTP/1.1"),
    "tls_hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(508),
}
"""Messages whose end servers could see at different places, or that are no HTTP/1.1 at all."""


def odd_framing(target: Target) -> Steps:
    """Send messages whose end is in doubt, each with a second request behind it."""
    yield None
    smuggled = []
    for name, message in DOUBTFUL.items():
        found, statuses = _both(target, message + _NEXT)
        yield found
        if 404 in statuses:
            smuggled.append(name)
            yield Finding(f"{name}_smuggled", 1, most=0)
    yield Finding("smuggled", len(smuggled), most=0)


def _both(target: Target, message: bytes) -> tuple[Outcome, list[int]]:
    """Return the first answer, and the statuses of all answers until the end."""
    started = time.monotonic()
    data, end = bytearray(), "closed"
    with connect(target) as connection:
        connection.settimeout(_PATIENCE)
        try:
            connection.sendall(message)
            while piece := connection.recv(1 << 16):
                data += piece
        except TimeoutError:
            end = "never"
        except OSError:
            end = "reset"
    words = [line.split() for line in bytes(data).split(b"\r\n") if line.startswith(b"HTTP/1.")]
    statuses = [int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()]
    seconds = time.monotonic() - started
    kept = "answered" if statuses and end != "never" else end
    return Outcome(kept, statuses[0] if statuses else None, seconds, len(data)), statuses
