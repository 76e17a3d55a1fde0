"""Connections that ask for other protocols, wait, pipeline, or send a body in the dearest pieces.

Promise: an answer below 500 or the end of the connection, in time, and neighbours are spared.
"""

import gzip
import json
import socket
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import quote

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import answer, ask, ask_all, close_all, connect
from tests.pictures import jpeg

_HOST = "Host: a\r\n"
_JSON = b'{"images": [{"data": "data:image/png;base64,' + b"A" * 200_000 + b'"}]}'


def expecting_bodies(target: Target) -> Steps:
    """Ask 900 times for `100 Continue` before bodies that never come."""
    head = (
        f"POST /classify HTTP/1.1\r\n{_HOST}Content-Type: image/jpeg\r\n"
        "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
    ).encode()
    yield None
    started, held = time.monotonic(), []
    for _ in range(900):
        with suppress(OSError):
            connection = connect(target)
            connection.sendall(head)
            held.append(connection)
    for connection in held:
        yield answer(connection, started, 60.0)
    close_all(held)


def _pipeline(target: Target, requests: bytes, count: int) -> tuple[Outcome, int]:
    """Send all requests at once, read everything; return the end and the number of answers."""
    started = time.monotonic()
    answers, end = 0, "closed"
    with connect(target) as connection, ThreadPoolExecutor(1) as pool:
        connection.settimeout(30.0)
        sending = pool.submit(_sent, connection, requests)
        tail = b""
        try:
            while answers < count and (piece := connection.recv(1 << 16)):
                data = tail + piece
                answers += data.count(b"HTTP/1.1 ")
                tail = data[-8:]
        except TimeoutError:
            end = "never"
        except OSError:
            end = "reset"
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        sending.result()
    return Outcome(end, None, time.monotonic() - started), answers


def _sent(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


def pipelined_mix(target: Target) -> Steps:
    """Pipeline 600 requests of all kinds on each of 20 connections, and read every answer."""
    photo = jpeg(1, 64, 48)
    image = f"Content-Type: image/jpeg\r\nContent-Length: {len(photo)}\r\n\r\n".encode()
    kinds = (
        f"GET /livez HTTP/1.1\r\n{_HOST}\r\n".encode(),
        f"HEAD / HTTP/1.1\r\n{_HOST}\r\n".encode(),
        f"GET /metrics HTTP/1.1\r\n{_HOST}\r\n".encode(),
        f"POST /classify HTTP/1.1\r\n{_HOST}".encode() + image + photo,
        f"POST /nowhere HTTP/1.1\r\n{_HOST}".encode() + image + photo,
        f"OPTIONS * HTTP/1.1\r\n{_HOST}\r\n".encode(),
    )
    requests = b"".join(kinds) * 100
    yield None
    with ThreadPoolExecutor(20) as pool:
        for outcome, answers in pool.map(lambda _: _pipeline(target, requests, 600), range(20)):
            yield outcome
            yield Finding("answers_of_600", answers)


def other_protocols(target: Target) -> Steps:
    """Speak WebSocket, HTTP/2, TLS, SOCKS, SSH, Redis and PROXY on 40 connections each."""
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    upgrade = f"GET / HTTP/1.1\r\n{_HOST}Connection: Upgrade\r\n"
    settings = "HTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    starts = (
        f"{upgrade}Upgrade: websocket\r\n{key}\r\n".encode() + b"\x81\x85aaaahello" * 1000,
        f"{upgrade}Upgrade: h2c\r\n{settings}\r\n".encode() + b"\0\0\0\4\0\0\0\0\0" * 1000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" * 10_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100_000),
        b"\x05\x01\x00",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12),
        b"EHLO a\r\nMAIL FROM:<a@a>\r\n",
        b"\x00" * 100_000,
        b"\xff" * 100_000,
    )
    yield None
    for start in starts:
        yield from ask_all(target, [start] * 40, 70.0)


def _chunked(path: str, kind: str, chunks: Sequence[bytes]) -> bytes:
    head = f"POST {path} HTTP/1.1\r\n{_HOST}Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + b"".join(chunks)


