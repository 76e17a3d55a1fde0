"""Requests over HTTP/1.1 for programs that load a server: one connection, one request at a time.

Talks to 127.0.0.1 only. `source` is the address that a client connects from, so that one machine
can be several clients: all of 127.0.0.0/8 is the machine itself.
"""

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: path with query, body, and the deadline in milliseconds or None."""

    path: str
    body: bytes
    deadline_ms: int | None = None
    content_type: str = "image/jpeg"

    def head(self) -> bytes:
        """The headers."""
        lines = [
            f"POST {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
        ]
        if self.deadline_ms is not None:
            lines.append(f"X-Deadline-Ms: {self.deadline_ms}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """Status (0: no answer), seconds it took, seconds of `Retry-After`, moment it came."""

    status: int
    seconds: float
    retry_after: int | None
    at: float


class Connections:
    """Keep-alive connections of one client, opened when none is free."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._port = port
        self._source = source
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: Request) -> Reply:
        """Send one request; a broken connection is status 0."""
        start = time.monotonic()
        try:
            reader, writer = self._free.pop() if self._free else await self._open()
            try:
                writer.write(request.head() + request.body)
                status, headers = await _answer(reader)
            except BaseException:
                writer.close()
                raise
            if headers.get("connection") == "close":
                writer.close()
            else:
                self._free.append((reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            return Reply(0, time.monotonic() - start, None, time.monotonic())
        now, text = time.monotonic(), headers.get("retry-after")
        return Reply(status, now - start, int(text) if text else None, now)

    def close(self) -> None:
        """Close every connection that is free."""
        for _, writer in self._free:
            writer.close()
        self._free.clear()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._source, 0))


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if "content-length" in headers:
        await reader.readexactly(int(headers["content-length"]))
    else:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    return int(head[0].split()[1]), headers


def percentile(values: list[float], share: float) -> float | None:
    """Of sorted or unsorted values, in milliseconds; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3, 1)
