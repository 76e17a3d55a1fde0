"""Archives of images for the synchronous client."""

from collections.abc import Generator
from pathlib import Path
from typing import Unpack

from darkroom_client.async_archives import AsyncArchives
from darkroom_client.options import (
    ClassifyOptions,
    EncodingOptions,
    InfoOptions,
    Operations,
    ProcessOptions,
    Versions,
)
from darkroom_client.records import ImageResult
from darkroom_client.sync_wire import iterate, run

Stream = Generator[ImageResult, None, None]


class Archives:
    """Send ZIP and TAR files as they are; see `AsyncArchives`."""

    def __init__(self, calls: AsyncArchives) -> None:
        self._calls = calls

    def classify(self, archive: str | Path, **options: Unpack[ClassifyOptions]) -> Stream:
        """Yield labels, logits or embeddings."""
        return iterate(self._calls.classify(archive, **options))

    def filter(
        self, archive: str | Path, ops: Operations, **options: Unpack[EncodingOptions]
    ) -> Stream:
        """Yield filtered images; `out` writes them to a folder."""
        return iterate(self._calls.filter(archive, ops, **options))

    def process(
        self, archive: str | Path, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> Stream:
        """Yield labels and filtered versions."""
        return iterate(self._calls.process(archive, versions, **options))

    def info(self, archive: str | Path, **options: Unpack[InfoOptions]) -> Stream:
        """Yield what the files contain."""
        return iterate(self._calls.info(archive, **options))

    def filter_to_zip(
        self,
        archive: str | Path,
        ops: Operations,
        path: str | Path,
        **options: Unpack[EncodingOptions],
    ) -> None:
        """Write a ZIP of the filtered images, with their records in `results.jsonl`, to a file."""
        run(self._calls.filter_to_zip(archive, ops, path, **options))
