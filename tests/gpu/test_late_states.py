"""Decoder states that are added while the engine serves: every batch has the right pixels."""

import time

import numpy as np

from models.domain.image import Image
from tests.gpu.conftest import MAX_BATCH_SIZE, as_jpeg, jpeg
from tests.gpu.equality import Run
from workers.engines.cuda.engine import SLOTS, CudaEngine
from workers.engines.cuda.nvjpeg.decoder import sizes
from workers.filters.registry import parse_chain
from workers.operations import FilterChain

TWICE = FilterChain(parse_chain([{"name": "invert"}, {"name": "invert"}]))
PATIENCE = 60.0
"""Seconds for all states of all slots."""


def test_batches_of_every_size_are_right_before_and_after_their_states_are_there(
    run: Run, engine: CudaEngine
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (40, 56, 3), np.uint8)
    source = as_jpeg(jpeg(pixels, quality=90))
    first = run(TWICE, [source]).values[0]
    assert isinstance(first, Image)
    end = time.monotonic() + PATIENCE
    while not complete(engine) and time.monotonic() < end:
        for n in range(1, MAX_BATCH_SIZE + 1):
            for value in run(TWICE, [source] * n).values:
                assert isinstance(value, Image)
                assert np.array_equal(value.pixels, first.pixels)
    assert complete(engine)


def complete(engine: CudaEngine) -> bool:
    """Return whether the decoder of every slot has a state for every size."""
    slots = [slot for slot in (engine.acquire() for _ in range(SLOTS)) if slot is not None]
    try:
        every = sizes(MAX_BATCH_SIZE)
        return all(slot.decoder is not None and slot.decoder.sizes == every for slot in slots)
    finally:
        for slot in slots:
            engine.release(slot)
