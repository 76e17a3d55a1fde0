"""Which states of a decoder are worth making."""

from typing import cast

import numpy as np

from tests.unit.workers.engines.cuda.nvjpeg.test_decoder import Library, decoded
from workers.engines.cuda.late_states import SURPLUS, needed
from workers.engines.cuda.nvjpeg.decoder import Decoder, NvJpeg, sizes

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
