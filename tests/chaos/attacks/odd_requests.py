"""Requests that no library sends: odd targets, framing, lengths, versions and header floods.

Each goes over a connection of its own, followed by a second request. Promise: an answer below 500
or the end of the connection, and behind a message whose end is in doubt nothing is answered, so
that two servers in a row cannot disagree about where a request ends (request smuggling).
"""

import time

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import ask, connect
from tests.pictures import jpeg

_NEXT = b"GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
_PATIENCE = 20.0


def _head(*lines: str, start: str = "POST /classify HTTP/1.1") -> bytes:
    return "\r\n".join([start, "Host: a", *lines, "", ""]).encode("latin-1")


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

_GET = " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
_TARGETS = (
    "http://127.0.0.1/livez",
    "http://other.example:99999999/livez",
    "http://[::1/livez",
    "http:///livez",
    "//livez",
    "*",
    "/%00",
    "/livez%00",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/..;/livez",
    "/%ff%fe",
    "/%",
    "/livez?" + "a=b&" * 7000,
    "/livez?%00=%00",
    "/livez#fragment",
    "/filters/%00/thumbnail",
    "/filters/..%2f..%2fetc%2fpasswd/thumbnail",
    "/filters/" + "a" * 30_000 + "/thumbnail",
    "/models?%ff",
    "/openapi.json/../livez",
    "/\xe2\x82\xac",
)
_FLOODS = (
    "Range: bytes=" + "0-1," * 12_000 + "0-1",
    "If-None-Match: " + '"a",' * 12_000 + '"a"',
    "If-Range: " + "a" * 60_000,
    "Accept: " + "image/a;q=0.1," * 4000 + "*/*",
    "Accept: " + "*/*;" * 14_000 + "q=1",
    "Accept: " + "a/b;q=0." + "0" * 50_000,
    "Accept-Encoding: " + "gzip;q=0.1, " * 4500,
    "Content-Type: " + "image/jpeg; a=b" * 3500,
    "Content-Type: multipart/form-data; " + "a=b; " * 11_000 + "boundary=b",
    'Content-Type: multipart/form-data; boundary="' + "\\" * 50_000,
    "Content-Type: multipart/form-data; " + 'boundary="' * 5000,
    "Cookie: " + "a=b; " * 12_000,
    "X-Forwarded-For: " + "127.0.0.1, " * 5500,
    "Forwarded: " + "for=1;" * 10_000,
    "Authorization: Bearer " + "a" * 60_000,
    "X-Deadline-Ms: " + "9" * 60_000,
    "Connection: " + "close, " * 9000,
    "Expect: " + "100-continue, " * 4000,
    "\r\n".join(f"Accept: a{n}/b;q=0.{n}" for n in range(95)),
    "\r\n".join("If-None-Match: " + '"a",' * 150 for _ in range(95)),
    "\r\n".join("Range: bytes=" + "0-," * 200 for _ in range(90)),
)


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


def odd_targets(target: Target) -> Steps:
    """Ask for targets that no client needs: absolute, with NUL, with dots, not ASCII, long."""
    yield None
    for each in _TARGETS:
        for method in ("GET", "POST", "OPTIONS", "HEAD"):
            head = f"{method} {each}{_GET}Content-Length: 0\r\n\r\n"
            yield ask(target, head.encode("latin-1"), _PATIENCE)


def header_floods(target: Target) -> Steps:
    """Send 60 KB of ranges, tags, media types, parameters, cookies and addresses in one header."""
    photo = jpeg(2)
    yield None
    for each in _FLOODS:
        for path in ("/classify", "/filter?name=invert"):
            length = f"Content-Length: {len(photo)}\r\nConnection: close\r\n\r\n"
            head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{each}\r\n{length}"
            if "Content-Type" not in each:
                head = head.replace("\r\n", f"\r\n{_IMAGE}\r\n", 1)
            yield ask(target, head.encode("latin-1") + photo, _PATIENCE)
        yield ask(target, f"GET /{_GET}{each}\r\n\r\n".encode("latin-1"), _PATIENCE)


def pipelined_images(target: Target) -> Steps:
    """Send 10,000 small requests for labels on one connection and read no answer."""
    request = _head(_IMAGE, "Content-Length: 9") + b"no images"
    yield None
    started, taken, end = time.monotonic(), 0, "closed"
    with connect(target) as connection:
        connection.settimeout(5.0)
        try:
            for _ in range(100):
                connection.sendall(request * 100)
                taken += 100
        except OSError:
            pass
        time.sleep(15)
        connection.settimeout(70.0)
        try:
            while connection.recv(1 << 16):
                pass
        except TimeoutError:
            end = "never"
        except OSError:
            pass
    yield Outcome(end, None, time.monotonic() - started)
    yield Finding("requests_sent", taken)


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
