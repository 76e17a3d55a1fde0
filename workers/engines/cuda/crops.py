"""Make the network's input of images on the device: one launch for a batch of any sizes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.codec import pixels_of
from models.domain.image import Image, Source
from models.networks.spec import Preprocessing
from workers.engines.cuda.compiled.launcher import Launcher
from workers.engines.cuda.slot import ALIGNMENT, Slot
from workers.engines.cuda.sources import SOURCE, Sources, Table
from workers.preprocess import columns_first, crop, geometry

CROP = np.dtype(
    [
        ("source", SOURCE),
        ("resized", np.int32, 2),
        ("corner", np.int32, 2),
        ("weights", np.uint64),
        ("taps", np.int32),
        ("tile", np.int32),
        ("columns_first", np.int32),
        ("reserved", np.int32),
    ]
)
"""The struct `Crop` of kernels/crop.cu."""

THREADS = 512
ROWS = 72
"""Source rows, as wide as the crop, for which a block of `crop_normalise` has shared memory."""

TILE = 28
"""Output rows of a block; fewer where the image is so large that fewer fit."""


class Cropper:
    """Write crops, normalised as `table` (256, 3) says, into the network's input."""

    def __init__(self, kernels: Launcher, spec: Preprocessing, table: Tensor) -> None:
        self._kernels = kernels
        self._spec = spec
        self._table = table
        self._normalise = f"crop_normalise_{8 * table.element_size()}"

    def place(self, images: Sequence[Source], slot: Slot) -> tuple[Table, Table]:
        """Place the images in the slot and return how to crop them.

        The first table has a CROP row for each image; the second says where the blocks of each
        image start, uint32 (n + 1,). Uploads go to the current stream.
        """
        rows = np.zeros(len(images), CROP)
        rows["source"] = Sources(slot).place([self._shrunk(image) for image in images])
        for index, image in enumerate(images):
            rows[index] = (rows[index]["source"], *self._geometry(image, slot))
        blocks = -(-self._spec.crop // rows["tile"])
        starts = np.concatenate(([0], np.cumsum(blocks))).astype(np.uint32)
        return rows, starts

    def launch(self, rows: int, starts: int, n: int, n_blocks: int, target: Tensor) -> None:
        """Launch the kernels for weights and then for crops, on the current stream.

        `rows` and `starts` are the device addresses of the tables that `place` returned.
        """
        side = np.int32(self._spec.crop)
        self._kernels.launch("crop_weights", 2 * n, 256, (rows, side))
        arguments = (rows, starts, np.int32(n), side, self._table.data_ptr(), target.data_ptr())
        self._kernels.launch(self._normalise, n_blocks, THREADS, arguments)

    def _geometry(self, image: Source, slot: Slot) -> tuple[Any, ...]:
        if _too_large(image, self._spec):
            height = width = resized_height = resized_width = self._spec.crop
            top = left = 0
        else:
            height, width = image.height, image.width
            resized_height, resized_width, top, left = geometry(height, width, self._spec)
        support = max(height / resized_height, width / resized_width, 1.0)
        taps = 2 * int(np.ceil(support)) + 1
        weights = slot.weights.take(2 * (2 + taps) * self._spec.crop * 4)
        corner, resized = (left, top), (resized_width, resized_height)
        by_columns = columns_first((height, width), (resized_height, resized_width))
        if by_columns:
            tile = _tile_of_columns(width / resized_width, self._spec.crop)
        else:
            tile = _tile_of_rows(height / resized_height)
        return resized, corner, slot.weights.address(weights), taps, tile, by_columns, 0

    def _shrunk(self, image: Source) -> Source:
        """Return the image, or its crop made by the CPU where no block could hold the rows it
        needs.
        """
        if not _too_large(image, self._spec):
            return image
        return Image(crop(pixels_of(image), self._spec))


def _tile_of_rows(scale: float) -> int:
    """Return the output rows of a block that resamples the source's rows first."""
    return min(TILE, 1 + int((ROWS - 2 - 2 * max(scale, 1.0)) / scale))


def _tile_of_columns(scale: float, side: int) -> int:
    """Return the output rows of a block that resamples the source's columns first.

    It needs all source columns that the crop needs.
    """
    return min(TILE, ROWS * side // (int((side + 1) * scale) + 2))


def _too_large(image: Source, spec: Preprocessing) -> bool:
    return 2 * min(image.height, image.width) / spec.resize + 2 > ROWS - 2


def input_buffer(n: int, spec: Preprocessing, dtype: torch.dtype, device: str) -> Tensor:
    """Return zeros of the shape (n, 3, crop, crop), channels last."""
    shape = (n, spec.crop, spec.crop, 3)
    return torch.zeros(shape, dtype=dtype, device=device).permute(0, 3, 1, 2)


def weights_bytes(pixels: int, max_batch_size: int, each: Sequence[Preprocessing]) -> int:
    """Return the bytes for the resampling weights of any batch of `pixels` for any network.

    They are 2 · crop · (2 + taps) integers of 4 bytes an image. An image of p pixels has at most
    2 · sqrt(p) / resize + 3 taps; the sum of the roots is largest when all images of a batch are
    equal.
    """
    root = math.isqrt(max_batch_size * pixels)
    integers = [2 * spec.crop * (6 * max_batch_size + 2 * root // spec.resize) for spec in each]
    return 4 * max(integers) + ALIGNMENT * max_batch_size
