"""How a batch of files becomes one of the sizes that the library was made ready for."""

from typing import Any, cast

import numpy as np
import pytest

from workers.engines.cuda.nvjpeg.decoder import DESTINATION, Decoder, NvJpeg, first_sizes, sizes


class Library:
    """Notes the numbers of files that states are made for, and that are decoded."""

    handle = None

    def __init__(self) -> None:
        self.made: list[int] = []
        self.decoded: list[int] = []

    def call(self, name: str, *arguments: Any) -> None:
        if name == "nvjpegJpegStateCreate":
            arguments[1]._obj.value = len(self.made) + 1  # what `byref` points to
        if name == "nvjpegDecodeBatchedInitialize":
            self.made.append(arguments[2])
        if name == "nvjpegDecodeBatched":
            self.decoded.append(self.made[arguments[1].value - 1])


@pytest.mark.parametrize(
    ("most", "wanted"),
    [
        (1, [1]),
        (2, [1, 2]),
        (8, [1, 2, 4, 8]),
        (20, [1, 2, 4, 8, 16, 20]),
        (64, [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]),
    ],
)
def test_states_are_for_few_sizes_of_a_batch_and_never_above_the_largest(
    most: int, wanted: list[int]
) -> None:
    assert sizes(most) == wanted


@pytest.mark.parametrize("most", [1, 2, 8, 20, 64])
def test_the_first_sizes_have_room_for_every_batch(most: int) -> None:
    assert set(first_sizes(most)) <= set(sizes(most))
    assert max(first_sizes(most)) == most


def decoded(decoder: Decoder, n: int) -> None:
    numbers = np.arange(n, dtype=np.uint64)
    decoder.decode(numbers, numbers + 1, np.zeros(n, DESTINATION), 0)


def test_a_batch_is_filled_up_to_the_smallest_state_that_has_room() -> None:
    library = Library()
    decoder = Decoder(cast(NvJpeg, library))
    for n in (4, 8):
        decoder.add(n, decoder.state(n))
    for n in (5, 7, 8, 3, 4, 1):
        decoded(decoder, n)
    assert library.made == [4, 8]
    assert library.decoded == [8, 8, 8, 4, 4, 4]


def test_a_state_that_is_added_later_is_used_from_then_on() -> None:
    library = Library()
    decoder = Decoder(cast(NvJpeg, library))
    decoder.add(64, decoder.state(64))
    decoded(decoder, 8)
    decoder.add(8, decoder.state(8))
    decoded(decoder, 8)
    assert library.decoded == [64, 8]
