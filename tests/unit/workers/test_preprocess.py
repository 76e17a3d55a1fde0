import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage

from models import codec
from models.domain.image import Image, Pixels
from models.networks.registry import RESNET18
from models.networks.spec import Interpolation, Preprocessing
from models.settings import Precision
from tests.memory import traced
from tests.pictures import as_image, drawing
from tests.shared import PHOTOS
from workers import preprocess
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import random_state

TALL = [(300, 1200), (400, 900), (257, 2000), (300, 600), (300, 601)]


@functools.cache
def reference() -> Any:
    """Return torchvision's transform; it is imported here, because the import takes 120 MB."""
    from torchvision.models import ResNet18_Weights

    return ResNet18_Weights.IMAGENET1K_V1.transforms()


BICUBIC = replace(RESNET18.preprocessing, resize=248, interpolation=Interpolation.BICUBIC)
SQUASHED = replace(BICUBIC, resize=224, squash=True)


def resized(pixels: Pixels, spec: Preprocessing) -> Pixels:
    """Return the crop that the transforms of torchvision give: the pipeline of timm."""
    from torchvision import transforms

    interpolation = transforms.InterpolationMode[spec.interpolation.name]
    size = (spec.resize, spec.resize) if spec.squash else spec.resize
    steps = [transforms.Resize(size, interpolation), transforms.CenterCrop(spec.crop)]
    return np.asarray(transforms.Compose(steps)(PillowImage.fromarray(pixels)))


@pytest.mark.parametrize("spec", [BICUBIC, SQUASHED], ids=["bicubic", "squashed"])
def test_another_interpolation_and_a_squash_give_torchvision_s_pixels(spec: Preprocessing) -> None:
    for size in [(500, 375), (224, 224), (1, 1), (3, 7), (2047, 257), (1000, 9), (9, 1000), *TALL]:
        pixels = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
        found = preprocess.crop(Image(pixels), spec)
        assert np.array_equal(found, resized(pixels, spec)), size


@pytest.fixture(scope="module")
def network() -> CpuNetwork:
    return CpuNetwork(random_state(0, 10), Precision.FP32, RESNET18)


def ours(image: Image, network: CpuNetwork) -> torch.Tensor:
    return network.normalised(preprocess.crop(image, RESNET18.preprocessing)[None])[0]


def test_the_network_s_input_is_bit_equal_to_torchvision_s_on_pillow_images(
    network: CpuNetwork,
) -> None:
    for mode, size in itertools.product(
        ["RGB", "L"],
        [
            (500, 375),
            (375, 500),
            (224, 224),
            (256, 256),
            (1, 1),
            (3, 7),
            (640, 81),
            (2047, 257),
            *TALL,
        ],
    ):
        picture = drawing(*size, mode=mode)
        pixels = np.asarray(picture).reshape(size[1], size[0], -1)
        assert torch.equal(ours(Image(pixels), network), reference()(picture.convert("RGB")))


def test_the_photos_are_preprocessed_bit_equal(network: CpuNetwork) -> None:
    if not PHOTOS.is_dir():
        pytest.skip("the photos of ../shared/data are not here")
    for path in sorted(PHOTOS.iterdir()):
        image = as_image(codec.decode(path.read_bytes(), max_pixels=10**8).image)
        with PillowImage.open(path) as picture:
            converted = "icc_profile" in picture.info
            shown = PillowImage.fromarray(codec.flatten(image).pixels) if converted else picture
            expected = reference()(shown.convert("RGB"))
        assert torch.equal(ours(image, network), expected), path.name


def resized_whole(pixels: Pixels) -> Pixels:
    """Return the bytes behind the tensor of torchvision's pipeline, uint8 (H, W, 3)."""
    whole = reference()(PillowImage.fromarray(pixels))
    mean, std = (torch.tensor(v)[:, None, None] for v in (reference().mean, reference().std))
    levels = (whole * std + mean).mul(255).round().to(torch.uint8)
    return np.asarray(levels.permute(1, 2, 0), np.uint8)


@given(st.integers(1, 12), st.integers(90, 700), st.booleans(), st.integers(0, 99))
def test_very_long_images_are_cropped_as_if_resized_whole(
    short: int, long: int, tall: bool, seed: int
) -> None:
    size = (long, short) if tall else (short, long)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    found = preprocess.crop(Image(pixels), RESNET18.preprocessing)
    assert np.array_equal(found, resized_whole(pixels))


def test_very_long_images_are_cropped_in_little_memory() -> None:
    for channels, size in itertools.product(
        [1, 3, 4], [(1, 65500), (65500, 1), (2_000_000, 1), (1, 2_000_000)]
    ):
        image = Image(np.zeros((*size, channels), np.uint8))
        with traced() as peak:
            assert preprocess.crop(image, RESNET18.preprocessing).shape == (224, 224, 3)
            assert peak() < 4 << 20


def test_alpha_is_flattened_before_an_image_is_resized() -> None:
    for size in [(9, 500), (500, 9), (300, 400)]:
        pixels = np.random.default_rng(2).integers(0, 256, (*size, 4), np.uint8)
        flat = codec.flatten(Image(pixels))
        expected = preprocess.crop(flat, RESNET18.preprocessing)
        assert np.array_equal(preprocess.crop(Image(pixels), RESNET18.preprocessing), expected)


@pytest.mark.parametrize("size", [(400, 300), (300, 400), (257, 999), (999, 257), (224, 230)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_large_image_is_resized_in_stripes_to_the_same_crop(
    size: tuple[int, int], channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*size, channels), np.uint8)
    whole = preprocess.crop(Image(pixels), RESNET18.preprocessing)
    monkeypatch.setattr(preprocess, "STRIPE", 5000)
    assert np.array_equal(preprocess.crop(Image(pixels), RESNET18.preprocessing), whole)
