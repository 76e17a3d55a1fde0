"""How a batch of files becomes one of the sizes that the library was made ready for."""

from typing import Any

import numpy as np

from workers.engines.cuda.nvjpeg import DESTINATION, Decoder, NvJpeg, SharedStates


class Library(NvJpeg):
    """Notes the numbers of files that states are made for, and that are decoded, without a GPU."""

    def __init__(self) -> None:
        self.handle = None  # type: ignore[assignment]  # nothing has one here
        self.made: list[int] = []
        self.decoded: list[int] = []

    def call(self, name: str, *arguments: Any) -> None:
        if name == "nvjpegJpegStateCreate":
            arguments[1]._obj.value = len(self.made) + 1  # what `byref` points to
        if name == "nvjpegDecodeBatchedInitialize":
            self.made.append(arguments[2])
        if name == "nvjpegDecodeBatched":
            self.decoded.append(self.made[arguments[1].value - 1])


def sharing(library: Library, *sizes: int) -> SharedStates:
    """Return states for batches of these sizes."""
    shared = SharedStates()
    for n in sizes:
        shared.add(n, library.state(n))
    return shared


def decoded(decoder: Decoder, n: int) -> None:
    """Decode a batch of `n` files to its end."""
    started(decoder, n)
    decoder.free()


def started(decoder: Decoder, n: int) -> None:
    numbers = np.arange(n, dtype=np.uint64)
    decoder.decode(numbers, numbers + 1, np.zeros(n, DESTINATION), 0)


def test_a_batch_is_filled_up_to_the_smallest_state_that_has_room() -> None:
    library = Library()
    decoder = Decoder(library, 8, sharing(library, 4))
    for n in (5, 7, 8, 3, 4, 1):
        decoded(decoder, n)
    assert library.made == [4, 8]
    assert library.decoded == [8, 8, 8, 4, 4, 4]


def test_a_state_serves_one_batch_at_a_time_and_others_take_a_larger_one() -> None:
    library = Library()
    shared = sharing(library, 8, 16)
    first, second, third = (Decoder(library, 64, shared) for _ in range(3))
    for decoder in (first, second, third):
        started(decoder, 5)
    assert library.decoded == [8, 16, 64]
    first.free()
    decoded(third, 5)
    assert library.decoded[3:] == [8]


class Mark:
    """Event whose work ends when the test says so."""

    def __init__(self) -> None:
        self.ended = False

    def query(self) -> bool:
        return self.ended


def test_a_state_that_was_given_back_is_taken_only_when_its_batch_is_decoded() -> None:
    library, mark = Library(), Mark()
    shared = sharing(library, 8)
    first, second = (Decoder(library, 64, shared) for _ in range(2))
    started(first, 5)
    first.free(mark)
    decoded(second, 5)
    mark.ended = True
    decoded(second, 5)
    assert library.decoded == [8, 64, 8]
