"""Clients that abuse TLS: handshakes without end, keys that change all the time, odd starts.

Old effect: 7 MB of requests for new keys held the event loop for four seconds, and every further
megabyte for another half. Promise: connections whose handshake does not end are closed after 10 s,
and good clients, who speak TLS too, are answered beside all of them.
"""

import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.chaos.attacks.tls_records import Records, opened
from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import (
    answer,
    ask_all,
    close_all,
    connect,
    connect_plain,
    post,
    until_closed,
)
from tests.pictures import jpeg

_LASTING = 6.0
_CONNECTIONS = 64
_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER by which close() sends a reset


def _hello(name: str = "localhost", protocols: Sequence[str] = ()) -> bytes:
    """Return the first message of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def tls_handshakes(target: Target) -> Steps:
    """Begin 900 handshakes that stop in the first message, behind it, or come a byte a second."""
    hello = _hello()
    starts = [hello[:100], hello, hello[:1]] * 300
    yield None
    started = time.monotonic()
    held = []
    for start in starts:
        held.append(connect_plain(target, 5.0))
        held[-1].sendall(start)
    for sent in range(1, 20):
        for trickling in held[2::3]:
            with suppress(OSError):
                trickling.send(hello[sent : sent + 1])
        time.sleep(1.0)
    for connection in held:
        yield until_closed(connection, started, 40.0)
    close_all(held)


def _flooded(target: Target, made: Callable[[Records], bytes]) -> Steps:
    """Send what is made for each of some connections, all at once, and again while it lasts."""

    def prepared() -> list[tuple[socket.socket, bytes]]:
        connections = [connect_plain(target) for _ in range(_CONNECTIONS)]
        return [(each, made(opened(each))) for each in connections]

    def flood(connection: socket.socket, data: bytes) -> Outcome:
        started = time.monotonic()
        with connection:
            return answer(connection, started, 30.0, data)

    waves = [prepared()]
    yield None
    end = time.monotonic() + _LASTING
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        while waves:
            yield from pool.map(lambda each: flood(*each), waves.pop())
            if time.monotonic() < end:
                waves.append(prepared())


def tls_key_updates(target: Target) -> Steps:
    """Ask 4,000 times for new keys on each of 64 connections at once, and again for 6 s."""
    yield from _flooded(target, lambda own: b"".join(own.key_update(True) for _ in range(4000)))


def tls_small_records(target: Target) -> Steps:
    """Send a photo in records of one byte on each of 64 connections at once, and again for 6 s."""
    request = post("/classify", jpeg(1, 64, 48), "image/jpeg")

    def made(own: Records) -> bytes:
        return b"".join(own.record(request[n : n + 1]) for n in range(len(request)))

    yield from _flooded(target, made)


def tls_aborted(target: Target) -> Steps:
    """Shake hands 2,000 times and leave with a reset, or in the middle of a request or answer."""
    request = post("/classify", jpeg(1, 640, 480), "image/jpeg")
    sent = (b"", request[: len(request) // 2], request, _LIVEZ)
    yield None
    started = time.monotonic()

    def leave(number: int) -> bool:
        try:
            with connect(target) as connection:
                connection.sendall(sent[number % len(sent)])
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        left = sum(pool.map(leave, range(2000)))
    yield Finding("opened", left)
    yield Finding("seconds_in_all", time.monotonic() - started)


def tls_sessions(target: Target) -> Steps:
    """Shake hands 2,000 times, each with the session of the one before, by 1.2 and 1.3."""
    yield None
    started = time.monotonic()

    def resumed(version: ssl.TLSVersion) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        if version is ssl.TLSVersion.TLSv1_2:
            context.options |= ssl.OP_NO_TICKET
        session, found = None, 0
        for _ in range(100):
            plain = connect_plain(target)
            with suppress(OSError), context.wrap_socket(plain, session=session) as connection:
                connection.sendall(_LIVEZ)
                found += b" 200 " in connection.recv(1 << 16)
                session = connection.session
        return found

    with ThreadPoolExecutor(20) as pool:
        versions = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3] * 10
        answered = sum(pool.map(resumed, versions))
    yield Finding("answered_of_2000", answered, least=1900)
    yield Finding("seconds_in_all", time.monotonic() - started)


def tls_odd_starts(target: Target) -> Steps:
    """Begin with HTTP, HTTP/2, old TLS, odd names and protocols, and noise, 40 times each."""
    hello = _hello()
    old = b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(35)
    starts = (
        _LIVEZ,
        post("/classify", jpeg(1), "image/jpeg"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" * 1000,
        old,
        hello[:1] + b"\x03\x00" + hello[3:],
        b"\x16\x03\x01\xff\xff" + bytes(65_535),
        b"\x16\x03\x01\x00\x00" * 10_000,
        b"\x14\x03\x03\x00\x01\x01" * 10_000,
        hello + b"\x14\x03\x03\x00\x01\x01" * 10_000,
        hello + b"\x15\x03\x03\x00\x02\x01\x5a" * 10_000,
        hello + hello * 100,
        hello + b"\x17\x03\x03\x40\x00" + bytes(16_384),
        _hello("a." * 120 + "a"),
        _hello(protocols=["h2", "h3", "spdy/1"]),
        _hello(protocols=["a" * 255] * 200),
        bytes(100_000),
        b"\xff" * 100_000,
    )
    yield None
    plain = Target(target.port, target.pid, target.source)
    for start in starts:
        yield from ask_all(plain, [start] * 40, 20.0)
