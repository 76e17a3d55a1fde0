"""What Python does for a refused request, without a kernel: CPU microseconds and allocations.

The protocol of a connection, admission and the early refusal are the real ones; the transport
discards what is written. The server is overloaded as far as its counters say. Nothing waits, so CPU
time says all, also on a machine that is busy with other programs: the least of several rounds is
reported. `socket_us` is what one receive and one send of the same bytes take on a local socket.
Run: python -m tests.bench.refusal_path [--requests 20000] [--profile]
"""

import argparse
import asyncio
import cProfile
import json
import pstats
import socket
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI
from uvicorn.config import Config
from uvicorn.server import ServerState

from app.admission import Admission, Limits
from app.admission.counters import Counters
from app.connections.guard import Guard
from app.connections.http1.protocol import GuardedProtocol
from app.connections.limits import ConnectionLimits
from app.routes import classify, filter, inference, process
from app.routes.images.early_refusal import EarlyRefusal
from app.service import Service
from app.telemetry.metrics import Metrics
from models.settings import Settings
from tests.bench.traffic import Request
from tests.pictures import jpeg

ROUNDS = 9


class Nowhere:
    """A transport that keeps the last thing that was written."""

    def __init__(self) -> None:
        self.last = b""

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.last = data

    def is_closing(self) -> bool:
        """Return False: the connection stays open."""
        return False

    def get_extra_info(self, name: str) -> object:
        """Return the addresses that uvicorn asks a socket for."""
        return ("127.0.0.1", 50000) if name in ("peername", "sockname") else None

    def get_write_buffer_size(self) -> int:
        """Return 0: no byte waits."""
        return 0

    def set_protocol(self, protocol: object) -> None:
        """Do nothing: there is one protocol."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    pause_reading = resume_reading = abort = close


def overloaded() -> EarlyRefusal:
    """Return the decision of a server with more work than any deadline allows."""
    settings = Settings()
    counters = Counters()
    admission = Admission(Limits(512, 1 << 30, 1 << 29), counters)
    admission.account.charge(counters.key("client 127.0.0.9"), 30_000_000, 30)
    admission.account.charge(counters.key("client 127.0.0.1"), 30_000_000, 30)
    app = FastAPI()
    for router in (classify.router, filter.router, process.router, inference.router):
        app.include_router(router)
    service = object.__new__(Service)
    parts = {"settings": settings, "admission": admission, "metrics": Metrics(), "keys": None}
    for name, value in parts.items():
        setattr(service, name, value)
    app.state.service = service
    return EarlyRefusal(app)


def connection(decide: EarlyRefusal) -> tuple[GuardedProtocol, Nowhere]:
    """Return one connection of a server, and where its answers go."""
    settings = Settings()
    limits = ConnectionLimits.of(settings, 1024)
    guard = Guard(limits)
    guard.decide = decide
    config = Config(cast(Any, SimpleNamespace()), access_log=False)
    config.loaded_app = cast(Any, None)
    config.http_protocol_class = GuardedProtocol
    state = ServerState()
    state.default_headers = [(b"date", b"Sun, 22 Nov 2026 12:00:00 GMT"), (b"server", b"darkroom")]
    protocol = GuardedProtocol(config, state, {}, guard)
    transport = Nowhere()
    protocol.connection_made(transport)
    return protocol, transport


def refuse(protocol: GuardedProtocol, pieces: list[bytes], count: int) -> float:
    """Return CPU seconds for `count` requests, each of which comes in these pieces."""
    start = time.process_time()
    for _ in range(count):
        for piece in pieces:
            protocol.data_received(piece)
    return time.process_time() - start


def through_a_socket(message: bytes, answer: bytes, count: int) -> float:
    """Return the CPU seconds of a server's two system calls for `count` requests."""
    here, there = socket.socketpair()
    spent = 0.0
    with here, there:
        for _ in range(count):
            there.send(message)
            start = time.process_time()
            here.recv(1 << 18)
            here.send(answer)
            spent += time.process_time() - start
            there.recv(1 << 16)
    return spent


async def measure(count: int, profile: bool) -> dict[str, object]:
    """Measure requests whose head and body come together."""
    protocol, transport = connection(overloaded())
    request = Request("/filter?name=nl_means", jpeg(1, 120, 90), 3000)
    message = request.head() + request.body
    refuse(protocol, [message], 100)
    if not transport.last.startswith(b"HTTP/1.1 503"):
        raise RuntimeError(f"the request was not refused: {transport.last[:200]!r}")
    each = count // ROUNDS
    best = min(refuse(protocol, [message], each) for _ in range(ROUNDS)) / each
    calls = min(through_a_socket(message, transport.last, each) for _ in range(3)) / each
    if profile:
        profiler = cProfile.Profile()
        profiler.runcall(refuse, protocol, [message], each)
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(35)
    return {
        "requests": count,
        "python_us": round(best * 1e6, 2),
        "socket_us": round(calls * 1e6, 2),
        "answer_bytes": len(transport.last),
    }


def main() -> None:
    """Refuse requests, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.requests, given.profile))))


if __name__ == "__main__":
    main()
