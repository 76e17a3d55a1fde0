"""The forward pass against torchvision's own, and what `auto` may and may not do."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models import codec
from models.domain.image import Image
from models.networks.registry import RESNET18
from models.settings import Precision
from tests.pictures import as_image, drawing
from tests.shared import PHOTOS
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import State, random_state
from workers.preprocess import crop

CLASSES = 15


@pytest.fixture(scope="module")
def pictures() -> NDArray[np.uint8]:
    """Return crops of the photos where they are, else of drawings: uint8 (n, 224, 224, 3)."""
    if PHOTOS.is_dir():
        files = sorted(PHOTOS.iterdir())[::20]
        images = [as_image(codec.decode(f.read_bytes(), max_pixels=10**8).image) for f in files]
    else:
        images = [Image(np.asarray(drawing(300, 260, seed))) for seed in range(12)]
    return np.stack([crop(image, RESNET18.preprocessing) for image in images])


def in_parts(network: CpuNetwork, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the logits of pictures, eight at a time: all at once take a gigabyte."""
    parts = [network.logits(pictures[start : start + 8]) for start in range(0, len(pictures), 8)]
    return np.concatenate(parts)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    powers = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    found: NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
    return found


@pytest.fixture(scope="module")
def random_features(pictures: NDArray[np.uint8]) -> torch.Tensor:
    """Return torchvision's features of the pictures before the last layer, float32 (n, 512)."""
    state = random_state(0, CLASSES)
    import torchvision

    network = torchvision.models.resnet18(num_classes=CLASSES)
    network.load_state_dict(state)
    network.fc = torch.nn.Identity()
    batch = CpuNetwork(state, Precision.FP32, RESNET18).normalised(pictures)
    with torch.inference_mode():
        parts = [network.eval()(part) for part in batch.split(8)]  # all at once take a gigabyte
    return torch.cat(parts)


@pytest.fixture(scope="module")
def decided(pictures: NDArray[np.uint8], random_features: torch.Tensor) -> State:
    """Return random features with a last layer fitted to tell apart `CLASSES` groups of the images.

    Untrained scores are all alike, and no label could ever flip; these have margins of all sizes.
    """
    state = random_state(0, CLASSES)
    features = random_features.numpy().astype(np.float64)
    centred = features - features.mean(0)
    scaled = centred / centred.std()
    targets = np.eye(CLASSES)[np.arange(len(pictures)) % CLASSES] * 2
    weights = np.linalg.lstsq(
        scaled.T @ scaled + 30 * np.eye(features.shape[1]), scaled.T @ targets, rcond=None
    )[0]
    state["fc.weight"] = torch.from_numpy((weights / centred.std()).T.astype(np.float32))
    state["fc.bias"] = torch.from_numpy(
        (-features.mean(0) @ weights / centred.std()).astype(np.float32)
    )
    return state


def test_labels_equal_fp32_s_wherever_the_two_best_scores_differ_by_a_hundredth(
    pictures: NDArray[np.uint8], decided: State
) -> None:
    exact = softmax(in_parts(CpuNetwork(decided, Precision.FP32, RESNET18), pictures))
    fast = in_parts(CpuNetwork(decided, Precision.BF16, RESNET18), pictures)
    second, best = np.sort(exact, 1)[:, -2:].T
    clear = best - second >= 0.01
    assert clear.sum() >= len(pictures) // 4, "the network decides too little to test anything"
    assert np.array_equal(fast.argmax(1)[clear], exact.argmax(1)[clear])