def dear_chunks(target: Target) -> Steps:
    """Send images, forms and JSON in chunks of a byte, with extensions, trailers and zeros."""
    form = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    bodies = (
        ("image/jpeg", jpeg(1)),
        ("multipart/form-data; boundary=b", form + jpeg(1) + b"\r\n--b--\r\n"),
        ("application/json", _JSON),
    )
    requests = []
    for kind, body in bodies:
        bytes_ = [body[n : n + 1] for n in range(len(body))]
        end = b"0\r\n\r\n"
        spellings = (
            [b"1\r\n%b\r\n" % each for each in bytes_],
            [b"1;a=%b\r\n%b\r\n" % (b"b" * 60, each) for each in bytes_],
            [b"0" * 12 + b"1\r\n%b\r\n" % each for each in bytes_],
            [b"%x;%b\r\n%b\r\n" % (len(body), b"e" * 60_000, body)],
            [b"%x\r\n%b\r\n0\r\n" % (len(body), body) + b"T: t\r\n" * 90],
            [b"%x\r\n%b\r\n0\r\n" % (len(body), body) + b"Content-Length: 5\r\nHost: b\r\n"],
        )
        requests += [_chunked("/classify", kind, [*chunks, end]) for chunks in spellings]
    yield None
    yield from ask_all(target, requests, 60.0, 4.0)


def coded_bodies(target: Target) -> Steps:
    """Send bodies in gzip, deflate and more codings, of which each megabyte is a kilobyte."""
    bomb = gzip.compress(bytes(100_000_000))
    twice = gzip.compress(gzip.compress(bytes(1_000_000_000)[:200_000_000]))
    flat = zlib.compress(bytes(100_000_000))
    yield None
    for coding, body in (
        ("gzip", bomb),
        ("x-gzip", bomb),
        ("gzip, gzip", twice),
        ("deflate", flat),
        ("br", bomb),
        ("zstd", bomb),
        ("identity", jpeg(1)),
        ("gzip" + ", gzip" * 5000, bomb),
        ("", jpeg(1)),
        ("\xe2\x82\xac", bomb),
    ):
        for kind in ("image/jpeg", "application/json", "multipart/form-data; boundary=b"):
            head = (
                f"POST /classify HTTP/1.1\r\n{_HOST}Content-Type: {kind}\r\n"
                f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            yield ask(target, head.encode("latin-1") + body, 30.0)


_LISTS = (
    "If-None-Match: " + ",".join(f'"{n}"' for n in range(7000)),
    "If-None-Match: " + "W/" * 25_000,
    "Accept: " + ",".join(f"a{n}/b;q=0.{n % 1000}" for n in range(4000)),
    "Accept: " + ",".join(f"image/*;q=0.{n % 10};a=b" for n in range(2500)),
    "Accept: " + ";" * 60_000,
    "Accept: " + "," * 60_000,
    "Accept: image/png" + ",image/png;q=0.5" * 99,
    "Accept: application/openmetrics-text" + "; version=1.0.0" * 3500,
    "Accept-Language: " + "a-b;q=0.1," * 5500,
    "Range: bytes=" + ",".join(f"{n}-{n}" for n in range(5000)),
    "Cookie: " + "; ".join(f"a{n}=b" for n in range(6000)),
    "Origin: " + "a" * 60_000,
    "Access-Control-Request-Headers: " + "a," * 29_000,
    "X-Request-Id: " + "a" * 60_000,
    "X-Request-Id: \xff\xfe\x01\x7f",
    "Traceparent: 00-" + "a" * 60_000,
    "Tracestate: " + "a=b," * 14_000,
    "Baggage: " + "a=b," * 14_000,
    "If-Modified-Since: " + "9" * 60_000,
    "\xe2\x82\xac: a",
    "X\xff: a",
    "X-A: \x01\x02\x7f\x80",
)


def list_floods(target: Target) -> Steps:
    """Send headers of thousands of members to every page, from 8 connections for 3 s each."""
    photo = jpeg(2)
    paths = ("/", "/docs", "/openapi.json", "/filters", "/models", "/metrics", "/readyz?verbose")
    versions = quote(json.dumps([{"ops": [{"name": "invert"}]}] * 63))
    requests = []
    for each in _LISTS:
        for path in paths:
            head = f"GET {path} HTTP/1.1\r\n{_HOST}{each}\r\nConnection: close\r\n\r\n"
            requests.append(head.encode("latin-1"))
        for path in ("/classify", "/filter?name=invert", f"/process?versions={versions}"):
            head = (
                f"POST {path} HTTP/1.1\r\n{_HOST}{each}\r\nContent-Type: image/jpeg\r\n"
                f"Content-Length: {len(photo)}\r\nConnection: close\r\n\r\n"
            )
            requests.append(head.encode("latin-1") + photo)
    yield None
    for start in range(0, len(requests), 24):
        yield from ask_all(target, requests[start : start + 24], 30.0, 1.0)
