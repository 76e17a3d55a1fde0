"""The results of the images of one request, after as many tries as it takes."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from darkroom_client import answers
from darkroom_client.conversation import (
    Answer,
    Attempts,
    Refusal,
    Wire,
    broken,
    refusal,
    wait_or_raise,
)
from darkroom_client.errors import (
    ConnectionFailed,
    InvalidAnswer,
    Problem,
    RequestError,
    TooLarge,
)
from darkroom_client.images import Item
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
            content = b"" if each.url is not None else await wire.load(each)
            waiting[each.index] = each, content
        except OSError as error:
            detail = f"the image cannot be read: {error.strerror or error}"
            yield each.failed(Problem("unreadable", detail, title="Unreadable"))
    async with aclosing(_results(wire, call, waiting, retries)) as found:
        async for result in found:
            yield result if call.out is None else await wire.store(result, call.out)


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
    """Send a request once; yield results as they come, or at last what went wrong."""
    request, sent = call.request(contents)
    try:
        async with wire.send(attempts.started(request), attempts.left()) as answer:
            if answer.status != 200:
                yield await refusal(answer, attempts)
            else:
                async for result in _records(answer, sent, attempts):
                    yield result
    except ConnectionFailed as error:
        yield broken(error, attempts)


async def _records(
    answer: Answer, sent: list[Item], attempts: Attempts
) -> AsyncIterator[ImageResult]:
    """Yield the records of a stream as results of the call's own images."""
    async with aclosing(answers.records(answer.pieces())) as records:
        async for found in records:
            attempts.left()
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
