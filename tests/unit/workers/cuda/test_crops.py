"""The crop kernels against Pillow's resize, on the CPU by emulation."""

import numpy as np
import pytest
import torch

from models.image import Image
from models.weights import RESNET18_PREPROCESSING as SPEC
from tests.emulation.staging import EmulatedKernels, noise, staging_slot
from workers.engines.cuda.crops import Cropper
from workers.preprocess import crop

SIZES = [(1, 1), (1, 40), (37, 2), (224, 224), (256, 256), (300, 255), (255, 401), (640, 333)]
SIDE = SPEC.crop


def cropped(images: list[Image], room: int = 1 << 22) -> np.ndarray[tuple[int, ...], np.dtype]:
    """All crops by one launch; the table leaves levels as they are."""
    slot = staging_slot(room)
    table = torch.arange(256, dtype=torch.int16).repeat_interleave(3).view(256, 3).contiguous()
    cropper = Cropper(EmulatedKernels(), SPEC, table)
    rows, starts = cropper.place(images, slot)
    rows_at, starts_at = slot.tables.add(rows), slot.tables.add(starts)
    slot.tables.upload()
    target = torch.full((len(images), SIDE, SIDE, 3), -1, dtype=torch.int16)
    cropper.launch(rows_at, starts_at, len(images), int(starts[-1]), target)
    return target.numpy()


def test_crops_of_mixed_sizes_and_channels_are_pillows() -> None:
    images = [Image(noise(*size, channels)) for size in SIZES for channels in (1, 3, 4)]
    found = cropped(images)
    for made, image in zip(found, images, strict=True):
        assert np.array_equal(made, crop(image, SPEC)), image.pixels.shape


@pytest.mark.parametrize("size", [(9200, 9190), (2000, 17)])
def test_crops_of_very_large_and_very_long_images_are_pillows(size: tuple[int, int]) -> None:
    image = Image(np.zeros((*size, 1), np.uint8) + noise(1, size[1], 1))
    (found,) = cropped([image], room=1 << 27)
    assert np.array_equal(found, crop(image, SPEC))
