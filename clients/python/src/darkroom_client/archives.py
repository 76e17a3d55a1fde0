"""Archives of images, sent as they are: one class for both clients.

An archive goes in one request, so it has at most as many images as one request of the server.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Generic, TypeVar, Unpack

from darkroom_client import requests
from darkroom_client.conversation import (
    Attempts,
    Conversations,
    Refusal,
    saved_body,
    tried,
    wait_or_raise,
)
from darkroom_client.files import stored
from darkroom_client.manifest import archive_upload
from darkroom_client.options import (
    ClassifyOptions,
    FilterOptions,
    InfoOptions,
    Operations,
    ProcessOptions,
    Progress,
    Versions,
)
from darkroom_client.records import ImageResult
from darkroom_client.requests import JSON_LINES, Call, ImageCall

ZIP = "application/zip"

StreamT = TypeVar("StreamT")
DoneT = TypeVar("DoneT")


class Archives(Conversations, Generic[StreamT, DoneT]):
    """Send ZIP and TAR files as they are; yield a result for each image in them as it finishes.

    `index` is the place of an image in the archive, and `source` its name there. One request takes
    as many images as the server's `DARKROOM_MAX_IMAGES_PER_REQUEST`; larger archives are jobs
    (`jobs.create_from`).
    """

    def classify(self, archive: str | Path, **options: Unpack[ClassifyOptions]) -> StreamT:
        """Yield labels, logits or embeddings."""
        return self._results(archive, requests.classify(options))

    def filter(
        self, archive: str | Path, ops: Operations | None = None, **options: Unpack[FilterOptions]
    ) -> StreamT:
        """Yield filtered images; `out` writes them to a folder."""
        return self._results(archive, requests.filtered(ops, options))

    def process(
        self, archive: str | Path, versions: Versions, **options: Unpack[ProcessOptions]
    ) -> StreamT:
        """Yield labels and filtered versions."""
        return self._results(archive, requests.process(versions, options))

    def info(self, archive: str | Path, **options: Unpack[InfoOptions]) -> StreamT:
        """Yield what the files contain."""
        return self._results(archive, requests.info(options))

    def filter_to_zip(
        self,
        archive: str | Path,
        ops: Operations | None,
        path: str | Path,
        **options: Unpack[FilterOptions],
    ) -> DoneT:
        """Write a ZIP of the filtered images, with their records in `results.jsonl`, to a file.

        The file appears whole or not at all. Raises DarkroomError, and OSError if the file cannot
        be written.
        """
        call = requests.filtered(ops, options)
        request, attempts = _request(call, archive, ZIP), self._attempts(call)
        return self._run(saved_body(self._wire, request, attempts, Path(path)))

    def _results(self, archive: str | Path, call: ImageCall) -> StreamT:
        request = _request(call, archive, JSON_LINES)
        return self._iterate(self._found(call, request))

    async def _found(self, call: ImageCall, request: Call) -> AsyncGenerator[ImageResult, None]:
        """Yield the result of each file in an archive as it finishes.

        After a broken connection the archive is sent again without a second result of any file.
        """
        attempts, seen, n_failed = self._attempts(call), set[int](), 0
        while True:
            failed: Refusal | None = None
            async with aclosing(tried(self._wire, request, attempts)) as found:
                async for each in found:
                    if isinstance(each, Refusal):
                        failed = each
                    elif each.index not in seen:
                        seen.add(each.index)
                        n_failed += not each.ok
                        yield (
                            each
                            if call.out is None
                            else await self._wire.call(stored, each, call.out)
                        )
                        if call.progress is not None:
                            call.progress(Progress(len(seen), n_failed, None))
            if failed is None:
                return
            await wait_or_raise(self._wire, attempts, failed)

    def _attempts(self, call: ImageCall) -> Attempts:
        return Attempts(self._retries, call.deadline, call.request_id or "")


def _request(call: ImageCall, archive: str | Path, accept: str) -> Call:
    if call.pictures:
        raise ValueError(
            "an archive is sent without a form, so `overlay` has no place: use a preset"
        )
    body = archive_upload(Path(archive))
    headers = {
        "Accept": accept,
        "Content-Type": body.media_type,
        "Content-Length": str(body.size),
    }
    return Call("POST", call.path, params=call.fields, headers=headers, file=body.path)
