"""A closed-loop HTTP/1.1 load generator on raw sockets: cheap enough to share two cores with what
it measures (its own CPU seconds are reported). Talks to 127.0.0.1 only.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw; latencies in milliseconds."""

    requests: int
    failures: int
    per_second: float
    p50_ms: float
    p99_ms: float
    generator_cpu_share: float


def raw_post(path: str, body: bytes, content_type: str) -> bytes:
    """Return the bytes of one request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def run(port: int, requests: Sequence[bytes], concurrency: int, seconds: float) -> Report:
    """Send `requests` round-robin over `concurrency` connections for `seconds`."""
    return asyncio.run(_run(port, requests, concurrency, seconds))


async def _run(port: int, requests: Sequence[bytes], concurrency: int, seconds: float) -> Report:
    latencies: list[float] = []
    failures = 0
    end = time.perf_counter() + seconds
    turn = iter(range(1 << 60))

    async def client() -> None:
        nonlocal failures
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            start = time.perf_counter()
            writer.write(requests[next(turn) % len(requests)])
            status = await _read_response(reader)
            latencies.append(time.perf_counter() - start)
            failures += status != 200
        writer.close()
        await writer.wait_closed()

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu
    cuts = statistics.quantiles(latencies, n=100)
    return Report(
        requests=len(latencies),
        failures=failures,
        per_second=round(len(latencies) / wall, 1),
        p50_ms=round(cuts[49] * 1e3, 2),
        p99_ms=round(cuts[98] * 1e3, 2),
        generator_cpu_share=round(cpu / wall, 3),
    )


async def send(port: int, requests: Sequence[bytes], concurrency: int, count: int) -> int:
    """Send `count` requests round-robin; how many were not answered with 200."""
    turns = iter(range(count))
    failures = 0

    async def client() -> None:
        nonlocal failures
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in turns:
            writer.write(requests[turn % len(requests)])
            status = await _read_response(reader)
            failures += status != 200
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return failures


async def _read_response(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = next(
        int(line[15:])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    await reader.readexactly(length)
    return status
