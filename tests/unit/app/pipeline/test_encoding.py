"""Results of filters are encoded on threads, or in processes that have their pixels alone."""

import asyncio
import threading
import weakref
from collections.abc import Callable

import numpy as np

from app.decoders import DecoderPool, Limits
from app.pipeline.encoding import LONG_ENCODING, ImageEncoder
from app.pipeline.memory.held_image import HeldImage
from models import codec
from models.codec import Decoded, Encoding, ImageFormat, ImageInfo
from models.domain.image import Image
from tests.fakes import GUARD

SLOW = Encoding(png_level=6)
"""Options that take over `LONG_ENCODING` for the large image below: a process encodes it."""


def large() -> Image:
    return Image(np.broadcast_to(np.arange(2000, dtype=np.uint8)[:, None, None], (2000, 2000, 3)))


def held(image: Image) -> HeldImage:
    info = ImageInfo(ImageFormat.PNG, 2000, 2000, 1, 1, "RGB", fast_jpeg=False)
    return HeldImage(Decoded(image, info, "the copyright"))


async def in_thread(work: Callable[[], bytes], *, background: bool) -> bytes:  # noqa: ARG001 (one machine)
    return await asyncio.to_thread(work)


def encoded(processes: int, source: HeldImage) -> bytes:
    async def within() -> bytes:
        pool = DecoderPool(Limits(processes, 50_000_000, 1 << 20, 10.0))
        try:
            encoder = ImageEncoder(pool, in_thread, asyncio.Semaphore(1))
            return await encoder.encode(source, ImageFormat.PNG, SLOW, 1.0)
        finally:
            await pool.aclose()

    return asyncio.run(within())


def test_a_process_makes_the_same_file_as_a_thread() -> None:
    expected = codec.encode(large(), ImageFormat.PNG, SLOW, copyright="the copyright")
    assert encoded(0, held(large())) == expected
    assert encoded(1, held(large())) == expected


def test_a_result_has_the_metadata_of_its_source_and_pixels_of_its_own() -> None:
    source = held(large())
    result = source.result(Image(np.zeros((2, 3, 1), np.uint8)))
    assert (result.height, result.width, result.channels) == (2, 3, 1)
    assert result.copyright == "the copyright"
    assert source.image().n_pixels == 4_000_000


def test_the_pixels_are_let_go_when_the_process_has_them() -> None:
    let_go = threading.Event()
    pixels = np.zeros((2000, 2000, 3), np.uint8)
    weakref.finalize(pixels, let_go.set)
    source = held(Image(pixels))
    del pixels

    async def within() -> None:
        pool = DecoderPool(Limits(1, 50_000_000, 1 << 20, 10.0))
        encoder = ImageEncoder(pool, in_thread, asyncio.Semaphore(1))
        encoding = encoder.encode(source, ImageFormat.PNG, SLOW, 1.0)
        try:
            async with pool.queues.line(5.0), pool.queues.turn(5.0):  # no expensive image may begin
                waiting = asyncio.ensure_future(encoding)
                assert await asyncio.to_thread(let_go.wait, GUARD), "the pixels are still here"
                waiting.cancel()
        finally:
            await pool.aclose()

    asyncio.run(within())


def test_an_image_in_the_background_leaves_a_process_to_others() -> None:
    async def within() -> None:
        pool, one = DecoderPool(Limits(2, 50_000_000, 1 << 20, 10.0)), asyncio.Semaphore(1)
        encoder = ImageEncoder(pool, in_thread, one)
        options = ImageFormat.PNG, SLOW, LONG_ENCODING
        try:
            async with one:  # as another image of the background does
                encoding = encoder.encode(held(large()), *options, background=True)
                behind = asyncio.ensure_future(encoding)
                await encoder.encode(held(large()), *options)
                assert not behind.done()
            assert await behind
        finally:
            await pool.aclose()

    asyncio.run(within())


def test_an_expensive_image_that_waits_for_its_turn_keeps_no_process_of_the_background() -> None:
    async def within() -> None:
        pool, one = DecoderPool(Limits(2, 50_000_000, 1 << 20, 10.0)), asyncio.Semaphore(1)
        encoder = ImageEncoder(pool, in_thread, one)
        small = held(Image(np.zeros((2, 3, 1), np.uint8)))
        try:
            async with pool.queues.line(5.0), pool.queues.turn(5.0):
                encoding = encoder.encode(small, ImageFormat.PNG, SLOW, 5.0, background=True)
                waiting = asyncio.ensure_future(encoding)
                await asyncio.sleep(0)
                assert not waiting.done()
                assert not one.locked()  # the image with the turn takes it next
            assert await waiting
        finally:
            await pool.aclose()

    asyncio.run(within())
