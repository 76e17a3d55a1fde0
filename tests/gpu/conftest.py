"""One engine for all tests on a GPU, with random weights, and what they run on it."""

from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage

from models.codec import encoded
from models.domain.image import Jpeg, Pixels
from models.networks.registry import BUNDLED, RESNET18
from models.settings import Precision
from tests.gpu.equality import MAX_PIXELS, Run, runner
from tests.shared import PHOTOS
from workers.engines.model import State, load_state

if find_spec("cupy") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from workers.engines.cuda.engine import CudaEngine
    from workers.engines.cuda.network import GraphedNetwork

MAX_BATCH_SIZE = 64


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: each needs a GPU."""
    for item in items:
        if "tests/gpu" in str(item.path):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def state() -> State:
    """Return the weights of the bundled network."""
    return load_state(BUNDLED.path, 10)


@pytest.fixture(scope="session")
def engine(state: State) -> "Iterator[CudaEngine]":
    """Yield one engine for all tests, warm."""
    network = GraphedNetwork(state, Precision.AUTO, RESNET18, MAX_BATCH_SIZE, "cuda:0")
    made = CudaEngine([network], MAX_BATCH_SIZE, MAX_PIXELS, "cuda:0")
    made.warm_up()
    yield made
    made.close()
    torch.cuda.synchronize()


@pytest.fixture(scope="session")
def run(engine: "CudaEngine") -> Run:
    """Return a function that runs one batch through the engine."""
    return runner(engine)


def jpeg(pixels: Pixels, **options: object) -> bytes:
    """Return a JPEG of uint8 (H, W, C), encoded by Pillow."""
    file = BytesIO()
    shown = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    PillowImage.fromarray(shown).save(file, "JPEG", **{"quality": 90, **options})
    return file.getvalue()


def as_jpeg(data: bytes) -> Jpeg:
    """Return a file as the JPEG that a front end sends."""
    found = encoded(data, max_pixels=MAX_PIXELS)
    assert found is not None
    assert isinstance(found.image, Jpeg)
    return found.image


def photos() -> list[bytes]:
    """Return the photos in sRGB, where they are; else a drawing."""
    files = [path.read_bytes() for path in sorted(PHOTOS.glob("*.JPEG"))]
    if files:
        return [data for data in files if encoded(data, max_pixels=MAX_PIXELS) is not None]
    ramp = np.add.outer(np.arange(300), np.arange(400)).astype(np.uint8)
    return [jpeg(np.stack([ramp, ramp.T[:300, :300].repeat(2, 1)[:, :400], 255 - ramp], -1))]
