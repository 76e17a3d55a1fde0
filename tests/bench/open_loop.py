"""An open-loop HTTP/1.1 load generator: requests leave at a fixed mean rate, whatever the server
does, so a slow moment is paid by every request that falls into it. Talks to 127.0.0.1 only.

Arrivals are a Poisson process, made by several processes of equal parts, each with connections of
its own. A request's time runs from when it left, or, if no connection was free, from when it should
have left; the event loop's own lateness (about a millisecond) only moves the arrival.
"""

import asyncio
import gc
import multiprocessing
import random
import resource
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvloop

from tests.bench.wrk import read_requests

PROCESSES = 4
CONNECTIONS = 64
"""In each process, opened before the first request."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw; `waited` requests found no free connection when they should have left."""

    asked_per_second: float
    answered_per_second: float
    requests: int
    errors: int
    waited: int
    p50_ms: float
    p99_ms: float
    generator_cores: float


class _Connection(asyncio.Protocol):
    """One request at a time; the answer's status, or 0 if the connection broke."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[int] | None = None
        self._bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> "asyncio.Future[int]":
        self._bytes = b""
        self._answer = asyncio.get_running_loop().create_future()
        if self.transport.is_closing():
            self._answer.set_result(0)
        else:
            self.transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        head, end, body = self._bytes.partition(b"\r\n\r\n")
        if not end or self._answer is None or self._answer.done():
            return
        _, _, length = head.lower().partition(b"content-length:")
        if len(body) >= int(length.partition(b"\r\n")[0]):
            failed = b'"status":"error"' in body
            self._answer.set_result(0 if failed else int(head[9:12]))

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(0)


def run(port: int, requests: Path, rate: float, seconds: float) -> Report:
    """Send a number of requests per second for a number of seconds."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES) as pool:
        work = [(port, str(requests), rate / PROCESSES, seconds, n) for n in range(PROCESSES)]
        parts = pool.starmap(_part, work)
    latencies = sorted(latency for part in parts for latency in part[0])
    span = max(part[4] for part in parts)
    return Report(
        asked_per_second=round(rate, 1),
        answered_per_second=round(len(latencies) / span, 1),
        requests=len(latencies),
        errors=sum(part[1] for part in parts),
        waited=sum(part[2] for part in parts),
        p50_ms=round(latencies[len(latencies) // 2] * 1e3, 2),
        p99_ms=round(latencies[len(latencies) * 99 // 100] * 1e3, 2),
        generator_cores=round(sum(part[3] for part in parts), 2),
    )


_Saw = tuple[list[float], int, int, float, float]
"""Latencies, errors, how many waited, cores used and seconds taken."""


def _part(port: int, requests: str, rate: float, seconds: float, number: int) -> _Saw:
    """Run the share of one process."""
    return uvloop.run(_drive(port, read_requests(Path(requests)), rate, seconds, number))


class _Pool:
    """Connections, free ones first come first served, and what their requests took."""

    def __init__(self, connections: Sequence[_Connection]) -> None:
        self._free, self._returned = deque(connections), asyncio.Event()
        self.latencies: list[float] = []
        self.errors = self.waited = 0

    async def take(self, due: float) -> tuple[_Connection, float]:
        """Wait for a free connection; return it with the time that its request counts from."""
        since = time.perf_counter()
        if not self._free:
            since, self.waited = due, self.waited + 1
        while not self._free:
            self._returned.clear()
            await self._returned.wait()
        return self._free.popleft(), since

    async def one(self, connection: _Connection, request: bytes, since: float) -> None:
        """Send a request, wait for its answer and note its latency."""
        status = await connection.send(request)
        self.latencies.append(time.perf_counter() - since)
        self.errors += status != 200
        self._free.append(connection)
        self._returned.set()


async def _drive(
    port: int, requests: Sequence[bytes], rate: float, seconds: float, number: int
) -> _Saw:
    connect = asyncio.get_running_loop().create_connection
    opened = [(await connect(_Connection, "127.0.0.1", port))[1] for _ in range(CONNECTIONS)]
    pool, chance = _Pool(opened), random.Random(number)
    gc.disable()
    turn, tasks = number * len(requests) // PROCESSES, set[asyncio.Task[None]]()
    cpu, start = _cpu_seconds(), time.perf_counter()
    due = start + chance.expovariate(rate)
    while due < start + seconds:
        if (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        connection, since = await pool.take(due)
        turn += 1
        tasks.add(asyncio.create_task(pool.one(connection, requests[turn % len(requests)], since)))
        due += chance.expovariate(rate)
    await asyncio.gather(*tasks)
    span = time.perf_counter() - start
    cores = (_cpu_seconds() - cpu) / span
    for connection in opened:
        connection.transport.close()
    return pool.latencies, pool.errors, pool.waited, cores, span


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
