"""Items of a stream, however its body is cut on its way."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.http.request import StreamWindow
from app.intake.spool import Blob
from app.intake.stream import BodyReader, ImageStream
from models.domain.errors import MalformedRequest, Overloaded, ServiceError, TooLarge
from models.settings import Settings


class Framing(ImageStream):
    """Cuts a body into items of at most `limit` bytes; `arrived` has what was counted of them."""

    def __init__(self, limit: int) -> None:
        self._settings = Settings(max_image_bytes=limit)
        self._window, self._longest = StreamWindow(1), limit
        self.arrived: list[int] = []

    async def _arrives(self, n_bytes: int) -> None:
        self.arrived.append(n_bytes)

    def images(
        self, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[Blob | ServiceError, None]:
        self._reader = BodyReader(body)
        return self._files()

    def lines(self, body: AsyncGenerator[bytes, None]) -> AsyncGenerator[Blob, None]:
        self._reader = BodyReader(body)
        return self._lines()


async def cut(body: bytes, step: int) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), step):
        yield body[start : start + step]


def lines(body: bytes, step: int = 7, longest: int = 1000) -> list[bytes]:
    """Return the lines of a body; a line that is not complete is counted as arriving."""

    framing = Framing(longest)

    async def scenario() -> list[bytes]:
        return [each.read() async for each in framing.lines(cut(body, step))]

    found = asyncio.run(scenario())
    assert all(0 < size <= step for size in framing.arrived)
    return found


def images(body: bytes, step: int = 7, limit: int = 1000) -> list[bytes | type[ServiceError]]:
    """Return the images of a body, and check that its whole size was counted."""
    framing = Framing(limit)

    async def scenario() -> list[bytes | type[ServiceError]]:
        found = framing.images(cut(body, step))
        return [each.read() if isinstance(each, Blob) else type(each) async for each in found]

    result = asyncio.run(scenario())
    counted = sum(framing.arrived)
    assert counted == sum(len(each) for each in result if isinstance(each, bytes))
    return result


@given(st.lists(st.binary(max_size=40)), st.integers(1, 99), st.booleans())
@example(given_lines=[b"{}\r", b"\r", b"{}\r", b"\r"], step=5, ended=True)
@example(given_lines=[b" " * 120 + b"{}"], step=40, ended=False)
def test_lines_are_the_same_however_the_body_is_cut(
    given_lines: list[bytes], step: int, ended: bool
) -> None:
    body = b"\n".join(given_lines) + b"\n" * ended
    expected = [line.strip() for line in body.split(b"\n") if line.strip()]
    assert [line.strip() for line in lines(body, step)] == expected


@given(st.lists(st.binary(max_size=40)), st.integers(1, 99))
def test_images_are_the_same_however_the_body_is_cut(files: list[bytes], step: int) -> None:
    body = b"".join(len(each).to_bytes(4, "big") + each for each in files)
    assert images(body, step) == files


async def test_a_line_without_end_is_refused_as_soon_as_it_is_too_long() -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x" * 100

    found = Framing(1000).lines(endless())
    with pytest.raises(TooLarge, match="a line has more than 1000 bytes"):
        await anext(found)


def test_an_image_over_the_limit_is_skipped_without_being_kept() -> None:
    body = b"".join(len(each).to_bytes(4, "big") + each for each in (b"x" * 99, b"good"))
    assert images(body, limit=50) == [TooLarge, b"good"]


async def test_an_overload_inside_an_image_ends_the_stream() -> None:
    class Full(Framing):
        async def _arrives(self, n_bytes: int) -> None:
            raise Overloaded(f"{n_bytes} bytes", 1.0)

    with pytest.raises(Overloaded):
        await anext(Full(1000).images(cut(b"\0\0\0\x0dseveral bytes", 7)))


@pytest.mark.parametrize("body", [b"\0\0", b"\0\0\0\5four"])
def test_a_body_that_is_cut_off_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="the body ends after"):
        images(body)
