"""A thousand clients with slow work, who ask again a second after each refusal.

Old effect: 44 to 46 % of accepted requests died at their deadline, because admission counted but
never compared the wait with the deadline; `Retry-After: 1` while seconds of work were waiting.
Promise: under 1 % of accepted requests die, and goodput stays near the capacity.
"""

import asyncio
import errno
import re
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import ask, post
from tests.pictures import jpeg

CLIENTS = 1000
LASTING = 45.0
_PAUSE = 1.0
_PATIENCE = 40.0
_RETRY = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)
SLOW = "/filter?name=median&size=31"


def slow_request(seed: int = 1, more: str = "") -> bytes:
    """Return a request with an ordinary photo and a filter that takes a fraction of a second."""
    return post(SLOW, jpeg(seed, 1600, 1200), "image/jpeg", more)


def capacity(target: Target, request: bytes, seconds: float = 6.0) -> float:
    """Return the answers per second that four clients get from an idle server."""
    end = time.monotonic() + seconds

    def client() -> int:
        count = 0
        while time.monotonic() < end:
            count += ask(target, request).status == 200
        return count

    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        done = sum(each.result() for each in [pool.submit(client) for _ in range(4)])
    return done / (time.monotonic() - started)


@dataclass(slots=True)
class Tally:
    """What all clients saw; latencies in seconds."""

    statuses: dict[str, int] = field(default_factory=dict)
    refusals: list[float] = field(default_factory=list)
    retry_after: list[float] = field(default_factory=list)
    slowest: float = 0.0
    largest_error: int = 0

    def add(self, status: str, seconds: float, head: bytes, size: int) -> None:
        """Count one answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.slowest = max(self.slowest, seconds)
        if status in ("503", "429"):
            self.refusals.append(seconds)
            if match := _RETRY.search(head):
                self.retry_after.append(float(match[1]))
        if status != "200":
            self.largest_error = max(self.largest_error, size)

    def percentile(self, share: float) -> float:
        """Return the seconds within which that share of refusals came."""
        found = sorted(self.refusals)
        return found[int(share * (len(found) - 1))] if found else 0.0


class _Exchange:
    """One request and its answer until the server closes, with little work for the client.

    Clients share the cores with the server, so what they take is missing there. An asyncio
    transport took twice the CPU time of these calls, at 20 times the capacity 0.1 cores in all.
    `ended` gets a result when the server closes or resets the connection. Raises OSError.
    """

    def __init__(self, target: Target, request: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = memoryview(request)
        self.pieces: list[bytes] = []
        self.ended = self._loop.create_future()
        self._socket = socket.socket()
        self._socket.setblocking(False)
        try:
            if target.source != "127.0.0.1":
                self._socket.bind((target.source, 0))
            error = self._socket.connect_ex(("127.0.0.1", target.port))
            if error not in (0, errno.EINPROGRESS):
                raise OSError(error, "no connection")
        except OSError:
            self._socket.close()
            raise
        self._loop.add_writer(self._socket.fileno(), self._send)
        self._loop.add_reader(self._socket.fileno(), self._receive)

    def _send(self) -> None:
        try:
            self._left = self._left[self._socket.send(self._left) :]
        except BlockingIOError:
            return
        except OSError:  # refused, or reset; the answer may still be there
            self._left = self._left[:0]
        if not self._left:
            self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        try:
            piece = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if piece:
            self.pieces.append(piece)
        elif not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Close the connection, also if the request was not sent wholly."""
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()


async def one(target: Target, request: bytes, tally: Tally) -> str:
    """Send one request on its own connection; note its status, or how it failed."""
    started = time.monotonic()
    head, body = b"", b""
    try:
        exchange = _Exchange(target, request)
        try:
            async with asyncio.timeout(_PATIENCE):
                await exchange.ended
        finally:
            exchange.close()
        head, found, body = b"".join(exchange.pieces).partition(b"\r\n\r\n")
        status = head.split(None, 2)[1].decode() if found else "reset"
    except TimeoutError:
        status = "never"
    except OSError:
        status = "reset"
    tally.add(status, time.monotonic() - started, head + b"\r\n", len(body))
    return status


def findings(tally: Tally, seconds: float, full: float) -> Steps:
    """Yield what overload promises: deaths, goodput, refusals."""
    good = tally.statuses.get("200", 0)
    refused = tally.statuses.get("503", 0) + tally.statuses.get("429", 0)
    accepted = sum(tally.statuses.values()) - refused
    for status, count in sorted(tally.statuses.items()):
        yield Finding(f"status_{status}", count)
    yield Finding("accepted_that_died_share", (accepted - good) / max(1, accepted), most=0.01)
    yield Finding("capacity_per_s", full)
    yield Finding("goodput_per_s", good / seconds)
    yield Finding("refused_p50_s", tally.percentile(0.5))
    yield Finding("refused_p99_s", tally.percentile(0.99))
    median = statistics.median(tally.retry_after) if tally.retry_after else 0.0
    yield Finding("retry_after_median_s", median)
    yield Finding("retry_after_most_s", max(tally.retry_after, default=0.0))
    yield Outcome("answered", None, tally.slowest, tally.largest_error)


def impatient(target: Target) -> Steps:
    """Ask for slow work from a thousand clients, again a second after each refusal."""
    request = slow_request()
    full = capacity(target, request)
    yield None
    tally = Tally()
    started = time.monotonic()
    end = started + LASTING

    async def client(number: int) -> None:
        await asyncio.sleep(number / CLIENTS)
        while time.monotonic() < end:
            if await one(target, request, tally) != "200":
                await asyncio.sleep(_PAUSE)

    async def crowd() -> None:
        await asyncio.gather(*(client(n) for n in range(CLIENTS)))

    asyncio.run(crowd())
    yield from findings(tally, time.monotonic() - started, full)
