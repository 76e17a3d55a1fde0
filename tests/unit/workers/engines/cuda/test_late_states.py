"""Which states of a decoder are worth making."""

from collections import Counter
from contextlib import suppress
from typing import cast

import numpy as np

from tests.unit.workers.engines.cuda.nvjpeg.test_decoder import Library, decoded
from workers.engines.cuda.late_parts import PAUSE
from workers.engines.cuda.late_states import REST, SURPLUS, TRIES, LateStates, missing, needed
from workers.engines.cuda.nvjpeg.decoder import Decoder, NvJpeg, NvJpegError, sizes

EVERY = sizes(64)


def decoder_with(*states: int) -> Decoder:
    made = Decoder(cast(NvJpeg, Library()))
    for n in states:
        made.add(n, made.state(n))
    return made


def test_whole_batches_need_no_further_state() -> None:
    decoder = decoder_with(64)
    for _ in range(100):
        decoded(decoder, 64)
    assert needed(decoder, EVERY) is None


def test_the_state_that_saves_most_is_made_once_it_is_worth_it() -> None:
    decoder = decoder_with(64)
    decoded(decoder, 50)
    for _ in range(SURPLUS // 63):
        assert needed(decoder, EVERY) is None
        decoded(decoder, 1)
    decoded(decoder, 1)
    assert needed(decoder, EVERY) == 1
    decoder.add(1, decoder.state(1))
    assert needed(decoder, EVERY) is None


def test_sizes_that_are_there_are_not_made_again() -> None:
    decoder = decoder_with(8, 64)
    for n in np.tile([6, 7], SURPLUS):
        decoded(decoder, int(n))
    assert needed(decoder, EVERY) is None


class Without(LateStates):
    """Late states that are only noted: making one needs a GPU."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoders, self._sizes, self._took = [decoder], EVERY, 0.5
        self._begun = Counter()
        self.made: list[int] = []

    def _add(self, decoder: Decoder, n: int) -> None:
        decoder.surplus.clear()
        decoder.add(n, decoder.state(n))
        self.made.append(n)


def test_all_states_are_made_while_nothing_is_decoded() -> None:
    decoder = decoder_with(64)
    late = Without(decoder)
    for part in late.parts():
        part()
    assert late.made == EVERY[-2::-1]
    assert not missing(decoder, EVERY)


def test_under_load_a_state_is_made_only_if_it_is_worth_it_and_followed_by_a_rest() -> None:
    decoder = decoder_with(64)
    late = Without(decoder)
    parts = late.parts()
    made = []
    for _ in range(40):
        for _ in range(SURPLUS // 63 + 1):
            decoded(decoder, 1 if not late.made else 9)
        next(parts)()
        made.append(len(late.made))
    assert late.made == [1, 16]
    assert made.index(2) - made.index(1) > REST * 0.5 / PAUSE


class Failing(Without):
    """Late states of which those of some sizes cannot be made."""

    def _add(self, decoder: Decoder, n: int) -> None:
        if n in (56, 9, 16):
            self.made.append(n)
            raise NvJpegError("nvjpegDecodeBatchedInitialize", 5)
        super()._add(decoder, n)


def test_a_state_that_cannot_be_made_is_tried_a_few_times_and_all_others_are_made() -> None:
    decoder = decoder_with(64)
    late = Failing(decoder)
    for _, part in zip(range(200), late.parts(), strict=False):
        with suppress(NvJpegError):
            part()
    assert [late.made.count(n) for n in (56, 16)] == [TRIES, TRIES]
    assert missing(decoder, EVERY) == {56, 16}
    assert not any(True for _ in late.parts())


def test_under_load_too_a_state_that_cannot_be_made_is_given_up() -> None:
    decoder = decoder_with(64)
    late = Failing(decoder)
    parts = late.parts()
    for _ in range(80):
        for _ in range(SURPLUS // 48 + 1):
            decoded(decoder, 16)
        with suppress(NvJpegError):
            next(parts)()
    assert late.made == [16] * TRIES + [24]  # the next larger one saves almost as much
