"""Bytes move between processes in files, or in an area that shows nothing of other images."""

import mmap
import os

import numpy as np
import pytest

from app.decoders.memory import (
    AREA_SIZE,
    SharedArea,
    contents,
    mapped,
    memory_file,
    moved_to_file,
    new_area,
)

SIZE = 20 << 20


def test_moved_pixels_are_in_the_file_and_their_own_memory_is_free() -> None:
    pixels = np.full((SIZE // 1024, 256, 4), 7, np.uint8)
    memory = moved_to_file(pixels, b"and metadata")
    assert contents(memory, SIZE + 12) == bytes([7]) * SIZE + b"and metadata"
    assert np.count_nonzero(pixels) < 4 * 8192  # at most the pages at the ends of pieces


def test_pixels_that_lie_in_a_memory_file_are_moved_out_of_it() -> None:
    before = memory_file(bytes([7]) * SIZE)
    pixels = mapped(before, SIZE)
    taken = os.fstat(before.number).st_blocks
    assert contents(moved_to_file(pixels), SIZE) == bytes([7]) * SIZE
    assert os.fstat(before.number).st_blocks < taken / 100


Ends = tuple[SharedArea, SharedArea]


@pytest.fixture
def ends() -> Ends:
    """Return the service's end and the process's."""
    area, descriptor = new_area()
    return area, SharedArea(descriptor)


def test_what_one_end_puts_in_the_other_one_takes(ends: Ends) -> None:
    service, process = ends
    service.put(b"pixels", b"", memoryview(b"exif"))
    assert process.view(10).tobytes() == b"pixelsexif"


def test_a_file_comes_to_a_process_with_nothing_but_zeros_behind_it(ends: Ends) -> None:
    service, process = ends
    service.put(b"a long file of the first client")
    process.put(b"and the pixels of it, which are even longer")
    service.take(43)
    service.put(b"short")
    assert process.view(AREA_SIZE).tobytes() == b"short".ljust(AREA_SIZE, b"\0")


def test_pixels_that_were_refused_are_wiped_too(ends: Ends) -> None:
    service, process = ends
    service.put(b"file")
    process.put(bytes(range(1, 200)))
    service.view(199)  # their size, as the answer told it
    service.put(b"file")
    assert not process.view(AREA_SIZE)[4:].any()


def test_a_process_cannot_change_pixels_that_were_taken(ends: Ends) -> None:
    service, process = ends
    process.put(b"\1\2\3")
    pixels = service.take(3)
    process.view(3)[:] = 9
    assert pixels.tolist() == [1, 2, 3]
    pixels[:] = 7  # the service may write to its own
    assert process.view(3).tolist() == [9, 9, 9]


def test_a_new_area_is_zeros_whatever_an_old_one_held() -> None:
    for _ in range(2):
        area, _ = new_area()
        assert not area.view(AREA_SIZE).any()
        area.put(b"\xff" * AREA_SIZE)


@pytest.mark.parametrize("size", [-1, AREA_SIZE + 1])
def test_sizes_beyond_the_area_are_refused(ends: Ends, size: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        ends[0].take(size)


def test_a_process_can_neither_shorten_nor_seal_the_area() -> None:
    area, descriptor = new_area()
    for size in (0, AREA_SIZE + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor.number, size)
    area.put(b"1")
    with mmap.mmap(descriptor.number, AREA_SIZE) as mapping:
        assert mapping[:1] == b"1"


def test_an_area_keeps_no_descriptor_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    areas = [new_area()[0] for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) <= before
    assert np.array_equal(areas[0].take(4), np.zeros(4, np.uint8))
