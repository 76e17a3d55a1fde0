"""Archives of images for the asynchronous client; `archives.py` drives the same without asyncio."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Unpack

from darkroom_client import requests
from darkroom_client.archive_results import results_of_archive, saved_zip
from darkroom_client.conversation import Wire
from darkroom_client.manifest import archive_upload
from darkroom_client.options import (
    ClassifyOptions,
    EncodingOptions,
    InfoOptions,
    Operations,
    ProcessOptions,
    Versions,
)
from darkroom_client.records import ImageResult
from darkroom_client.requests import ImageCall
from darkroom_client.retries import Retries

Stream = AsyncGenerator[ImageResult, None]


class AsyncArchives:
    """Send ZIP and TAR files as they are; yield a result for each image in them as it finishes.

    `index` is the place of an image in the archive, and `source` its name there. One request takes
    as many images as the server's `DARKROOM_MAX_IMAGES_PER_REQUEST`; larger archives are jobs
    (`jobs.create_from`).
    """

    def __init__(self, wire: Wire, retries: Retries) -> None:
        self._wire = wire
        self._retries = retries

    def classify(self, archive: str | Path, **options: Unpack[ClassifyOptions]) -> Stream:
        """Yield labels, logits or embeddings."""
        return self._results(archive, requests.classify(options))

    def filter(
        self, archive: str | Path, ops: Operations, **options: Unpack[EncodingOptions]
    ) -> Stream:
        """Yield filtered images; `out` writes them to a folder."""
        return self._results(archive, requests.filtered(ops, options))

    def process(
        self, archive: str | Path, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> Stream:
        """Yield labels and filtered versions."""
        return self._results(archive, requests.process(versions, options))

    def info(self, archive: str | Path, **options: Unpack[InfoOptions]) -> Stream:
        """Yield what the files contain."""
        return self._results(archive, requests.info(options))

    async def filter_to_zip(
        self,
        archive: str | Path,
        ops: Operations,
        path: str | Path,
        **options: Unpack[EncodingOptions],
    ) -> None:
        """Write a ZIP of the filtered images, with their records in `results.jsonl`, to a file."""
        call = requests.filtered(ops, options)
        await saved_zip(self._wire, call, archive_upload(Path(archive)), self._retries, Path(path))

    def _results(self, archive: str | Path, call: ImageCall) -> Stream:
        return results_of_archive(self._wire, call, archive_upload(Path(archive)), self._retries)
