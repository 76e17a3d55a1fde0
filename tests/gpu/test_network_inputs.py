"""Inputs that clients preprocessed: on the GPU they give the scores of their images, to the bit."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.codec import pixels_of
from models.domain.errors import ServiceError
from models.domain.image import Image, NetworkInput, Source
from models.domain.job import Labels, Vector
from models.networks.registry import RESNET18
from tests.gpu.conftest import MAX_BATCH_SIZE, as_jpeg, photos
from tests.gpu.equality import Run
from workers.engines.builder import normalisation_table
from workers.engines.cuda.engine import CudaEngine
from workers.operations import Classify, FunctionToApply, NetworkOutput
from workers.preprocess import crop


def preprocessed(source: Source) -> NetworkInput:
    """Return an image as torchvision preprocesses it: float32 (3, 224, 224)."""
    levels = crop(pixels_of(source), RESNET18.preprocessing)
    table = normalisation_table(RESNET18.preprocessing)[0]
    values: NDArray[np.float32] = np.stack([table[levels[..., c], c] for c in range(3)])
    return NetworkInput(np.ascontiguousarray(values, np.float32))


def images() -> list[Source]:
    """Return photos and random pixels, a full batch at most."""
    random = np.random.default_rng(3)
    drawn = [
        Image(random.integers(0, 256, (h, w, 3), np.uint8)) for h, w in [(224, 224), (90, 300)]
    ]
    return [*(as_jpeg(data) for data in photos()[: MAX_BATCH_SIZE - 2]), *drawn]


def test_the_device_has_the_same_input(run: Run, engine: CudaEngine) -> None:
    batch = images()
    (network,) = engine._networks
    run(Classify(), batch)
    made = network.input[: len(batch)].clone()
    run(Classify(preprocessed=True), [preprocessed(each) for each in batch])
    assert torch.equal(network.input[: len(batch)], made)


@pytest.mark.parametrize("output", NetworkOutput)
def test_answers_are_those_of_the_images(run: Run, output: NetworkOutput) -> None:
    batch = images()
    asked = Classify(10, FunctionToApply.SOFTMAX, output=output)
    given = Classify(10, FunctionToApply.SOFTMAX, output=output, preprocessed=True)
    of_images = run(asked, batch).values
    of_inputs = run(given, [preprocessed(each) for each in batch]).values
    assert [shown(each) for each in of_inputs] == [shown(each) for each in of_images]


def test_a_full_batch_of_inputs_fits_its_slot(run: Run) -> None:
    one = preprocessed(images()[0])
    values = run(Classify(preprocessed=True), [one] * MAX_BATCH_SIZE).values
    assert len({shown(each) for each in values}) == 1


def test_values_that_are_not_finite_harm_no_other_image(run: Run) -> None:
    good = preprocessed(images()[0])
    bad = NetworkInput(np.full((3, 224, 224), np.nan, np.float32))
    operation = Classify(output=NetworkOutput.LOGITS, preprocessed=True)
    alone = run(operation, [good, good, good]).values
    mixed = run(operation, [good, bad, good]).values
    assert [shown(mixed[0]), shown(mixed[2])] == [shown(alone[0]), shown(alone[2])]


def shown(value: object) -> object:
    """Return an answer so that it can be compared."""
    assert not isinstance(value, ServiceError)
    if isinstance(value, Vector):
        return value.values.tobytes()
    assert isinstance(value, Labels)
    return value
