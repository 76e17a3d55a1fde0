"""The kernels that encode JPEGs, by emulation: libjpeg-turbo's bytes, whatever the image."""

import numpy as np
import pytest

from models.codec import Encoding, ImageFormat, encode
from models.codec.encoder import Chroma
from models.domain.image import Image, Jpeg, Pixels, Subsampling
from tests.emulation.emulator import Memory, emulator
from tests.emulation.staging import noise
from workers.engines.cuda import jpeg_encoder
from workers.kernels.items import ITEM
from workers.operations import DeviceJpeg

QUALITIES = [1, 10, 50, 75, 90, 95, 96, 100]
CHROMA: dict[Subsampling, Chroma] = {
    Subsampling.S444: "444",
    Subsampling.S422: "422",
    Subsampling.S420: "420",
}


def encoded(pixels: Pixels, asked: DeviceJpeg) -> Jpeg | None:
    """Return the file that the kernels make of an image, uint8 (H, W, 1 or 3)."""
    height, width, channels = shape = pixels.shape
    source, tables = Memory(pixels.size, pixels.tobytes()), jpeg_encoder.tables(asked, channels)
    lying, host = (Memory(jpeg_encoder.FILE_AT + pixels.size) for _ in range(2))
    scratch = Memory(jpeg_encoder.scratch(shape, asked))
    data = Memory(tables.nbytes, tables.tobytes(), 16)
    items = np.zeros(1, ITEM)
    addresses = (source.address, lying.address, scratch.address, data.address)
    items[0] = (*addresses, width, height, channels, 0)
    for each in jpeg_encoder.ENCODING:
        emulator().run_pass(each, items)
    items["src"], items["dst"] = lying.address, host.address
    emulator().run_pass(jpeg_encoder.STORING, items)
    for memory in (source, lying, host, scratch, data):
        memory.check()
    return jpeg_encoder.file(host.bytes, shape, asked)


def expected(pixels: Pixels, asked: DeviceJpeg) -> bytes:
    chroma = CHROMA[asked.subsampling]
    return encode(Image(pixels), ImageFormat.JPEG, Encoding(asked.quality, chroma=chroma))


def smooth(height: int, width: int, channels: int = 3) -> Pixels:
    """Return waves with some noise, as photos have: most coefficients are 0."""
    y, x, c = np.ogrid[:height, :width, :channels]
    waves = 128 + 80 * np.sin(x / 17 + c) * np.cos(y / 23) + noise(height, width, channels) / 32
    return waves.clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("subsampling", CHROMA)
@pytest.mark.parametrize("quality", QUALITIES)
def test_a_file_has_the_bytes_of_libjpeg_turbo(quality: int, subsampling: Subsampling) -> None:
    asked = DeviceJpeg(quality, subsampling)
    for pixels in (smooth(131, 70), noise(33, 47, 3), smooth(40, 301, 1), smooth(16, 16)):
        found = encoded(pixels, asked)
        if found is None:
            assert len(expected(pixels, asked)) >= pixels.size
        else:
            assert found.data.tobytes() == expected(pixels, asked), pixels.shape


@pytest.mark.parametrize("subsampling", CHROMA)
def test_every_remainder_of_a_size_has_its_own_end(subsampling: Subsampling) -> None:
    asked = DeviceJpeg(80, subsampling)
    for extra in range(17):
        pixels = smooth(64 + extra, 80 - extra)
        found = encoded(pixels, asked)
        assert found is not None
        assert found.data.tobytes() == expected(pixels, asked), pixels.shape


def test_the_largest_values_of_the_quick_dct_overflow_as_they_do_on_the_cpu() -> None:
    asked = DeviceJpeg(40, Subsampling.S444)
    blacks_and_whites = np.where(noise(64, 64, 3) & 1, 255, 0).astype(np.uint8)
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    for pixels in (blacks_and_whites, stripes, np.full((64, 64, 3), 255, np.uint8)):
        found = encoded(pixels, asked)
        assert found is not None
        assert found.data.tobytes() == expected(pixels, asked)


def test_a_file_that_would_be_larger_than_its_pixels_is_not_made() -> None:
    assert encoded(noise(64, 64, 1), DeviceJpeg(100, Subsampling.S444)) is None
    blacks_and_whites = np.where(noise(160, 160, 1) & 1, 255, 0).astype(np.uint8)
    assert encoded(blacks_and_whites, DeviceJpeg(100, Subsampling.S444)) is None
