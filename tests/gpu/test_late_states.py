"""Decoder states that are added while the engine serves: every batch has the right pixels."""

import time

import numpy as np

from models.domain.image import Image
from tests.gpu.conftest import MAX_BATCH_SIZE, as_jpeg, jpeg
from tests.gpu.equality import Run
from workers.engines.cuda.engine import CudaEngine
from workers.engines.cuda.nvjpeg.shared_states import shared_sizes
from workers.filters.registry import parse_chain
from workers.operations import FilterChain

TWICE = FilterChain(parse_chain([{"name": "invert"}, {"name": "invert"}]))
PATIENCE = 60.0
"""Seconds until the next state is there."""

RUNS = 20
"""Batches of one size in a row."""


def test_batches_of_every_size_are_right_before_and_after_their_states_are_there(
    run: Run, engine: CudaEngine
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (40, 56, 3), np.uint8)
    source = as_jpeg(jpeg(pixels, quality=90))
    first = run(TWICE, [source]).values[0]
    assert isinstance(first, Image)

    def check(n: int) -> None:
        for value in run(TWICE, [source] * n).values:
            assert isinstance(value, Image)
            assert np.array_equal(value.pixels, first.pixels)

    every = range(1, MAX_BATCH_SIZE + 1)
    for n in every:
        check(n)
    left, end = missing(engine), time.monotonic() + PATIENCE
    while left and time.monotonic() < end:
        for n in left:
            for _ in range(RUNS):
                check(n)
        if (now := missing(engine)) != left:
            left, end = now, time.monotonic() + PATIENCE
    assert left == []
    for n in every:
        check(n)


def missing(engine: CudaEngine) -> list[int]:
    """Return the sizes for which the slots share no state yet."""
    made = engine._states.sizes
    return [n for n in shared_sizes(MAX_BATCH_SIZE) if n not in made]
