"""Products of matrices against sums added one by one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.workers.filters.images import image
from tests.unit.workers.filters.sums import slow_sums
from workers.filters.separable import (
    LONG_FROM,
    correlated_down,
    taps,
    tiles,
    transposed,
    with_margins,
)


def chequered(height: int, width: int, count: int) -> NDArray[np.uint8]:
    squares = (np.add.outer(np.arange(height), np.arange(width)) % 2 * 255).astype(np.uint8)
    return np.repeat(squares[..., None], count, 2)


@pytest.mark.parametrize("radius", [0, 1, 7, LONG_FROM - 1, LONG_FROM, 61])
@pytest.mark.parametrize("height", [1, 2, 23, 24, 25, 100])
def test_sums_are_those_of_whole_numbers(radius: int, height: int) -> None:
    weights = np.random.default_rng(radius).integers(-(1 << 22), 1 << 22, 2 * radius + 1)
    for planes in (image(height, 9, 3, 1), chequered(height, 5, 4), np.full((height, 2, 1), 255)):
        found = correlated_down(planes, weights.astype(np.float64))
        for n in range(planes.shape[2]):
            plane = planes[..., n].astype(np.int64)
            expected = slow_sums(plane, weights[:, None], "replicate")
            assert np.array_equal(found[..., n], expected)


def test_parts_of_a_power_of_two_are_as_exact_in_many_products() -> None:
    band = np.random.default_rng(2).integers(0, 65281, (70, 1500, 3), np.uint16)
    weights = taps(9.5, 16)
    found = correlated_down(band, weights.astype(np.float64) * 2.0**-24)
    for n in range(3):
        expected = slow_sums(band[..., n].astype(np.int64), weights[:, None], "replicate")
        assert np.array_equal(found[..., n] * 2**24, expected)


@pytest.mark.parametrize("rows", [slice(0, 9), slice(9, 33), slice(40, 50), slice(0, 50)])
@pytest.mark.parametrize("radius", [0, 5, 30, 70])
def test_sums_of_some_rows_are_those_of_all_of_them(rows: slice, radius: int) -> None:
    band, weights = image(50, 6, 3, 4), np.arange(2.0 * radius + 1)
    whole = correlated_down(band, weights)
    assert np.array_equal(correlated_down(band, weights, rows), whole[rows])
    seen, inside = with_margins(rows, radius)
    assert np.array_equal(correlated_down(band[seen], weights, inside), whole[rows])


@pytest.mark.parametrize("shape", [(1, 1), (100, 7), (7, 3000), (300, 400), (70_000, 2)])
@pytest.mark.parametrize("count", [1, 4])
def test_tiles_cover_every_pixel_once(shape: tuple[int, int], count: int) -> None:
    covered = np.zeros(shape, np.uint8)
    for place in tiles((*shape, count), 960):
        covered[place] += 1
    assert (covered == 1).all()


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_transposed_swaps_rows_and_columns(kind: type[np.integer], count: int) -> None:
    band = np.random.default_rng(3).integers(0, 200, (7, 12, count)).astype(kind)
    assert np.array_equal(transposed(band), band.swapaxes(0, 1))
