"""The scores of an image do not depend on its batch where a bulk command may continue later."""

from collections.abc import Iterator

import numpy as np
import pytest

from models.domain.image import Image
from models.domain.job import Job, Labels
from models.networks.registry import RESNET18
from models.settings import Precision
from tests.fakes import run_batch
from tests.pictures import drawing
from workers.engines.cpu.engine import CpuEngine
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import random_state
from workers.operations import Classify

BATCH = 4


@pytest.fixture(scope="module")
def engine() -> Iterator[CpuEngine]:
    network = CpuNetwork(random_state(0, 10), Precision.FP32, RESNET18)
    made = CpuEngine([network], BATCH, 2, full_batches=True)
    made.warm_up()
    yield made
    made.close()


def labels(engine: CpuEngine, *seeds: int) -> list[Labels]:
    """Return the labels of pictures that are computed as one batch."""
    pictures = (Image(np.asarray(drawing(300, 260, seed))) for seed in seeds)
    values = run_batch(engine, [Job(Classify(top_k=10), each) for each in pictures]).values
    assert all(isinstance(each, Labels) for each in values)
    return [each for each in values if isinstance(each, Labels)]


def test_scores_are_the_same_bits_in_every_batch(engine: CpuEngine) -> None:
    all_together = labels(engine, *range(BATCH))
    for n in range(1, BATCH):
        assert labels(engine, *range(n)) == all_together[:n]
    assert labels(engine, *reversed(range(BATCH))) == all_together[::-1]
    assert len({each.scores for each in all_together}) == BATCH
