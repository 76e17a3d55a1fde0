"""Items of a stream, however its body is cut on its way."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from app.admission import Admission
from app.admission.permit import Limits
from app.admission.stream_permits import StreamPermits
from app.http.stream_window import StreamWindow
from app.intake import framing, spool, stream
from app.intake.spool import Blob, MemoryUse
from app.parsing.arriving import SMALL, JsonRoom
from models.domain.errors import Cancelled, MalformedRequest, Overloaded, ServiceError, TooLarge
from models.settings import Settings


async def nothing(_n_bytes: int, _announced: int) -> None: ...


async def cut(body: bytes, step: int) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), step):
        yield body[start : start + step]


def lines(
    body: bytes, step: int = 7, longest: int = 1000, room: JsonRoom | None = None
) -> list[bytes | type[ServiceError]]:
    """Return the lines of a body; what is not complete is counted as arriving."""

    async def scenario() -> list[bytes | type[ServiceError]]:
        async def arrive(n_bytes: int, announced: int) -> None:
            assert (0 < n_bytes <= step, announced) == (True, 0)

        window, used = StreamWindow(1), (room or JsonRoom()).of("client")
        found = framing.lines(cut(body, step), arrive, window, longest, used)
        return [
            type(each) if isinstance(each, ServiceError) else bytes(each) async for each in found
        ]

    return asyncio.run(scenario())


def images(body: bytes, step: int = 7, limit: int = 1000) -> list[bytes | type[ServiceError]]:
    """Return the images of a body, and check that its whole size was counted."""
    counted = 0

    async def scenario() -> list[bytes | type[ServiceError]]:
        async def arrive(n_bytes: int, _announced: int) -> None:
            nonlocal counted
            counted += n_bytes

        found = framing.images(cut(body, step), arrive, StreamWindow(1), limit, 1 << 20)
        return [each.read() if isinstance(each, Blob) else type(each) async for each in found]

    result = asyncio.run(scenario())
    assert counted == sum(len(each) for each in result if isinstance(each, bytes))
    return result


@given(st.lists(st.binary(max_size=40)), st.integers(1, 99), st.booleans())
def test_lines_are_the_same_however_the_body_is_cut(
    given_lines: list[bytes], step: int, ended: bool
) -> None:
    body = b"\n".join(given_lines) + b"\n" * ended
    expected = [line for line in body.split(b"\n") if line.strip()]
    assert [line for line in lines(body, step) if bytes(line).strip()] == expected  # type: ignore[arg-type]  # no line is an error


@given(st.lists(st.binary(max_size=40)), st.integers(1, 99))
def test_images_are_the_same_however_the_body_is_cut(files: list[bytes], step: int) -> None:
    body = b"".join(len(each).to_bytes(4, "big") + each for each in files)
    assert images(body, step) == files


def test_a_line_without_end_is_refused_as_soon_as_it_is_too_long() -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x" * 100

    async def scenario() -> None:
        found = framing.lines(endless(), nothing, StreamWindow(1), 1000, JsonRoom().of("client"))
        with pytest.raises(TooLarge, match="a line has more than 1000 bytes"):
            await anext(found)

    asyncio.run(scenario())


def test_a_line_that_finds_no_memory_is_its_own_error() -> None:
    room = JsonRoom(limit=2 * SMALL, bodies=1, held=2 * SMALL)
    large = b"x" * (3 * SMALL)
    body = b"first\n" + large + b"\nlast\n"
    assert lines(body, 1 << 18, 4 * SMALL, room) == [b"first", Overloaded, b"last"]
    assert (room.bodies, room.held) == (1, 2 * SMALL)


def test_a_large_line_gives_its_memory_back() -> None:
    room = JsonRoom()
    large = b"x" * (3 * SMALL)
    assert lines(large + b"\n" + large, 1 << 18, 4 * SMALL, room) == [large, large]
    assert room == JsonRoom()


def test_a_body_that_fails_inside_a_large_line_gives_its_memory_back() -> None:
    room = JsonRoom()

    async def cut_off() -> AsyncGenerator[bytes, None]:
        yield b"x" * (3 * SMALL)
        raise Cancelled("the client left")

    async def scenario() -> None:
        found = framing.lines(cut_off(), nothing, StreamWindow(1), 4 * SMALL, room.of("client"))
        with pytest.raises(Cancelled):
            await anext(found)

    asyncio.run(scenario())
    assert room == JsonRoom()


def test_a_line_that_is_too_long_gives_its_memory_back() -> None:
    room = JsonRoom()
    with pytest.raises(TooLarge):
        lines(b"x" * (3 * SMALL), 1 << 18, 2 * SMALL, room)
    assert room == JsonRoom()


def test_a_stream_that_is_closed_at_a_large_line_gives_its_memory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "ROOM", room := JsonRoom())
    line = b'{"data": "' + b"x" * (3 * SMALL)
    left: Message = {"type": "http.disconnect"}
    messages: list[Message] = [{"type": "http.request", "body": line, "more_body": True}, left]

    async def receive() -> Message:
        return messages.pop(0)

    async def scenario() -> None:
        admission = Admission(Limits(images=8, bytes=1 << 30, arriving=1 << 30))
        permits = StreamPermits(admission, "client", 9.0, ())
        read = stream.ImageStream(
            receive, "application/x-ndjson", permits, StreamWindow(1), Settings()
        )
        with pytest.raises(Cancelled):
            await anext(read.items())
        messages.extend([{"type": "http.request", "body": line + b'"}\n', "more_body": True}])
        whole = stream.ImageStream(
            receive, "application/x-ndjson", permits, StreamWindow(1), Settings()
        )
        items = whole.items()
        assert isinstance((await anext(items)).item.content, MalformedRequest)
        await items.aclose()
        assert room == JsonRoom()

    asyncio.run(scenario())


def test_an_image_over_the_limit_is_skipped_without_being_kept() -> None:
    body = b"".join(len(each).to_bytes(4, "big") + each for each in (b"x" * 99, b"good"))
    assert images(body, limit=50) == [TooLarge, b"good"]


def test_an_image_that_finds_no_memory_is_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MEMORY", memory := MemoryUse(60))
    body = b"".join(len(each).to_bytes(4, "big") + each for each in (b"x" * 99, b"good"))

    async def scenario() -> list[bytes | type[ServiceError]]:
        found = framing.images(cut(body, 7), nothing, StreamWindow(1), 1000, 1000)
        return [each.read() if isinstance(each, Blob) else type(each) async for each in found]

    assert asyncio.run(scenario()) == [Overloaded, b"good"]
    assert memory.held == 0


@pytest.mark.parametrize("body", [b"\0\0", b"\0\0\0\5four"])
def test_a_body_that_is_cut_off_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="the stream ends inside"):
        images(body)


def test_others_have_their_turn_while_blank_lines_are_skipped() -> None:
    async def scenario() -> None:
        turns = 0

        async def neighbour() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(neighbour())
        body = cut(b"\n" * 6400, 6400)
        found = framing.lines(body, nothing, StreamWindow(1), 1000, JsonRoom().of("client"))
        assert [each async for each in found] == []
        task.cancel()
        assert turns >= 100

    asyncio.run(scenario())
