"""Load over HTTP/1.1 for programs that measure a server on this machine, in closed and open loops.

A request and its answer cost this process about 40 µs of CPU, because it shares the cores with
what it measures: a request is bytes that were made before, and of an answer only what is needed is
read. A `source` is the address that a client connects from, so that one machine can be several
clients: all of 127.0.0.0/8 is the machine itself.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BOUNDARY = "darkroom-bench"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def raw_post(path: str, body: bytes, content_type: str = "image/jpeg", more: str = "") -> bytes:
    """Return the bytes of one request; `more` is further header lines, each with its line end."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n{more}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def multipart(jpegs: Sequence[bytes]) -> bytes:
    """Return a form with these files."""
    parts = [
        b'--%s\r\nContent-Disposition: form-data; name="files"; filename="%d.jpg"\r\n'
        b"Content-Type: image/jpeg\r\n\r\n%s\r\n" % (BOUNDARY.encode(), number, jpeg)
        for number, jpeg in enumerate(jpegs)
    ]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def forms(path: str, jpegs: Sequence[bytes], each: int = 16) -> list[bytes]:
    """Return requests with forms of `each` images; images beyond the last form are left out."""
    starts = range(0, len(jpegs) - each + 1, each)
    return [raw_post(path, multipart(jpegs[n : n + each]), FORM) for n in starts]


@dataclass(frozen=True, slots=True)
class Reply:
    """Status (0: no answer), seconds it took, seconds of `Retry-After`, moment it came."""

    status: int
    seconds: float
    retry_after: int | None
    at: float


class Connection(asyncio.Protocol):
    """One connection that asks one request at a time; `usable` until either end closes it."""

    def __init__(self) -> None:
        self.usable = True
        self._data = bytearray()
        self._answered: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self, message: bytes) -> bytes:
        """Send a request and return the head of its answer; ConnectionError if there is none."""
        self._data.clear()
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        """Look whether the answer is complete."""
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or self._answered is None or self._answered.done():
            return
        head = bytes(self._data[:end])
        length = _header(head, b"content-length")
        if (
            self._data.endswith(b"0\r\n\r\n")
            if length is None
            else (len(self._data) >= end + 4 + int(length))
        ):
            if _header(head, b"connection") == b"close":
                self.close()
            self._answered.set_result(head)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Fail the request that waits for an answer."""
        self.usable = False
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        self.usable = False
        self._transport.close()


def _header(head: bytes, name: bytes) -> bytes | None:
    """Return the value of a header of an answer, None if it is not there."""
    lowered = head.lower()
    start = lowered.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    return lowered[start + len(name) + 3 :].split(b"\r\n", 1)[0].strip()


class Connections:
    """Keep-alive connections of one client, opened when none is free."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._port = port
        self._source = source
        self._free: list[Connection] = []

    async def ask(self, message: bytes) -> Reply:
        """Send one request; a broken connection is status 0."""
        start = time.monotonic()
        try:
            connection = await self._connection()
            try:
                head = await connection.ask(message)
            except BaseException:
                connection.close()
                raise
        except OSError:
            return Reply(0, time.monotonic() - start, None, time.monotonic())
        if connection.usable:
            self._free.append(connection)
        now, text = time.monotonic(), _header(head, b"retry-after")
        return Reply(int(head[9:12]), now - start, int(text) if text else None, now)

    def close(self) -> None:
        """Close every connection that is free."""
        for each in self._free:
            each.close()
        self._free.clear()

    async def _connection(self) -> Connection:
        while self._free:
            if (found := self._free.pop()).usable:
                return found
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            Connection, "127.0.0.1", self._port, local_addr=(self._source, 0)
        )
        return made


async def closed_loop(
    connections: Connections, requests: Sequence[bytes], concurrency: int, seconds: float
) -> list[Reply]:
    """Return the answers to requests in turn, `concurrency` of them under way all the time."""
    end, turns, found = time.monotonic() + seconds, iter(range(1 << 60)), list[Reply]()

    async def client() -> None:
        while time.monotonic() < end:
            found.append(await connections.ask(requests[next(turns) % len(requests)]))

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return found


async def open_loop(
    connections: Connections,
    requests: Sequence[bytes],
    rate: float,
    seconds: float,
    meanwhile: Callable[[], None] = lambda: None,
    seed: int = 1,
) -> list[Reply]:
    """Send requests in turn as a Poisson process, whatever the server does; return all answers.

    Every half second it calls `meanwhile`.
    """
    chance, tasks = random.Random(seed), list[asyncio.Task[Reply]]()
    start = due = look = time.monotonic()
    while due < start + seconds:
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
        request = requests[(seed + len(tasks)) % len(requests)]
        tasks.append(asyncio.create_task(connections.ask(request)))
        due += chance.expovariate(rate)
        if time.monotonic() > look + 0.5:
            look = time.monotonic()
            meanwhile()
    return list(await asyncio.gather(*tasks))


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return a percentile of values in any order, in milliseconds; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3, 2)


@dataclass(frozen=True, slots=True)
class Report:
    """What a closed loop saw; latencies in milliseconds."""

    requests: int
    failures: int
    per_second: float
    p50_ms: float
    p99_ms: float
    generator_cpu_share: float


def run(port: int, requests: Sequence[bytes], concurrency: int, seconds: float) -> Report:
    """Send `requests` round-robin over `concurrency` connections for `seconds`."""
    cpu, wall = time.process_time(), time.perf_counter()
    replies = asyncio.run(closed_loop(Connections(port), requests, concurrency, seconds))
    wall = time.perf_counter() - wall
    latencies = [each.seconds for each in replies]
    return Report(
        requests=len(replies),
        failures=sum(each.status != 200 for each in replies),
        per_second=round(len(replies) / wall, 1),
        p50_ms=percentile(latencies, 0.5) or 0.0,
        p99_ms=percentile(latencies, 0.99) or 0.0,
        generator_cpu_share=round((time.process_time() - cpu) / wall, 3),
    )
