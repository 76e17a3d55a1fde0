"""The area that the service and a decoder process share: nothing of one image reaches another."""

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from app.decoders.memory import AREA_SIZE, SharedArea, new_area

Ends = tuple[SharedArea, SharedArea]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Return the service's end and the process's."""
    area, descriptor = new_area()
    yield area, SharedArea(descriptor)
    os.close(descriptor)


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
        area, descriptor = new_area()
        os.close(descriptor)
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
            os.ftruncate(descriptor, size)
    area.put(b"1")
    with mmap.mmap(descriptor, AREA_SIZE) as mapping:
        assert mapping[:1] == b"1"
    os.close(descriptor)


def test_an_area_keeps_no_descriptor_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    areas = [new_area() for _ in range(3)]
    for _, descriptor in areas:
        os.close(descriptor)
    assert len(os.listdir("/proc/self/fd")) == before
    assert np.array_equal(areas[0][0].take(4), np.zeros(4, np.uint8))
