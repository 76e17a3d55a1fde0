"""An engine that serves before it has all its slots, graphs and decoder states."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from models.codec import pixels_of
from models.domain.image import Image
from models.domain.job import Job, Labels, Operation
from models.networks.resnet18 import RESNET18
from models.settings import Precision
from tests.gpu.conftest import as_jpeg, jpeg
from tests.gpu.equality import MAX_PIXELS
from tests.gpu.test_order import INVERT, pipelined
from workers.engines.checkpoint import State
from workers.engines.cuda.engine import SLOTS, CudaEngine
from workers.engines.cuda.network import GraphedNetwork
from workers.operations import Classify, NetworkOutput

BATCH = 16
PATIENCE = 60.0
"""Seconds for all late parts."""


def complete(engine: CudaEngine) -> bool:
    """Return whether the engine has all graphs, which are made after the slots."""
    (network,) = engine._networks
    return sorted(network._graphs) == [1, 2, 4, 8, BATCH]


@pytest.fixture
def early(state: State) -> Iterator[CudaEngine]:
    """Yield an engine that has just become able to serve."""
    network = GraphedNetwork(state, Precision.AUTO, RESNET18, BATCH, "cuda:0")
    made = CudaEngine([network], BATCH, MAX_PIXELS, "cuda:0", early=True)
    made.warm_up()
    yield made
    made.close()


def test_batches_beside_the_late_parts_are_right(early: CudaEngine) -> None:
    random = np.random.default_rng(5)
    known = [as_jpeg(jpeg(random.integers(0, 256, (90, 120, 3), np.uint8))) for _ in range(BATCH)]
    expected = [255 - pixels_of(each).pixels for each in known]
    kinds: list[Operation] = [INVERT, Classify(top_k=10), Classify(output=NetworkOutput.EMBEDDING)]
    scores: list[dict[int, float]] = [{} for _ in known]
    rounds = 0
    end = time.monotonic() + PATIENCE
    while (not complete(early) or rounds < 20) and time.monotonic() < end:
        rounds += 1
        n = 1 + rounds % BATCH
        batches = [[Job(kind, image) for image in known[:n]] for kind in kinds]
        filtered, classified, _ = pipelined(early, batches)
        for found, pixels in zip(filtered, expected, strict=False):
            assert isinstance(found, Image)
            assert np.array_equal(found.pixels, pixels)
        for value, first in zip(classified, scores, strict=False):
            assert isinstance(value, Labels)
            for class_id, score in zip(value.class_ids, value.scores, strict=True):
                assert abs(first.setdefault(class_id, score) - score) < 0.01
    assert complete(early)
    slots = [slot for slot in (early.acquire() for _ in range(SLOTS)) if slot is not None]
    assert len({id(slot) for slot in slots}) == SLOTS
    for slot in slots:
        early.release(slot)
