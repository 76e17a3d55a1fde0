"""The results of the images in an archive, which is sent as it is, after as many tries as it takes.

An archive goes in one request, so it has at most as many images as one request of the server.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from darkroom_client import answers
from darkroom_client.conversation import (
    Attempts,
    Refusal,
    Wire,
    broken,
    refusal,
    saved_body,
    wait_or_raise,
)
from darkroom_client.errors import ConnectionFailed
from darkroom_client.manifest import Upload
from darkroom_client.options import Progress
from darkroom_client.records import ImageResult
from darkroom_client.requests import JSON_LINES, Call, ImageCall
from darkroom_client.retries import Retries

ZIP = "application/zip"


async def results_of_archive(
    wire: Wire, call: ImageCall, archive: Upload, retries: Retries
) -> AsyncGenerator[ImageResult, None]:
    """Yield the result of each file in an archive as it finishes; `source` is its name there.

    After a broken connection the archive is sent again, and what has been yielded is left out.
    Raises DarkroomError.
    """
    attempts = _attempts(call, retries)
    request = _request(call, archive, JSON_LINES)
    seen, n_failed = set[int](), 0
    while True:
        failed: Refusal | None = None
        async with aclosing(_try(wire, request, attempts)) as found:
            async for each in found:
                if isinstance(each, Refusal):
                    failed = each
                elif each.index not in seen:
                    seen.add(each.index)
                    n_failed += not each.ok
                    yield each if call.out is None else await wire.store(each, call.out)
                    if call.progress is not None:
                        call.progress(Progress(len(seen), n_failed, None))
        if failed is None:
            return
        await wait_or_raise(wire, attempts, failed)


async def saved_zip(
    wire: Wire, call: ImageCall, archive: Upload, retries: Retries, path: Path
) -> None:
    """Write the server's ZIP of filtered images and their records to a file, whole or not at all.

    Raises DarkroomError, and OSError if the file cannot be written.
    """
    request = _request(call, archive, ZIP)
    await saved_body(wire, request, _attempts(call, retries), path)


async def _try(
    wire: Wire, request: Call, attempts: Attempts
) -> AsyncGenerator[ImageResult | Refusal, None]:
    try:
        async with wire.send(attempts.started(request), attempts.left()) as answer:
            if answer.status != 200:
                yield await refusal(answer, attempts)
                return
            async with aclosing(answers.records(answer.pieces())) as records:
                async for each in records:
                    attempts.left()
                    yield each
    except ConnectionFailed as error:
        yield broken(error, attempts)


def _attempts(call: ImageCall, retries: Retries) -> Attempts:
    return Attempts(retries, call.deadline, call.request_id or "")


def _request(call: ImageCall, archive: Upload, accept: str) -> Call:
    headers = {
        "Accept": accept,
        "Content-Type": archive.media_type,
        "Content-Length": str(archive.size),
    }
    return Call("POST", call.path, params=call.fields, headers=headers, file=archive.path)
