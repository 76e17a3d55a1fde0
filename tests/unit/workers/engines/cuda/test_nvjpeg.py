"""How a batch of files becomes one of the sizes that the library was made ready for."""

from typing import Any, cast

import numpy as np
import pytest

from workers.engines.cuda.nvjpeg import DESTINATION, Decoder, NvJpeg, filled_up


class Library:
    """Notes what would be decoded."""

    handle = None

    def __init__(self) -> None:
        self.made: list[int] = []
        self.decoded: list[int] = []

    def call(self, name: str, *arguments: Any) -> None:
        if name == "nvjpegDecodeBatchedInitialize":
            self.made.append(arguments[2])
        if name == "nvjpegDecodeBatched":
            self.decoded.append(arguments[2].value)


@pytest.mark.parametrize(
    ("n", "filled"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (64, 64)]
)
def test_batches_are_filled_up_to_few_sizes(n: int, filled: int) -> None:
    assert filled_up(n) == filled


def test_the_library_is_made_ready_once_for_every_size() -> None:
    library = Library()
    decoder = Decoder(cast(NvJpeg, library))
    for n in (5, 7, 8, 3, 4, 6):
        numbers = np.arange(n, dtype=np.uint64)
        decoder.decode(numbers, numbers + 1, np.zeros(n, DESTINATION), 0)
    assert library.made == [8, 4]
    assert len(library.decoded) == 6
