"""Boxes cover a picture in the order of its pixels, and none has more pixels than allowed."""

import numpy as np
import pytest

from models.codec.rows import Box, boxes


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (50, 1), (1, 50), (13, 13)])
@pytest.mark.parametrize("most", [1, 4, 13, 20, 1000])
def test_every_pixel_is_in_one_box_and_pixels_keep_their_order(
    size: tuple[int, int], most: int
) -> None:
    width, height = size
    pixels = np.arange(width * height).reshape(height, width)
    parts = [
        pixels[top:bottom, left:right].ravel()
        for left, top, right, bottom in boxes(width, height, most)
    ]
    assert max(map(len, parts)) <= most
    assert np.array_equal(np.concatenate(parts), pixels.ravel())


def test_rows_are_kept_together_where_several_fit() -> None:
    assert list(boxes(10, 5, 25)) == [Box(0, 0, 10, 2), Box(0, 2, 10, 4), Box(0, 4, 10, 5)]
    assert list(boxes(10, 2, 8))[:2] == [Box(0, 0, 8, 1), Box(8, 0, 10, 1)]


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (50, 1), (1, 50), (13, 13)])
@pytest.mark.parametrize("most", [1, 9, 20, 1000])
def test_with_a_cell_boxes_consist_of_whole_squares(size: tuple[int, int], most: int) -> None:
    width, height = size
    covered = np.zeros((height, width), int)
    for left, top, right, bottom in boxes(width, height, most, 3):
        assert left % 3 == top % 3 == 0
        assert right % 3 == 0 or right == width
        assert bottom % 3 == 0 or bottom == height
        assert (right - left) * (bottom - top) <= max(most, 9)
        covered[top:bottom, left:right] += 1
    assert (covered == 1).all()
