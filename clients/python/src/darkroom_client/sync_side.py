"""The synchronous side: a wire that blocks, and a thread for each request that is under way."""

import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

import httpx

from darkroom_client.files import pieces
from darkroom_client.flow import DONE, Flow, Report
from darkroom_client.image_results import results_of
from darkroom_client.images import Groups, Item, Source, item, length, one_or_many
from darkroom_client.records import ImageResult
from darkroom_client.requests import Call, ImageCall
from darkroom_client.settings import Settings, failed, request_options

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
        if call.file is None:
            request.read()  # a form in one piece: the pieces of httpx cost CPU time on both sides
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

    async def call(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return what a function returns that reads or writes files; raises OSError."""
        return function(*arguments)


def groups(images: Iterable[Source], settings: Settings) -> Iterator[list[Item]]:
    """Yield the images of each request; images are taken from the caller only when needed."""
    collected = Groups(settings.images_per_request, settings.bytes_per_request)
    for index, image in enumerate(images):
        yield from collected.add(item(index, image))
    yield from collected.rest()


def results(
    http: httpx.Client, call: ImageCall, images: Iterable[Source], settings: Settings
) -> Generator[ImageResult, None, None]:
    """Yield the result of each image, each as it finishes.

    After an error of a whole request the results of those under way are yielded, then the error is
    raised. When the caller stops, requests under way are given up.
    """
    _, images = one_or_many(images)
    flow = Flow(call, settings.connections, length(images))
    waiting = groups(images, settings)
    reports: SimpleQueue[Report] = SimpleQueue()
    stop = threading.Event()

    def converse(one: ImageCall, group: list[Item]) -> None:
        conversation = results_of(SyncWire(http, stop), one, group, settings.retries)
        try:
            for result in iterate(conversation):
                reports.put(result)
        except Stopped:
            pass
        except BaseException as error:  # `Flow` raises it again in the thread of the caller
            reports.put(error)
        finally:
            reports.put(DONE)

    try:
        while True:
            group = next(waiting, None) if reports.empty() and flow.may_start() else None
            if group is not None:
                # A daemon: a program that ends does not wait for answers that nothing reads.
                threading.Thread(target=converse, args=(flow.start(), group), daemon=True).start()
            elif reports.empty() and flow.ended():
                return
            elif (result := flow.take(reports.get())) is not None:
                yield result
    finally:
        stop.set()
