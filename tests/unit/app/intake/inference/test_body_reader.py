"""Compressed bodies: the same bytes within, and no long piece of them on the event loop."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from app.intake.inference.body_reader import FIRST, PIECE, decompressed
from models.domain.errors import MalformedRequest

MOST = 1 << 30


async def chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def unpacked(body: bytes, size: int, grow: Callable[[int], None]) -> bytes:
    async def read() -> bytes:
        found = decompressed(chunks(body, size), "deflate", MOST, grow)
        return b"".join([piece async for piece in found])

    return asyncio.run(read())


@pytest.mark.parametrize("n", [0, 1, FIRST - 1, FIRST, FIRST + 1, FIRST + PIECE, 3_000_000])
@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_all_bytes_come_out_and_are_counted(n: int, size: int) -> None:
    counted: list[int] = []
    content = bytes(range(256)) * (n // 256 + 1)
    assert unpacked(zlib.compress(content[:n]), size, counted.append) == content[:n]
    assert sum(counted) == n


def test_only_the_first_bytes_are_decompressed_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_threads: list[bytes] = []
    to_thread = asyncio.to_thread

    async def noted(*call: Any) -> Any:
        on_threads.append(await to_thread(*call))
        return on_threads[-1]

    monkeypatch.setattr(asyncio, "to_thread", noted)
    content = bytes(4_000_000)
    assert unpacked(zlib.compress(content), 1 << 20, lambda _n: None) == content
    assert sum(map(len, on_threads)) == len(content) - FIRST
    assert max(map(len, on_threads)) <= PIECE


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("behind", [b"x", bytes(3), zlib.compress(b"more")])
def test_bytes_behind_the_end_are_an_error_however_they_arrive(behind: bytes, size: int) -> None:
    for content in (b"", b"content" * 5):
        with pytest.raises(MalformedRequest, match="goes on after the end of its deflate data"):
            unpacked(zlib.compress(content) + behind, size, lambda _n: None)


def test_bytes_that_come_alone_behind_the_end_are_an_error() -> None:
    async def in_two() -> AsyncIterator[bytes]:
        yield zlib.compress(b"content")
        yield b""
        yield b"x"

    async def read() -> list[bytes]:
        return [piece async for piece in decompressed(in_two(), "deflate", MOST, lambda _n: None)]

    with pytest.raises(MalformedRequest, match="goes on after the end"):
        asyncio.run(read())
