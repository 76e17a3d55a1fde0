"""The memory of a PNG: rows that are longer than its picture is high are part of the estimate."""

from io import BytesIO

import pytest
from PIL import Image

from models.codec import decode_memory, open_file


def written(mode: str, size: tuple[int, int]) -> bytes:
    file = BytesIO()
    Image.new(mode, size).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("mode", "row_bytes"), [("RGB", 3), ("RGBA", 4), ("I;16", 2)])
def test_a_picture_of_one_row_takes_two_rows_beside_it(mode: str, row_bytes: int) -> None:
    data = written(mode, (100_000, 1))
    opened = open_file(data, max_pixels=100_000)
    rows = 2 * 100_000 * row_bytes
    assert opened.memory == decode_memory(opened.info, len(data), buffers=rows)
    assert opened.memory >= 100_000 * 4 + rows


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "LA"])
def test_the_rows_of_other_pictures_add_nothing(mode: str) -> None:
    data = written(mode, (400, 300))
    opened = open_file(data, max_pixels=400 * 300)
    assert opened.memory == decode_memory(opened.info, len(data))
