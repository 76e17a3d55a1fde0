"""Logits and embeddings of the CPU engine: torchvision's own, and the same in every company."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.domain.errors import WeightsMissing
from models.domain.image import Image
from models.domain.job import Job, Result, Vector
from models.networks.registry import NETWORKS
from models.settings import Precision
from tests.fakes import run_batch
from tests.pictures import drawing
from workers.engines.cpu.engine import CpuEngine
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import State, random_state
from workers.operations import Classify, NetworkOutput
from workers.preprocess import crop

CLASSES = 7
TOLERANCE = 1e-5
"""The largest difference of scores that labels may have; vectors are scaled to their largest."""


@pytest.fixture(scope="module", params=["resnet18", "resnet50"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def state(name: str) -> State:
    return random_state(0, CLASSES, NETWORKS[name])


@pytest.fixture(scope="module")
def engine(name: str, state: State) -> Iterator[CpuEngine]:
    made = CpuEngine([CpuNetwork(state, Precision.FP32, NETWORKS[name])], 4, 2)
    yield made
    made.close()


def picture(seed: int) -> Image:
    return Image(np.asarray(drawing(300 + seed, 260, seed)))


def computed(engine: CpuEngine, operation: Classify, *seeds: int) -> list[NDArray[np.float32]]:
    jobs = [Job(operation, picture(seed)) for seed in seeds]
    return [vector_of(value) for value in run_batch(engine, jobs).values]


def vector_of(value: Result | Exception) -> NDArray[np.float32]:
    assert isinstance(value, Vector)
    assert value.values.dtype == np.float32
    return value.values


def reference(name: str, state: State, output: NetworkOutput, seed: int) -> NDArray[np.float32]:
    """Return what torchvision's own network gives for the crop of torchvision's own transform."""
    import torchvision

    network = getattr(torchvision.models, name)(num_classes=CLASSES)
    network.load_state_dict(state)
    if output is NetworkOutput.EMBEDDING:
        network.fc = torch.nn.Identity()
    spec = NETWORKS[name].preprocessing
    pixels = crop(picture(seed), spec)
    levels = torch.from_numpy(pixels).permute(2, 0, 1).float().div(255)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (spec.mean, spec.std))
    with torch.inference_mode():
        found: NDArray[np.float32] = network.eval()((levels - mean).div(std)[None])[0].numpy()
    return found


VECTORS = pytest.mark.parametrize("output", [NetworkOutput.LOGITS, NetworkOutput.EMBEDDING])


@VECTORS
def test_vectors_are_torchvision_s_own(
    engine: CpuEngine, name: str, state: State, output: NetworkOutput
) -> None:
    (found,) = computed(engine, Classify(network=name, output=output), 3)
    expected = reference(name, state, output, 3)
    size = CLASSES if output is NetworkOutput.LOGITS else NETWORKS[name].features
    assert found.shape == expected.shape == (size,)
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@VECTORS
def test_a_vector_is_the_same_to_the_bit_in_every_company(
    engine: CpuEngine, name: str, output: NetworkOutput
) -> None:
    operation = Classify(network=name, output=output)
    (alone,) = computed(engine, operation, 1)
    together = computed(engine, operation, 0, 1, 2, 1)
    assert together[1].tobytes() == together[3].tobytes() == alone.tobytes()
    assert together[0].tobytes() != alone.tobytes()


def test_a_network_without_weights_is_an_error_of_its_own() -> None:
    engine = CpuEngine([], 1, 1)
    (value,) = run_batch(engine, [Job(Classify(network="resnet50"), picture(0))]).values
    engine.close()
    assert isinstance(value, WeightsMissing)


def test_jobs_for_other_networks_inputs_or_outputs_have_other_batches() -> None:
    operations = [
        Classify(),
        Classify(network="resnet50"),
        Classify(output=NetworkOutput.LOGITS),
        Classify(output=NetworkOutput.EMBEDDING),
        Classify(preprocessed=True),
    ]
    assert len({each.batch_key for each in operations}) == len(operations)
    assert Classify(top_k=1).batch_key == Classify(top_k=9).batch_key
