"""The memory of a TIFF: what its strips or tiles take is part of the estimate."""

from io import BytesIO

import pytest
from PIL import Image

from models.codec import decode_memory, open_file
from tests.chaos.hostile.tiff import large_tile

LIMIT = 50_000_000


def written(mode: str, size: tuple[int, int], rows: int, compression: str = "tiff_lzw") -> bytes:
    file = BytesIO()
    picture = Image.new(mode, size)
    picture.save(file, "TIFF", compression=compression, tiffinfo={278: rows})
    return file.getvalue()


@pytest.mark.parametrize(("samples", "bits"), [(1, 8), (3, 8), (3, 16), (4, 16)])
def test_a_tile_that_is_larger_than_its_image_is_counted_with_all_its_bits(
    samples: int, bits: int
) -> None:
    data = large_tile(64, 512, samples, bits)
    opened = open_file(data, max_pixels=LIMIT)
    tile = 512 * 512 * samples * bits // 8
    assert opened.memory == len(data) + 64 * 64 * 4 + tile
    opened.decode()


def test_a_tile_of_four_times_the_image_takes_more_than_the_image() -> None:
    data = large_tile(3000, 6000, 3, 8)
    assert open_file(data, max_pixels=LIMIT).memory > 9_000_000 * 4 + 36_000_000 * 3


def test_an_image_in_one_strip_takes_the_strip_beside_pillows_picture() -> None:
    data = written("RGBA", (600, 400), rows=400)
    opened = open_file(data, max_pixels=LIMIT)
    assert opened.memory == decode_memory(opened.info, len(data), buffers=600 * 400 * 4)
    assert opened.memory >= 600 * 400 * (4 + 4)


@pytest.mark.parametrize("rows", [8, 16])
def test_strips_of_few_rows_take_no_more_than_pixels(rows: int) -> None:
    data = written("RGB", (600, 400), rows)
    opened = open_file(data, max_pixels=LIMIT)
    assert opened.memory == decode_memory(opened.info, len(data))


def test_a_jpeg_inside_is_unpacked_with_four_bytes_a_pixel() -> None:
    data = written("L", (600, 400), rows=400, compression="jpeg")
    opened = open_file(data, max_pixels=LIMIT)
    assert opened.memory == decode_memory(opened.info, len(data), buffers=600 * 400 * 4)


def test_the_first_of_two_equal_tags_counts_as_in_libtiff() -> None:
    data = large_tile(64, 1024, 1, 8, beside=[(322, 4, [64]), (323, 4, [64])])
    assert open_file(data, max_pixels=LIMIT).memory > 1024 * 1024
