"""Both clients, on one class with the methods that take images."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

import httpx

from darkroom_client import async_side, requests, sync_side
from darkroom_client.answers import decoded
from darkroom_client.archives import Archives
from darkroom_client.async_side import AsyncWire, Images
from darkroom_client.conversation import Attempts, Wire, body_of, value_of
from darkroom_client.images import Source, one_or_many
from darkroom_client.jobs import Jobs
from darkroom_client.options import (
    CallOptions,
    ClassifyOptions,
    FilterOptions,
    InfoOptions,
    MatchOptions,
    Operations,
    ProcessOptions,
    Versions,
)
from darkroom_client.records import Filter, Filters, Health, ImageResult, Job, Network, Networks
from darkroom_client.requests import Call, ImageCall
from darkroom_client.retries import DEFAULT, Retries
from darkroom_client.settings import HttpOptions, Settings, http_options
from darkroom_client.sync_side import SyncWire, iterate, run

T = TypeVar("T")
ImagesT = TypeVar("ImagesT")
OneT = TypeVar("OneT")
ManyT = TypeVar("ManyT")
StreamT = TypeVar("StreamT")
FiltersT = TypeVar("FiltersT")
NetworksT = TypeVar("NetworksT")
HealthT = TypeVar("HealthT")

Stream = Generator[ImageResult, None, None]
AsyncStream = AsyncGenerator[ImageResult, None]


class _Methods(ABC, Generic[ImagesT, OneT, ManyT, StreamT, FiltersT, NetworksT, HealthT]):
    """The methods of both clients, whose results are values or awaitables."""

    _wire: Wire
    _settings: Settings

    @overload
    def classify(self, images: Source, **options: Unpack[ClassifyOptions]) -> OneT: ...
    @overload
    def classify(self, images: ImagesT, **options: Unpack[ClassifyOptions]) -> ManyT: ...
    def classify(
        self, images: Source | ImagesT, **options: Unpack[ClassifyOptions]
    ) -> OneT | ManyT:
        """Return labels, logits or embeddings."""
        return self._all(images, requests.classify(options))

    def classify_stream(self, images: ImagesT, **options: Unpack[ClassifyOptions]) -> StreamT:
        """Yield labels, logits or embeddings of images as they finish."""
        return self._stream(images, requests.classify(options))

    @overload
    def filter(
        self, images: Source, ops: Operations | None = None, **options: Unpack[FilterOptions]
    ) -> OneT: ...
    @overload
    def filter(
        self, images: ImagesT, ops: Operations | None = None, **options: Unpack[FilterOptions]
    ) -> ManyT: ...
    def filter(
        self,
        images: Source | ImagesT,
        ops: Operations | None = None,
        **options: Unpack[FilterOptions],
    ) -> OneT | ManyT:
        """Return images after one filter, after a chain of them, or as a `preset` has them."""
        return self._all(images, requests.filtered(ops, options))

    def filter_stream(
        self, images: ImagesT, ops: Operations | None = None, **options: Unpack[FilterOptions]
    ) -> StreamT:
        """Yield filtered images as they finish; `out` writes them to a folder."""
        return self._stream(images, requests.filtered(ops, options))

    @overload
    def process(
        self, images: Source, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> OneT: ...
    @overload
    def process(
        self, images: ImagesT, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> ManyT: ...
    def process(
        self,
        images: Source | ImagesT,
        versions: Versions,
        **options: Unpack[ProcessOptions],
    ) -> OneT | ManyT:
        """Return labels and filtered versions of images, each of which is decoded once.

        A version has `ops`, or `name` and the parameters of one filter, and may have an `id` and
        encoding options of its own.
        """
        return self._all(images, requests.process(versions, options))

    def process_stream(
        self, images: ImagesT, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> StreamT:
        """Yield labels and filtered versions of images as they finish."""
        return self._stream(images, requests.process(versions, options))

    @overload
    def info(self, images: Source, **options: Unpack[InfoOptions]) -> OneT: ...
    @overload
    def info(self, images: ImagesT, **options: Unpack[InfoOptions]) -> ManyT: ...
    def info(self, images: Source | ImagesT, **options: Unpack[InfoOptions]) -> OneT | ManyT:
        """Return what the files contain: format, size, orientation, EXIF and dominant colour."""
        return self._all(images, requests.info(options))

    def info_stream(self, images: ImagesT, **options: Unpack[InfoOptions]) -> StreamT:
        """Yield what files contain as they are described."""
        return self._stream(images, requests.info(options))

    @overload
    def match(self, images: Source, **options: Unpack[MatchOptions]) -> OneT: ...
    @overload
    def match(self, images: ImagesT, **options: Unpack[MatchOptions]) -> ManyT: ...
    def match(self, images: Source | ImagesT, **options: Unpack[MatchOptions]) -> OneT | ManyT:
        """Return the best places of a small picture, `template`, in images."""
        return self._all(images, requests.match(options))

    def match_stream(self, images: ImagesT, **options: Unpack[MatchOptions]) -> StreamT:
        """Yield the places of a template in images as they are found."""
        return self._stream(images, requests.match(options))

    def filters(self, **options: Unpack[CallOptions]) -> FiltersT:
        """Return all filters with the JSON Schemas of their parameters."""
        return self._run(self._filters(self._attempts(options)))

    def models(self, **options: Unpack[CallOptions]) -> NetworksT:
        """Return the networks with their weights and classes, the default one first."""
        return self._run(self._networks(self._attempts(options)))

    def health(self, **options: Unpack[CallOptions]) -> HealthT:
        """Return the state of the server, also while it is not ready."""
        return self._run(self._health(self._attempts(options)))

    async def _filters(self, tries: Attempts) -> list[Filter]:
        return (await value_of(self._wire, Call("GET", "/filters"), Filters, tries)).filters

    async def _networks(self, tries: Attempts) -> list[Network]:
        return (await value_of(self._wire, Call("GET", "/models"), Networks, tries)).models

    async def _health(self, tries: Attempts) -> Health:
        call = Call("GET", "/readyz", params={"verbose": ""})
        details = decoded(await body_of(self._wire, call, tries, (200, 503)), dict[str, Any])
        status = str(details.pop("status", "not ready"))
        return Health(status in ("ok", "degraded"), status, details)

    def _attempts(self, options: CallOptions) -> Attempts:
        return Attempts.of(self._settings.retries, options)

    @abstractmethod
    def _run(self, conversation: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a conversation, or the conversation for a caller that awaits it."""

    @abstractmethod
    def _stream(self, images: ImagesT, call: ImageCall) -> StreamT:
        """Return the results of images as they finish."""

    @abstractmethod
    def _all(self, images: Source | ImagesT, call: ImageCall) -> Any:
        """Return the result of an image, or the results of many images in their order."""


