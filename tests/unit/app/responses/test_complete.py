"""How answers leave: in pieces that a slow client has time for."""

import asyncio
from functools import partial

import pytest
from fastapi import Request
from starlette.types import Message

from app.http import media_types
from app.intake.request_items import Item
from app.intake.spool import Blob
from app.pipeline.outcomes import Answer, EncodedImage
from app.pipeline.timings import Timings
from app.responses import streams
from app.responses.pieces import PIECE
from app.responses.records import record
from models.codec import ImageFormat

FILE = bytes(2 * PIECE + 1)


async def answer() -> Answer:
    image = EncodedImage(FILE, ImageFormat.PNG, 1, 1)
    return Answer(Item(0, Blob.of(b"")), image, Timings())


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("kind", media_types.STREAMS)
def test_a_large_image_leaves_a_stream_in_pieces(kind: str) -> None:
    async def scenario() -> list[int]:
        request = Request({"type": "http", "path": "/", "headers": []}, never)
        reply = streams.streamed(request, [answer], kind, partial(record), {})
        sizes = []
        async for piece in reply.body_iterator:  # type: ignore[attr-defined]
            sizes.append(len(piece))
        return sizes

    sizes = asyncio.run(scenario())
    assert PIECE // 4 <= max(sizes) <= PIECE
    assert sum(sizes) > len(FILE)


def test_the_work_ends_when_nobody_takes_the_pieces_any_more() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def forever() -> Answer:
            try:
                return await asyncio.Event().wait()  # type: ignore[return-value]
            finally:
                ended.set()

        request = Request({"type": "http", "path": "/", "headers": []}, never)
        works = [answer, forever]
        reply = streams.streamed(request, works, media_types.MULTIPART, partial(record), {})
        async for _ in reply.body_iterator:  # type: ignore[attr-defined]
            break
        del reply
        async with asyncio.timeout(5):
            await ended.wait()

    asyncio.run(scenario())
