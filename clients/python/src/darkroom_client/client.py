"""The synchronous client."""

from collections.abc import Generator, Iterable
from types import TracebackType
from typing import Self, Unpack, overload

import httpx

from darkroom_client import catalogue, requests, sync_stream
from darkroom_client.archives import Archives
from darkroom_client.async_archives import AsyncArchives
from darkroom_client.conversation import Attempts
from darkroom_client.images import Source, one_or_many
from darkroom_client.job_calls import JobCalls
from darkroom_client.jobs import Jobs
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
from darkroom_client.sync_wire import SyncWire, run

Stream = Generator[ImageResult, None, None]


class Client:
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
        self.archives = Archives(AsyncArchives(self._wire, retries))
        self.jobs = Jobs(JobCalls(self._wire, retries))

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

    @overload
    def classify(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, **options: Unpack[ClassifyOptions]
    ) -> ImageResult: ...
    @overload
    def classify(
        self, images: Iterable[Source], **options: Unpack[ClassifyOptions]
    ) -> list[ImageResult]: ...
    def classify(
        self, images: Source | Iterable[Source], **options: Unpack[ClassifyOptions]
    ) -> ImageResult | list[ImageResult]:
        """Return labels, logits or embeddings."""
        return self._all(images, requests.classify(options))

    def classify_stream(
        self, images: Iterable[Source], **options: Unpack[ClassifyOptions]
    ) -> Stream:
        """Yield labels, logits or embeddings of images as they finish."""
        return self._stream(images, requests.classify(options))

    @overload
    def filter(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, ops: Operations, **options: Unpack[EncodingOptions]
    ) -> ImageResult: ...
    @overload
    def filter(
        self, images: Iterable[Source], ops: Operations, **options: Unpack[EncodingOptions]
    ) -> list[ImageResult]: ...
    def filter(
        self,
        images: Source | Iterable[Source],
        ops: Operations,
        **options: Unpack[EncodingOptions],
    ) -> ImageResult | list[ImageResult]:
        """Return images after one filter, or after a chain of them."""
        return self._all(images, requests.filtered(ops, options))

    def filter_stream(
        self, images: Iterable[Source], ops: Operations, **options: Unpack[EncodingOptions]
    ) -> Stream:
        """Yield filtered images as they finish; `out` writes them to a folder."""
        return self._stream(images, requests.filtered(ops, options))

    @overload
    def process(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> ImageResult: ...
    @overload
    def process(
        self, images: Iterable[Source], versions: Versions, **options: Unpack[ProcessOptions]
    ) -> list[ImageResult]: ...
    def process(
        self,
        images: Source | Iterable[Source],
        versions: Versions,
        **options: Unpack[ProcessOptions],
    ) -> ImageResult | list[ImageResult]:
        """Return labels and filtered versions of images, each of which is decoded once.

        A version has `ops`, or `name` and the parameters of one filter, and may have an `id` and
        encoding options of its own.
        """
        return self._all(images, requests.process(versions, options))

    def process_stream(
        self, images: Iterable[Source], versions: Versions, **options: Unpack[ProcessOptions]
    ) -> Stream:
        """Yield labels and filtered versions of images as they finish."""
        return self._stream(images, requests.process(versions, options))

    @overload
    def info(  # type: ignore[overload-overlap]  # a text is iterable, too
        self, images: Source, **options: Unpack[InfoOptions]
    ) -> ImageResult: ...
    @overload
    def info(
        self, images: Iterable[Source], **options: Unpack[InfoOptions]
    ) -> list[ImageResult]: ...
    def info(
        self, images: Source | Iterable[Source], **options: Unpack[InfoOptions]
    ) -> ImageResult | list[ImageResult]:
        """Return what the files contain: format, size, orientation, EXIF and dominant colour."""
        return self._all(images, requests.info(options))

    def info_stream(self, images: Iterable[Source], **options: Unpack[InfoOptions]) -> Stream:
        """Yield what files contain as they are described."""
        return self._stream(images, requests.info(options))

    def filters(self, **options: Unpack[CallOptions]) -> list[Filter]:
        """Return all filters with the JSON Schemas of their parameters."""
        return run(catalogue.filters(self._wire, self._attempts(options)))

    def models(self, **options: Unpack[CallOptions]) -> list[Network]:
        """Return the networks with their weights and classes, the default one first."""
        return run(catalogue.networks(self._wire, self._attempts(options)))

    def health(self, **options: Unpack[CallOptions]) -> Health:
        """Return the state of the server, also while it is not ready."""
        return run(catalogue.health(self._wire, self._attempts(options)))

    def _attempts(self, options: CallOptions) -> Attempts:
        return catalogue.attempts(self._settings.retries, options)

    def _stream(self, images: Iterable[Source], call: ImageCall) -> Stream:
        return sync_stream.results(self._http, call, images, self._settings)

    def _all(
        self, images: Source | Iterable[Source], call: ImageCall
    ) -> ImageResult | list[ImageResult]:
        one, many = one_or_many(images)
        found = sorted(self._stream(many, call), key=lambda each: each.index)
        return found[0] if one else found
