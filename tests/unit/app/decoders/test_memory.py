"""Bytes move between processes in memory files."""

import os

import numpy as np

from app.decoders.memory import contents, mapped, memory_file, moved_to_file

SIZE = 20 << 20


def test_moved_pixels_are_in_the_file_and_their_own_memory_is_free() -> None:
    pixels = np.full((SIZE // 1024, 256, 4), 7, np.uint8)
    memory = moved_to_file(pixels, b"and metadata")
    try:
        assert contents(memory, SIZE + 12) == bytes([7]) * SIZE + b"and metadata"
    finally:
        os.close(memory)
    assert np.count_nonzero(pixels) < 4 * 8192  # at most the pages at the ends of pieces


def test_pixels_that_lie_in_a_memory_file_are_moved_out_of_it() -> None:
    before = memory_file(bytes([7]) * SIZE)
    pixels = mapped(before, SIZE)
    taken = os.fstat(before).st_blocks
    memory = moved_to_file(pixels)
    try:
        assert contents(memory, SIZE) == bytes([7]) * SIZE
        assert os.fstat(before).st_blocks < taken / 100
    finally:
        os.close(memory)
        os.close(before)
