"""A wire on asyncio's event loop; files are read on threads."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from darkroom_client.files import pieces, stored, whole
from darkroom_client.images import Item, read
from darkroom_client.records import ImageResult
from darkroom_client.requests import Call
from darkroom_client.settings import failed, request_options


class AsyncAnswer:
    """The answer of `httpx.AsyncClient`."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes; raises ConnectionFailed if it breaks off."""
        try:
            async for piece in self._response.aiter_bytes():
                yield piece
        except httpx.RequestError as error:
            raise failed(error) from error


class AsyncWire:
    """Send requests by `httpx.AsyncClient`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    @asynccontextmanager
    async def send(self, call: Call, seconds: float | None) -> AsyncIterator[AsyncAnswer]:
        """Send a request and wait for the headers of its answer; see `Wire`."""
        request = self._http.build_request(
            **request_options(call, seconds), content=_pieces(call.file) if call.file else None
        )
        try:
            response = await self._http.send(request, stream=True)
        except httpx.RequestError as error:
            raise failed(error) from error
        try:
            yield AsyncAnswer(response)
        finally:
            await response.aclose()

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def load(self, each: Item) -> bytes:
        """Return the content of an image; raises OSError."""
        if each.path is None:
            return each.content or b""
        return await asyncio.to_thread(read, each.path)

    async def store(self, result: ImageResult, folder: Path) -> ImageResult:
        """Write the images of a result to files, and return it with their paths; raises OSError."""
        return await asyncio.to_thread(stored, result, folder)

    async def save(self, path: Path, pieces: AsyncIterator[bytes]) -> None:
        """Write a file piece by piece, whole or not at all; raises OSError."""
        with whole(path) as file:
            async for piece in pieces:
                await asyncio.to_thread(file.write, piece)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    """Yield a file piece by piece, each read on a thread."""
    with contextlib.closing(pieces(path)) as found:
        while (piece := await asyncio.to_thread(next, found, None)) is not None:
            yield piece
