"""Inputs that clients preprocessed: on the CPU they give the answers of their images to the bit."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from models.domain.image import Image, NetworkInput
from models.domain.job import Job, Labels, Vector
from models.networks.registry import BUNDLED, RESNET18
from models.settings import Precision
from tests.fakes import run_batch
from tests.pictures import drawing
from workers.engines.cpu.engine import CpuEngine
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import load_state
from workers.operations import Classify, NetworkOutput


@pytest.fixture(scope="module")
def engine() -> Iterator[CpuEngine]:
    network = CpuNetwork(load_state(BUNDLED.path, 10), Precision.FP32, RESNET18)
    made = CpuEngine([network], 4, 2)
    yield made
    made.close()


def pair(seed: int) -> tuple[Image, NetworkInput]:
    """Return an image, and what torchvision's transform makes of it."""
    drawn = drawing(300 + seed, 260, seed)
    from torchvision.models import ResNet18_Weights

    values = ResNet18_Weights.DEFAULT.transforms()(drawn)
    assert isinstance(values, torch.Tensor)
    return Image(np.asarray(drawn)), NetworkInput(values.numpy())


def answers(engine: CpuEngine, operation: Classify, sources: list[Image | NetworkInput]) -> object:
    found = run_batch(engine, [Job(operation, source) for source in sources])
    return [shown(value) for value in found.values]


def shown(value: object) -> object:
    if isinstance(value, Vector):
        return value.values.tobytes()
    assert isinstance(value, Labels)
    return value


@pytest.mark.parametrize("output", NetworkOutput)
def test_answers_are_those_of_the_images(engine: CpuEngine, output: NetworkOutput) -> None:
    images, inputs = zip(*(pair(seed) for seed in range(3)), strict=True)
    of_images = answers(engine, Classify(10, output=output), [*images])
    given = Classify(10, output=output, preprocessed=True)
    assert answers(engine, given, [*inputs]) == of_images


def test_an_input_that_is_not_finite_harms_no_other(engine: CpuEngine) -> None:
    good, operation = pair(1)[1], Classify(10, preprocessed=True)
    bad = NetworkInput(np.full((3, 224, 224), np.nan, np.float32))
    alone, mixed = (
        answers(engine, operation, [good] * 3),
        answers(engine, operation, [good, bad, good]),
    )
    assert isinstance(alone, list)
    assert isinstance(mixed, list)
    assert (mixed[0], mixed[2]) == (alone[0], alone[2])


def test_an_input_has_three_planes_of_float32() -> None:
    for wrong in (
        np.zeros((1, 2, 2), np.float32),
        np.zeros((3, 2, 2)),
        np.zeros((3, 0, 2), np.float32),
    ):
        with pytest.raises(ValueError, match="float32"):
            NetworkInput(wrong)  # type: ignore[arg-type]  # that is the test
