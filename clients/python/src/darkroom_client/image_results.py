"""The results of the images of one request, after as many tries as it takes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from darkroom_client.conversation import Attempts, Refusal, Wire, tried, wait_or_raise
from darkroom_client.errors import (
    ConnectionFailed,
    InvalidAnswer,
    Problem,
    RequestError,
    TooLarge,
)
from darkroom_client.files import stored
from darkroom_client.images import Item, content_of
from darkroom_client.records import ImageResult
from darkroom_client.requests import ImageCall
from darkroom_client.retries import Retries, again_for_image

Content = tuple[Item, bytes]


async def results_of(
    wire: Wire, call: ImageCall, items: list[Item], retries: Retries
) -> AsyncGenerator[ImageResult, None]:
    """Yield the result of each image of a request, each as it finishes.

    Images without a result are sent again: all of them after a refusal, the rest after a broken
    connection. A request that is too large for the server is cut in halves. Raises DarkroomError.
    """
    waiting: dict[int, Content] = {}
    for each in items:
        try:
            content = await wire.call(content_of, each)
            waiting[each.index] = each, content
        except OSError as error:
            detail = f"the image cannot be read: {error.strerror or error}"
            yield each.failed(Problem("unreadable", detail, title="Unreadable"))
    async with aclosing(_results(wire, call, waiting, retries)) as found:
        async for result in found:
            yield result if call.out is None else await wire.call(stored, result, call.out)


async def _results(
    wire: Wire, call: ImageCall, waiting: dict[int, Content], retries: Retries
) -> AsyncGenerator[ImageResult, None]:
    attempts = Attempts(retries, call.deadline, call.request_id or "")
    while waiting:
        later: dict[int, ImageResult] = {}
        failed: Refusal | None = None
        async with aclosing(_try(wire, call, [*waiting.values()], attempts)) as found:
            async for each in found:
                if isinstance(each, Refusal):
                    failed = each
                elif _again(each, call):
                    later[each.index] = each
                elif waiting.pop(each.index, None) is not None:
                    yield each
        if failed is not None and isinstance(failed.error, TooLarge):
            async for result in _halves(wire, call, waiting, retries, failed.error):
                yield result
            return
        if waiting and not await _waited(wire, attempts, failed, len(waiting) - len(later)):
            for result in later.values():
                yield result
            return


async def _waited(wire: Wire, attempts: Attempts, failed: Refusal | None, missing: int) -> bool:
    """Wait before the next try; return whether there is one for images that failed by themselves.

    Raises the error of a request that failed, or whose answer lacks some images.
    """
    if failed is None and missing:
        lost = ConnectionFailed("the answer ended before its last image", attempts.request_id)
        failed = Refusal(lost, again=True)
    if failed is not None:
        await wait_or_raise(wire, attempts, failed)
        return True
    seconds = attempts.pause(None)
    if seconds is not None:
        await wire.pause(seconds)
    return seconds is not None


async def _try(
    wire: Wire, call: ImageCall, contents: list[Content], attempts: Attempts
) -> AsyncGenerator[ImageResult | Refusal, None]:
    """Send a request once; yield records as results of the call's own images."""
    request, sent = call.request(contents)
    async with aclosing(tried(wire, request, attempts)) as records:
        async for found in records:
            if isinstance(found, Refusal):
                yield found
                return
            if not 0 <= found.index < len(sent):
                raise InvalidAnswer(f"a record of image {found.index}, of {len(sent)} sent")
            each = sent[found.index]
            yield msgspec.structs.replace(found, index=each.index, id=each.id, source=each.source)


def _again(result: ImageResult, call: ImageCall) -> bool:
    own = call.deadline is not None
    errors = (result.error, *(each.error for each in result.versions or ()))
    return any(
        error is not None and again_for_image(error.status, error.code, own_deadline=own)
        for error in errors
    )


async def _halves(
    wire: Wire, call: ImageCall, waiting: dict[int, Content], retries: Retries, error: RequestError
) -> AsyncGenerator[ImageResult, None]:
    """Yield the results of a request that was too large from two smaller ones."""
    every = [*waiting.items()]
    if len(every) == 1:
        ((_, (each, _)),) = every
        yield each.failed(error.problem)
        return
    middle = len(every) // 2
    for half in (every[:middle], every[middle:]):
        async with aclosing(_results(wire, call, dict(half), retries)) as found:
            async for result in found:
                yield result
