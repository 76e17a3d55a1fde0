"""A large file waits for the memory that opening it takes, before a process gets it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from PIL import Image

from app.decoders import LARGE_FILE, DecoderPool, opening_bytes
from app.intake.spool import Blob
from app.pipeline.context import ImageContext
from app.pipeline.decoding import ImageDecoder
from app.pipeline.describing import ImageDescriber
from app.pipeline.memory.codec_memory import SMALL
from app.pipeline.memory.pixel_budget import PixelBudget
from models.codec import Description
from tests.fake_decoders import MOST, Context, Pool
from tests.pictures import damaged_jpeg, drawing, encoded, jpeg, png


class Memory:
    """A memory that has room for everything, and notes what was held and when it was let go."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def is_small(self, n_bytes: int) -> bool:
        return n_bytes <= SMALL

    def at_once(self, _n_bytes: int) -> int:
        return 1

    @asynccontextmanager
    async def hold(self, n_bytes: int) -> AsyncIterator[None]:
        self.steps.append(n_bytes)
        yield
        self.steps.append(-n_bytes)


def padded(data: bytes, size: int = LARGE_FILE) -> bytes:
    """Return an image file with zeros behind it."""
    return data + bytes(size - len(data))


def decoded(data: bytes, memory: int = 1) -> tuple[list[int], int]:
    """Decode a file whose image takes `memory`; return what was held, and how often it was asked
    for.
    """
    noted = Memory()
    pool = Pool(noted)

    async def scenario() -> None:
        budget = PixelBudget(10**9)
        decoder = ImageDecoder(cast(Any, None), budget, cast(DecoderPool, pool), MOST, 1)
        context = cast(ImageContext, Context())
        async with decoder.decoded(Blob.of(data), context, lambda _: 1, lambda _: memory):
            noted.steps.append(0)  # the image is there
        decoder.close()

    asyncio.run(scenario())
    return noted.steps, len(pool.unasked)


def described(data: bytes, *, colour: bool) -> list[int]:
    noted = Memory()

    async def scenario() -> Description:
        pool = cast(DecoderPool, Pool(noted))
        describer = ImageDescriber(pool, PixelBudget(10**9), MOST, cast(Any, None))
        context = cast(ImageContext, Context())
        return await describer.described(Blob.of(data), context, colour=colour)

    assert asyncio.run(scenario()).width
    return noted.steps


OPENING = opening_bytes(LARGE_FILE)

PROGRESSIVE = encoded(drawing(), progressive=True)


@pytest.mark.parametrize("data", [png(), PROGRESSIVE])
def test_a_large_file_holds_memory_from_before_it_is_opened_until_its_image_is_done(
    data: bytes,
) -> None:
    steps, asked = decoded(padded(data))
    assert steps == [OPENING, 0, -OPENING]
    assert asked == 1


def test_an_image_that_takes_more_than_its_file_to_open_holds_that() -> None:
    steps, _ = decoded(padded(png()), memory=4 * OPENING)
    assert steps == [OPENING, -OPENING, 4 * OPENING, 0, -4 * OPENING]


@pytest.mark.parametrize(
    "data", [padded(png(), LARGE_FILE - 1), padded(jpeg())], ids=["small", "baseline"]
)
def test_small_files_and_baseline_jpegs_wait_for_none(data: bytes) -> None:
    steps, _ = decoded(data)
    assert steps == [0]


def test_a_large_damaged_jpeg_holds_memory_to_be_opened_in_a_process() -> None:
    steps, _ = decoded(padded(damaged_jpeg()), memory=2 * SMALL)
    assert steps[:4] == [2 * SMALL, -2 * SMALL, OPENING, 0]


@pytest.mark.parametrize("colour", [False, True])
def test_a_large_file_is_described_while_the_memory_to_open_it_is_held(colour: bool) -> None:
    assert described(padded(png()), colour=colour) == [OPENING, -OPENING]


def test_a_large_file_with_a_large_image_holds_memory_for_each_of_its_two_steps() -> None:
    data = padded(encoded(Image.new("RGB", (2400, 2400)), "PNG"))
    assert described(data, colour=True) == [OPENING, -OPENING, OPENING, -OPENING]


def test_a_small_file_is_described_at_once() -> None:
    assert described(png(), colour=True) == []
