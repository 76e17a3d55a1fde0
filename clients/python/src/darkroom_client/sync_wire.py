"""A wire that blocks: it drives conversations without an event loop."""

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx

from darkroom_client.files import pieces, stored, whole
from darkroom_client.images import Item, read
from darkroom_client.records import ImageResult
from darkroom_client.requests import Call
from darkroom_client.settings import failed, request_options

T = TypeVar("T")


class Stopped(Exception):
    """The caller no longer wants the results of a conversation."""


def run(awaitable: Awaitable[T]) -> T:
    """Return the result of a conversation, whose wire never suspends it."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a conversation of the synchronous client was suspended")


def iterate(results: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield the results of a conversation, and close it when the caller stops."""
    try:
        while True:
            try:
                result = run(anext(results))
            except StopAsyncIteration:
                return
            yield result
    finally:
        run(results.aclose())


class SyncAnswer:
    """The answer of `httpx.Client`."""

    def __init__(self, response: httpx.Response, stop: threading.Event) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._stop = stop

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes; raises ConnectionFailed if it breaks off, and Stopped."""
        try:
            for piece in self._response.iter_bytes():
                if self._stop.is_set():
                    raise Stopped
                yield piece
        except httpx.RequestError as error:
            raise failed(error) from error


class SyncWire:
    """Send requests by `httpx.Client` until `stop` is set."""

    def __init__(self, http: httpx.Client, stop: threading.Event | None = None) -> None:
        self._http = http
        self._stop = stop or threading.Event()

    @asynccontextmanager
    async def send(self, call: Call, seconds: float | None) -> AsyncIterator[SyncAnswer]:
        """Send a request and wait for the headers of its answer; see `Wire`."""
        if self._stop.is_set():
            raise Stopped
        request = self._http.build_request(
            **request_options(call, seconds), content=pieces(call.file) if call.file else None
        )
        try:
            response = self._http.send(request, stream=True)
        except httpx.RequestError as error:
            raise failed(error) from error
        try:
            yield SyncAnswer(response, self._stop)
        finally:
            response.close()

    async def pause(self, seconds: float) -> None:
        """Wait, or raise Stopped as soon as the caller stops."""
        if self._stop.wait(seconds):
            raise Stopped

    async def load(self, each: Item) -> bytes:
        """Return the content of an image; raises OSError."""
        return read(each.path) if each.path is not None else each.content or b""

    async def store(self, result: ImageResult, folder: Path) -> ImageResult:
        """Write the images of a result to files, and return it with their paths; raises OSError."""
        return stored(result, folder)

    async def save(self, path: Path, pieces: AsyncIterator[bytes]) -> None:
        """Write a file piece by piece, whole or not at all; raises OSError."""
        with whole(path) as file:
            async for piece in pieces:
                file.write(piece)
