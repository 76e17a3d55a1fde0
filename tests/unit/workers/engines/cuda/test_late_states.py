"""Which shared states of the decoders are worth making."""

from collections import Counter
from contextlib import suppress

import numpy as np

from tests.unit.workers.engines.cuda.nvjpeg.test_decoder import Library, decoded, sharing
from workers.engines.cuda.late_parts import PAUSE
from workers.engines.cuda.late_states import REST, SURPLUS, TRIES, LateStates, needed
from workers.engines.cuda.nvjpeg.decoder import Decoder, NvJpegError
from workers.engines.cuda.nvjpeg.shared_states import shared_sizes

MOST = 64
EVERY = shared_sizes(MOST)


class Without(LateStates):
    """Late states that are tried on no device: trying one needs a GPU."""

    def __init__(self, *there: int) -> None:
        library = Library()
        self._nvjpeg, self._shared = library, sharing(library, *there)
        self.decoder = Decoder(library, MOST, self._shared)
        self._sizes, self._took, self._begun = EVERY, 0.5, Counter()
        self.made: list[int] = []

    @property
    def wanted(self) -> int | None:
        """Return the size that is worth a state."""
        there = self._shared.sizes
        return needed(self._shared.surplus, there, set(EVERY) - set(there))

    @property
    def missing(self) -> set[int]:
        """Return the sizes that have no state."""
        return set(EVERY) - set(self._shared.sizes)

    def _add(self, n: int) -> None:
        self._shared.add(n, self._nvjpeg.state(n))
        self.made.append(n)


def test_whole_batches_need_no_further_state() -> None:
    late = Without()
    for _ in range(100):
        decoded(late.decoder, MOST)
    assert late.wanted is None


def test_the_state_that_saves_most_is_made_once_it_is_worth_it() -> None:
    late = Without()
    decoded(late.decoder, 50)
    for _ in range(SURPLUS // 63):
        assert late.wanted is None
        decoded(late.decoder, 1)
    decoded(late.decoder, 1)
    assert late.wanted == 1
    late._add(1)
    assert late.wanted is None


def test_sizes_that_are_there_are_not_made_again() -> None:
    late = Without(8)
    for n in np.tile([6, 7], SURPLUS):
        decoded(late.decoder, int(n))
    assert late.wanted is None


def test_batches_above_the_largest_shared_size_need_no_further_state() -> None:
    late = Without()
    for _ in range(SURPLUS):
        decoded(late.decoder, MOST - 1)
    assert late.wanted is None


def test_all_states_are_made_while_nothing_is_decoded() -> None:
    late = Without()
    for part in late.parts():
        part()
    assert late.made == EVERY[::-1]
    assert not late.missing


def test_under_load_a_state_is_made_only_if_it_is_worth_it_and_followed_by_a_rest() -> None:
    late = Without()
    parts = late.parts()
    made = []
    for _ in range(40):
        for _ in range(SURPLUS // 63 + 1):
            decoded(late.decoder, 1 if not late.made else 9)
        next(parts)()
        made.append(len(late.made))
    assert late.made == [1, 16]
    assert made.index(2) - made.index(1) > REST * 0.5 / PAUSE


class Failing(Without):
    """Late states of which those of some sizes cannot be made."""

    def _add(self, n: int) -> None:
        if n in (56, 9, 16):
            self.made.append(n)
            raise NvJpegError("nvjpegDecodeBatchedInitialize", 5)
        super()._add(n)


def test_a_state_that_cannot_be_made_is_tried_a_few_times_and_all_others_are_made() -> None:
    late = Failing()
    for _, part in zip(range(200), late.parts(), strict=False):
        with suppress(NvJpegError):
            part()
    assert [late.made.count(n) for n in (56, 16)] == [TRIES, TRIES]
    assert late.missing == {56, 16}
    assert not any(True for _ in late.parts())


def test_under_load_too_a_state_that_cannot_be_made_is_given_up() -> None:
    late = Failing()
    parts = late.parts()
    for _ in range(80):
        for _ in range(SURPLUS // 48 + 1):
            decoded(late.decoder, 16)
        with suppress(NvJpegError):
            next(parts)()
    assert late.made == [16] * TRIES + [24]  # the next larger one saves almost as much
