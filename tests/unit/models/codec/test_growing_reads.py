"""Pixels that are not compressed are read in few pieces, whatever the rows and strips of a file."""

import io

import numpy as np
import pytest
from PIL import Image

from models import codec
from models.codec.stripes import MOST, read_growing
from models.domain.errors import Undecodable
from tests.chaos.hostile.tiff import stepped_strips
from tests.pictures import as_image, encoded

SIDE = 200

TAGS = 20
"""Reads of the tags of a TIFF, which Pillow looks at again, at most."""


class CountingFile(io.BytesIO):
    """A file that counts how often it is read."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        return super().read(size)


def reads_to_load(data: bytes) -> int:
    """Return how often Pillow reads a file to load its pixels."""
    file = CountingFile(data)
    with Image.open(file) as image:
        read_growing(image)
        before = file.reads
        image.load()
    return file.reads - before


def test_a_strip_is_read_in_few_pieces_also_where_the_next_begins_a_byte_behind_it() -> None:
    # 1, 1, 2, 4 … 128 bytes for each row of 200
    assert reads_to_load(stepped_strips(SIDE)) <= 9 * SIDE + TAGS


@pytest.mark.parametrize("kind", ["BMP", "TIFF"])
def test_a_long_row_is_read_in_pieces_of_a_megabyte(kind: str) -> None:
    row = Image.new("RGB", (2_000_000, 1))
    assert reads_to_load(encoded(row, kind)) <= 6_000_000 // MOST + 5 + TAGS


@pytest.mark.parametrize("step", [1, 3, SIDE, SIDE + 7])
def test_strips_have_the_pixels_at_their_places(step: int) -> None:
    expected = [[(step * row + column) % 251 for column in range(SIDE)] for row in range(SIDE)]
    decoded = codec.decode(stepped_strips(SIDE, step), max_pixels=SIDE * SIDE)
    assert np.array_equal(as_image(decoded.image).pixels[..., 0], expected)


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "GIF", "PNG"])
def test_a_file_that_ends_early_is_an_error(kind: str) -> None:
    whole = encoded(Image.effect_noise((300, 300), 80), kind)
    with pytest.raises(Undecodable):
        codec.decode(whole[: len(whole) // 2], max_pixels=90_000)
