"""How answers leave: in pieces that a slow client has time for, and ended with their client."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect
from starlette.types import Message

from app.http.negotiation import IMAGE, JSON, MULTIPART, STREAMS
from app.http.request import Departure, StreamWindow
from app.intake.item import Item
from app.intake.spool import Blob
from app.pipeline.encoded_files import EncodedFile, EncodedFiles
from app.pipeline.outcomes import Answer, EncodedImage, Timings
from app.pipeline.pipeline import run
from app.responses.answers import PIECE, Rendering, StreamedBody, streamed, whole_reply
from app.responses.records import PIECE as INLINE_PIECE
from app.responses.records import InlineImages
from models.codec import ImageFormat
from models.domain.errors import Cancelled

FILE = bytes(2 * PIECE + 1)


def rendering() -> Rendering:
    return Rendering({"path": "/"}, {}, Timings(), names=["cat"])


async def answered(index: int) -> Answer:
    image = EncodedImage(EncodedFile(FILE), ImageFormat.PNG, 1, 1)
    return Answer(Item(index, Blob.of(b"")), image, Timings())


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("form", STREAMS)
async def test_a_large_image_leaves_a_stream_in_pieces_and_others_get_their_turn(form: str) -> None:
    async def sizes() -> list[int]:
        reply = streamed(run(answered, numbers(1), StreamWindow(1)), form, rendering())
        return [len(piece) async for piece in reply.pieces]

    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(neighbour())
    found = await sizes()
    beside.cancel()
    assert PIECE // 4 <= max(found) <= PIECE
    assert sum(found) > len(FILE)
    assert turns >= 3 or form == MULTIPART


async def numbers(n: int) -> AsyncGenerator[int, None]:
    for number in range(n):
        yield number


@pytest.mark.parametrize("form", [*STREAMS, IMAGE, JSON])
def test_an_answer_on_disk_is_the_same(form: str) -> None:
    async def scenario(in_memory: int) -> tuple[bytes, bool]:
        files = EncodedFiles(10 * len(FILE), in_memory=in_memory)
        image = EncodedImage(await files.keep(FILE), ImageFormat.PNG, 1, 1)

        async def work(index: int) -> Answer:
            return Answer(Item(index, Blob.of(b"")), image, Timings())

        if form in (IMAGE, JSON):
            reply = await whole_reply([await work(0)], form, rendering())
        else:
            reply = streamed(run(work, numbers(1), StreamWindow(1)), form, rendering())
        assert isinstance(reply, StreamedBody)
        return b"".join([bytes(piece) async for piece in reply.pieces]), image.file.in_memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_hex", lambda n: "0" * 2 * n)
        patch.setattr("time.localtime", lambda: (2026, 1, 1, 0, 0, 0))
        kept, moved = asyncio.run(scenario(10 * len(FILE))), asyncio.run(scenario(0))
    assert (kept[1], moved[1]) == (True, False)
    assert kept[0] == moved[0]
    assert len(kept[0]) >= len(FILE)


async def test_the_work_has_ended_when_the_client_stops_to_take_pieces() -> None:
    ended = asyncio.Event()

    async def work(index: int) -> Answer:
        if not index:
            return await answered(index)
        try:
            await asyncio.Event().wait()
            raise AssertionError("the event is never set")
        finally:
            ended.set()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionError

    reply = streamed(run(work, numbers(2), StreamWindow(2)), MULTIPART, rendering())
    with pytest.raises(ConnectionError):
        await reply({"type": "http"}, never, send)
    assert ended.is_set()


@pytest.mark.parametrize("before", [True, False])
async def test_a_client_that_leaves_ends_the_wait_for_the_next_piece(before: bool) -> None:
    departure, closed = Departure(), asyncio.Event()

    async def content() -> AsyncGenerator[bytes, None]:
        yield b"one"
        await asyncio.Event().wait()

    async def aclose() -> None:
        closed.set()

    async def send(message: Message) -> None:
        if message.get("body"):
            asyncio.get_running_loop().call_soon(departure.happen)

    if before:
        departure.happen()
    source = SimpleNamespace(aclose=aclose)
    reply = StreamedBody(content(), {}, "text/plain", source, departure=departure)
    with pytest.raises(ClientDisconnect):
        await reply({"type": "http"}, never, send)
    assert closed.is_set()


async def test_a_stream_whose_client_has_left_is_not_ended_as_if_it_were_complete() -> None:
    async def content() -> AsyncGenerator[bytes, None]:
        yield b"one"
        raise Cancelled("the client left")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(ClientDisconnect):
        await StreamedBody(content(), {}, "text/plain")({"type": "http"}, never, send)
    bodies = [(each.get("body"), each.get("more_body")) for each in sent]
    assert bodies == [(None, None), (b"one", True)]


@given(st.lists(st.binary(max_size=100), max_size=4), st.text())
def test_the_text_is_what_it_would_be_with_base64_in_it(images: list[bytes], text: str) -> None:
    inline = InlineImages()
    marked = json.dumps([text, *(inline.add(EncodedFile(each)) for each in images)]).encode()
    expected = json.dumps([text, *(base64.b64encode(each).decode() for each in images)]).encode()
    assert b"".join(inline.pieces(marked)) == expected
    assert inline.size(marked) == len(expected)


def test_a_large_image_is_encoded_in_pieces() -> None:
    inline, data = InlineImages(), bytes(range(256)) * (INLINE_PIECE // 64)
    pieces = list(inline.pieces(inline.add(EncodedFile(data)).encode()))
    assert max(map(len, pieces)) == INLINE_PIECE // 3 * 4
    assert base64.b64decode(b"".join(pieces)) == data
