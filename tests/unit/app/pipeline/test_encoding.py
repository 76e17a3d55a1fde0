"""Results of filters are encoded on threads, or in processes that have their pixels alone."""

import asyncio
import mmap

import numpy as np
import pytest

from app.decoders import DecoderLimits, DecoderPool
from app.pipeline.coding import CodecThreads, HeldImage, ImageCodec
from models import codec
from models.codec import Decoded, Encoding, ImageFormat, ImageInfo
from models.domain.image import Image

SLOW = Encoding(png_level=6)
"""Options that take over `LONG_ENCODING` for the large image below: a process encodes it."""


def large() -> Image:
    return Image(np.broadcast_to(np.arange(2000, dtype=np.uint8)[:, None, None], (2000, 2000, 3)))


def held(image: Image) -> HeldImage:
    info = ImageInfo(ImageFormat.PNG, 2000, 2000, 1, 1, "RGB", fast_jpeg=False)
    return HeldImage(Decoded(image, info, "the copyright"))


def encoder(pool: DecoderPool) -> ImageCodec:
    return ImageCodec(pool, CodecThreads(1), 50_000_000)


def encoded(processes: int, source: HeldImage) -> bytes:
    async def within() -> bytes:
        pool = DecoderPool(DecoderLimits(processes, 50_000_000, 1 << 20, 10.0))
        try:
            return await encoder(pool).encode(source, ImageFormat.PNG, SLOW, 1.0)
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
    assert result.shape == (2, 3, 1)
    assert result.copyright == "the copyright"
    assert source.image().n_pixels == 4_000_000


def test_large_pixels_lose_their_memory_when_the_process_has_them() -> None:
    pixels = np.ones((2000, 2000, 3), np.uint8)
    assert encoded(1, held(Image(pixels)))
    assert np.count_nonzero(pixels) < 4 * mmap.PAGESIZE


@pytest.mark.parametrize(
    ("cost", "background", "slow"), [(0.5, True, True), (0.5, False, False), (5.0, False, True)]
)
def test_images_that_are_expensive_or_of_jobs_leave_a_process_to_others(
    cost: float, background: bool, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[bool]()

    async def encode(*_: object, slow: bool) -> bytes:
        asked.append(slow)
        return b""

    async def within() -> None:
        pool = DecoderPool(DecoderLimits(2, 50_000_000, 1 << 20, 10.0))
        monkeypatch.setattr(pool, "encode", encode)
        source, options = held(large()), (ImageFormat.PNG, SLOW, cost)
        await encoder(pool).encode(source, *options, background=background)

    asyncio.run(within())
    assert asked == [slow]
