"""The asynchronous side: a wire on asyncio's event loop, and a task for each request under way.

Files are read and written on threads.
"""

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from darkroom_client.files import pieces
from darkroom_client.flow import DONE, Flow, Report
from darkroom_client.image_results import results_of
from darkroom_client.images import Groups, Image, Item, Source, item, length, one_or_many
from darkroom_client.records import ImageResult
from darkroom_client.requests import Call, ImageCall
from darkroom_client.settings import Settings, failed, request_options

Images = Iterable[Source] | AsyncIterable[Source]

T = TypeVar("T")


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
        if call.file is None:
            await request.aread()  # a form in one piece: see `SyncWire`
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

    async def call(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return what a function returns that reads or writes files; raises OSError."""
        return await asyncio.to_thread(function, *arguments)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    """Yield a file piece by piece, each read on a thread."""
    with contextlib.closing(pieces(path)) as found:
        while (piece := await asyncio.to_thread(next, found, None)) is not None:
            yield piece


async def groups(images: Images, settings: Settings) -> AsyncGenerator[list[Item], None]:
    """Yield the images of each request; images are taken from the caller only when needed."""
    collected = Groups(settings.images_per_request, settings.bytes_per_request)
    index = 0
    async for image in _each(images):
        given = await asyncio.to_thread(item, index, image) if _reads(image) else item(index, image)
        for group in collected.add(given):
            yield group
        index += 1
    for group in collected.rest():
        yield group


async def results(
    http: httpx.AsyncClient, call: ImageCall, images: Images, settings: Settings
) -> AsyncGenerator[ImageResult, None]:
    """Yield the result of each image, each as it finishes.

    After an error of a whole request the results of those under way are yielded, then the error is
    raised. When the caller stops, requests under way are cancelled.
    """
    _, images = one_or_many(images)
    flow = Flow(call, settings.connections, length(images))
    reports: asyncio.Queue[Report] = asyncio.Queue()
    tasks: set[asyncio.Task[None]] = set()

    async def converse(one: ImageCall, group: list[Item]) -> None:
        conversation = results_of(AsyncWire(http), one, group, settings.retries)
        try:
            async with aclosing(conversation) as found:
                async for result in found:
                    reports.put_nowait(result)
        except Exception as error:  # `Flow` raises it again in the task of the caller
            reports.put_nowait(error)
        finally:
            reports.put_nowait(DONE)

    try:
        async with aclosing(groups(images, settings)) as waiting:
            while True:
                may_start = reports.empty() and flow.may_start()
                group = await anext(waiting, None) if may_start else None
                if group is not None:
                    task = asyncio.create_task(converse(flow.start(), group))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                elif reports.empty() and flow.ended():
                    return
                elif (result := flow.take(await reports.get())) is not None:
                    yield result
    finally:
        await _cancel([*tasks])


async def _cancel(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _each(images: Images) -> AsyncIterator[Source]:
    if isinstance(images, AsyncIterable):
        async for image in images:
            yield image
    else:
        for image in images:
            yield image


def _reads(image: Source) -> bool:
    """Return whether making an item of an image reads a file."""
    return hasattr(image.content if isinstance(image, Image) else image, "read")