class Client(
    _Methods[
        Iterable[Source],
        ImageResult,
        list[ImageResult],
        Stream,
        list[Filter],
        list[Network],
        Health,
    ]
):
    """Ask a Darkroom server. A client may be used by several threads; close it, or use `with`.

    Images are paths, URLs, bytes, binary files or `Image`. Methods take one and return its result,
    or take many and return a list in their order; those named `…_stream` yield results as they
    finish, and read images only when they are needed. Many images are sent in requests of at most
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
        transport: httpx.BaseTransport | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        self._settings = Settings(connections, images_per_request, bytes_per_request, retries)
        arguments = http_options(base_url, api_key, self._settings, options)
        self._http = httpx.Client(transport=transport, **arguments)
        self._wire = SyncWire(self._http)
        self.archives = Archives[Stream, None](self._wire, retries, run, iterate)
        self.jobs = Jobs[Job, list[Job], Stream, None](self._wire, retries, run, iterate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _run(self, conversation: Coroutine[Any, Any, T]) -> T:
        return run(conversation)

    def _stream(self, images: Iterable[Source], call: ImageCall) -> Stream:
        return sync_side.results(self._http, call, images, self._settings)

    def _all(self, images: Source | Iterable[Source], call: ImageCall) -> Any:
        one, many = one_or_many(images)
        found = sorted(self._stream(many, call), key=lambda each: each.index)
        return found[0] if one else found


class AsyncClient(
    _Methods[
        Images,
        Coroutine[Any, Any, ImageResult],
        Coroutine[Any, Any, list[ImageResult]],
        AsyncStream,
        Coroutine[Any, Any, list[Filter]],
        Coroutine[Any, Any, list[Network]],
        Coroutine[Any, Any, Health],
    ]
):
    """Ask a Darkroom server from one event loop; close the client, or use `async with`.

    The methods are those of `Client`, as coroutines and asynchronous generators. Images may come
    from an asynchronous iterable, too.
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
        self.archives = Archives[AsyncStream, Coroutine[Any, Any, None]](
            self._wire, retries, _same, _same
        )
        self.jobs = Jobs[
            Coroutine[Any, Any, Job],
            Coroutine[Any, Any, list[Job]],
            AsyncStream,
            Coroutine[Any, Any, None],
        ](self._wire, retries, _same, _same)

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

    def _run(self, conversation: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return conversation

    def _stream(self, images: Images, call: ImageCall) -> AsyncStream:
        return async_side.results(self._http, call, images, self._settings)

    async def _all(self, images: Source | Images, call: ImageCall) -> Any:
        one, many = one_or_many(images)
        async with aclosing(self._stream(many, call)) as stream:
            found = sorted([each async for each in stream], key=lambda each: each.index)
        return found[0] if one else found


def _same(conversation: T) -> T:
    return conversation
