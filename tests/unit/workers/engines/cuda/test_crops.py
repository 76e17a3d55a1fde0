"""The crop kernels against Pillow's resize, on the CPU by emulation."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from models.codec.stripes import upright
from models.domain.image import Image, Source, Subsampling
from models.networks.registry import RESNET18, RESNET50
from models.networks.spec import Interpolation, Preprocessing
from tests.emulation.staging import EmulatedKernels, Planes, jpeg_file, noise, staging_slot
from workers.engines.cuda.classifying import Cropper, weights_bytes
from workers.engines.cuda.nvjpeg import Decoder
from workers.preprocess import crop

SIZES = [(1, 1), (1, 40), (37, 2), (224, 224), (256, 256), (300, 255), (255, 401), (640, 333)]
TALL = [(1200, 300), (900, 400), (2000, 257), (513, 256), (599, 300), (600, 300), (601, 300)]
"""Pillow begins with the columns of most of these, with the rows of those in SIZES."""

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
OTHERS = {
    "resnet50": RESNET50.preprocessing,
    "bicubic": Preprocessing(248, 224, MEAN, STD, 1, Interpolation.BICUBIC),
    "large": Preprocessing(384, 384, MEAN, STD, 1, Interpolation.BICUBIC),
    "small": Preprocessing(40, 32, MEAN, STD, 1, Interpolation.BICUBIC),
    "squashed": Preprocessing(224, 224, MEAN, STD, 1, Interpolation.BICUBIC, squash=True),
    "squashed-bilinear": Preprocessing(100, 96, MEAN, STD, 1, squash=True),
}


def cropped(
    images: Sequence[Source],
    room: int = 1 << 22,
    decoder: Any = None,
    spec: Preprocessing = RESNET18.preprocessing,
) -> np.ndarray[tuple[int, ...], np.dtype]:
    """Return all crops, made by one launch; the table leaves levels as they are."""
    slot = staging_slot(room, cast(Decoder, decoder))
    table = torch.arange(256, dtype=torch.int16).repeat_interleave(3).view(256, 3).contiguous()
    cropper = Cropper(EmulatedKernels(), spec, table)
    rows, starts = cropper.place(images, slot)
    rows_at, starts_at = slot.tables.add(rows), slot.tables.add(starts)
    slot.tables.upload()
    target = torch.full((len(images), spec.crop, spec.crop, 3), -1, dtype=torch.int16)
    n_pixels = sum(image.n_pixels for image in images)
    assert slot.weights.used <= weights_bytes(n_pixels, len(images), [spec])
    cropper.launch(rows_at, starts_at, len(images), int(starts[-1]), target)
    return target.numpy()


@pytest.mark.parametrize(
    ("sizes", "channels", "spec"),
    [
        pytest.param(SIZES, (1, 3, 4), RESNET18.preprocessing, id="mixed"),
        pytest.param(TALL + SIZES[-2:], (1, 3, 4), RESNET18.preprocessing, id="tall"),
        *(
            pytest.param([*SIZES, TALL[0], (3, 1400)], (3,), spec, id=f"as {name}")
            for name, spec in OTHERS.items()
        ),
    ],
)
def test_crops_are_pillows(
    sizes: list[tuple[int, int]], channels: Sequence[int], spec: Preprocessing
) -> None:
    images = [Image(noise(*size, each)) for size in sizes for each in channels]
    for made, image in zip(cropped(images, 1 << 25, spec=spec), images, strict=True):
        assert np.array_equal(made, crop(image, spec)), image.pixels.shape


@pytest.mark.slow
@pytest.mark.parametrize("size", [(8200, 4000), (2000, 17)])
def test_crops_of_very_large_and_very_long_images_are_pillows(size: tuple[int, int]) -> None:
    image = Image(np.zeros((*size, 1), np.uint8) + noise(1, size[1], 1))
    (found,) = cropped([image], room=1 << 27)
    assert np.array_equal(found, crop(image, RESNET18.preprocessing))


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize("stored", [(1200, 300), (300, 1200)])
def test_a_jpeg_is_as_tall_as_it_is_upright(stored: tuple[int, int], orientation: int) -> None:
    samples = noise(*stored, 1)
    image = Image(np.ascontiguousarray(upright(samples, orientation)))
    jpeg = jpeg_file(image.height, image.width, orientation, Subsampling.GREY)
    (found,) = cropped([jpeg], decoder=Planes([samples[..., 0]]))
    assert np.array_equal(found, crop(image, RESNET18.preprocessing))
