"""The asynchronous client; it needs asyncio."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self, Unpack, overload

import httpx

from darkroom_client import async_stream, catalogue, requests
from darkroom_client.async_archives import AsyncArchives
from darkroom_client.async_jobs import AsyncJobs
from darkroom_client.async_stream import Images
from darkroom_client.async_wire import AsyncWire
from darkroom_client.conversation import Attempts
from darkroom_client.images import Source, one_or_many
from darkroom_client.job_calls import JobCalls
from darkroom_client.options import (
    CallOptions,
    ClassifyOptions,
    EncodingOptions,
    InfoOptions,
    Operations,
    ProcessOptions,
    Versions,
)
from darkroom_client.records import Filter, Health, ImageResult, Network
from darkroom_client.requests import ImageCall
from darkroom_client.retries import DEFAULT, Retries
from darkroom_client.settings import HttpOptions, Settings, http_options

Stream = AsyncGenerator[ImageResult, None]


class AsyncClient:
    """Ask a Darkroom server from one event loop; close the client, or use `async with`.

    Images are paths, URLs, bytes, binary files or `Image`. Methods take one and return its result,
    or take many and return a list in their order; those named `…_stream` yield results as they
    finish, and read images only when they are needed; these may come from an asynchronous iterable.
    Many images are sent in requests of at most
    `images_per_request` and `bytes_per_request`, `connections` of them at a time.

    A failed image is a result with an `error`; a refused request raises `DarkroomError`. Requests
    are repeated as `retries` says, which changes nothing, because they have no effects.
    `archives` sends ZIP and TAR files, and `jobs` has long batches.
    """

    def __init__(
        self,
        base_url: str = "http://localhost:8000",
        *,
        api_key: str | None = None,
        connections: int = 4,
        images_per_request: int = 16,
        bytes_per_request: int = 32 << 20,
        retries: Retries = DEFAULT,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        self._settings = Settings(connections, images_per_request, bytes_per_request, retries)
        arguments = http_options(base_url, api_key, self._settings, options)
        self._http = httpx.AsyncClient(transport=transport, **arguments)
        self._wire = AsyncWire(self._http)
        self.archives = AsyncArchives(self._wire, retries)
        self.jobs = AsyncJobs(JobCalls(self._wire, retries))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    @overload
    async def classify(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, **options: Unpack[ClassifyOptions]
    ) -> ImageResult: ...
    @overload
    async def classify(
        self, images: Images, **options: Unpack[ClassifyOptions]
    ) -> list[ImageResult]: ...
    async def classify(
        self, images: Source | Images, **options: Unpack[ClassifyOptions]
    ) -> ImageResult | list[ImageResult]:
        """Return labels, logits or embeddings."""
        return await self._all(images, requests.classify(options))

    def classify_stream(self, images: Images, **options: Unpack[ClassifyOptions]) -> Stream:
        """Yield labels, logits or embeddings of images as they finish."""
        return self._stream(images, requests.classify(options))

    @overload
    async def filter(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, ops: Operations, **options: Unpack[EncodingOptions]
    ) -> ImageResult: ...
    @overload
    async def filter(
        self, images: Images, ops: Operations, **options: Unpack[EncodingOptions]
    ) -> list[ImageResult]: ...
    async def filter(
        self,
        images: Source | Images,
        ops: Operations,
        **options: Unpack[EncodingOptions],
    ) -> ImageResult | list[ImageResult]:
        """Return images after one filter, or after a chain of them."""
        return await self._all(images, requests.filtered(ops, options))

    def filter_stream(
        self, images: Images, ops: Operations, **options: Unpack[EncodingOptions]
    ) -> Stream:
        """Yield filtered images as they finish; `out` writes them to a folder."""
        return self._stream(images, requests.filtered(ops, options))

    @overload
    async def process(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> ImageResult: ...
    @overload
    async def process(
        self, images: Images, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> list[ImageResult]: ...
    async def process(
        self,
        images: Source | Images,
        versions: Versions,
        **options: Unpack[ProcessOptions],
    ) -> ImageResult | list[ImageResult]:
        """Return labels and filtered versions of images, each of which is decoded once.

        A version has `ops`, or `name` and the parameters of one filter, and may have an `id` and
        encoding options of its own.
        """
        return await self._all(images, requests.process(versions, options))

    def process_stream(
        self, images: Images, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> Stream:
        """Yield labels and filtered versions of images as they finish."""
        return self._stream(images, requests.process(versions, options))

    @overload
    async def info(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, **options: Unpack[InfoOptions]
    ) -> ImageResult: ...
    @overload
    async def info(self, images: Images, **options: Unpack[InfoOptions]) -> list[ImageResult]: ...
    async def info(
        self, images: Source | Images, **options: Unpack[InfoOptions]
    ) -> ImageResult | list[ImageResult]:
        """Return what the files contain: format, size, orientation, EXIF and dominant colour."""
        return await self._all(images, requests.info(options))

    def info_stream(self, images: Images, **options: Unpack[InfoOptions]) -> Stream:
        """Yield what files contain as they are described."""
        return self._stream(images, requests.info(options))

    async def filters(self, **options: Unpack[CallOptions]) -> list[Filter]:
        """Return all filters with the JSON Schemas of their parameters."""
        return await catalogue.filters(self._wire, self._attempts(options))

    async def models(self, **options: Unpack[CallOptions]) -> list[Network]:
        """Return the networks with their weights and classes, the default one first."""
        return await catalogue.networks(self._wire, self._attempts(options))

    async def health(self, **options: Unpack[CallOptions]) -> Health:
        """Return the state of the server, also while it is not ready."""
        return await catalogue.health(self._wire, self._attempts(options))

    def _attempts(self, options: CallOptions) -> Attempts:
        return catalogue.attempts(self._settings.retries, options)

    def _stream(self, images: Images, call: ImageCall) -> Stream:
        return async_stream.results(self._http, call, images, self._settings)

    async def _all(
        self, images: Source | Images, call: ImageCall
    ) -> ImageResult | list[ImageResult]:
        one, many = one_or_many(images)
        async with aclosing(self._stream(many, call)) as stream:
            found = sorted([each async for each in stream], key=lambda each: each.index)
        return found[0] if one else found
