"""Bytes move between processes in an area that shows nothing of other images."""

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from app.decoders.memory import KEPT, SharedArea, new_area, release

LARGE = KEPT + (3 << 20) + 5
"""Bytes of a large image, which do not end with a page."""

Ends = tuple[SharedArea, SharedArea]


@pytest.fixture
def descriptor() -> Iterator[int]:
    """Return the descriptor of the memory of an area."""
    made = new_area(4 << 20, 1 << 20)
    yield made
    os.close(made)


@pytest.fixture
def ends(descriptor: int) -> Ends:
    """Return the service's end and the process's."""
    return SharedArea(descriptor), SharedArea(descriptor)


def everything(end: SharedArea) -> np.ndarray:
    return end.view(len(end._bytes))


@pytest.mark.parametrize("size", [6, LARGE])
@pytest.mark.parametrize("there", [True, False], ids=["there", "elsewhere"])
def test_what_one_end_puts_in_the_other_one_takes(ends: Ends, size: int, there: bool) -> None:
    service, process = ends
    made = process.view(size) if there else np.empty(size, np.uint8)
    made[:] = 7
    process.put(made, b"", b"exif", taken=release)
    assert service.contents(size + 4) == bytes([7]) * size + b"exif"


@pytest.mark.parametrize("before", [43, LARGE, LARGE + (1 << 20)])
@pytest.mark.parametrize("size", [0, 5, LARGE])
def test_a_file_comes_to_a_process_with_nothing_but_zeros_behind_it(
    ends: Ends, before: int, size: int
) -> None:
    service, process = ends
    service.put(b"f" * before)
    process.put(b"p" * before)
    service.view(before)  # the size of pixels that were refused, as the answer told it
    service.put(b"s" * size)
    assert everything(process)[:size].tobytes() == b"s" * size
    assert not everything(process)[size:].any()


def test_large_pixels_are_moved_both_ways(descriptor: int, ends: Ends) -> None:
    service, process = ends
    pixels = np.full(LARGE, 7, np.uint8)
    service.put(pixels, b"and metadata", taken=release)
    assert np.count_nonzero(pixels) < 4 * mmap.PAGESIZE  # at most the pages at the ends of pieces
    assert process.contents(LARGE + 12) == bytes([7]) * LARGE + b"and metadata"
    process.put(np.full(LARGE, 8, np.uint8))
    assert (service.take(LARGE) == 8).all()
    assert os.fstat(descriptor).st_blocks * 512 < KEPT


def test_a_process_cannot_change_pixels_that_were_taken(ends: Ends) -> None:
    service, process = ends
    process.put(b"\1\2\3")
    pixels = service.take(3)
    process.view(3)[:] = 9
    assert pixels.tolist() == [1, 2, 3]
    pixels[:] = 7  # the service may write to its own
    assert process.view(3).tolist() == [9, 9, 9]


@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_sizes_beyond_the_area_are_refused(ends: Ends, size: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        ends[0].take(size)


def test_a_process_can_neither_shorten_nor_seal_the_area(descriptor: int, ends: Ends) -> None:
    for size in (0, 1 << 40):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    ends[0].put(b"1")
    assert ends[1].contents(1) == b"1"
