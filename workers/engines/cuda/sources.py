"""Places of the images of a batch on the device, and their way there."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.codec import pixels_of
from models.domain.errors import ServiceError
from models.domain.image import Jpeg, Source, Subsampling
from workers.engines.cuda.jpeg_blocks import fits
from workers.engines.cuda.nvjpeg import DESTINATION, NvJpegError
from workers.engines.cuda.slot import GpuSlot, Launcher, Region

log = logging.getLogger("darkroom.cuda")

SOURCE = np.dtype(
    [
        ("plane", np.uint64, 3),
        ("pitch", np.int32, 3),
        ("width", np.int32),
        ("height", np.int32),
        ("kind", np.int32),
        ("orientation", np.int32),
        ("reserved", np.int32),
    ]
)
"""The struct `Source` of kernels/headers/source.cuh."""

Table = NDArray[Any]
"""A structured array with one row for each image."""

KINDS = {
    Subsampling.GREY: 1,
    Subsampling.S444: 5,
    Subsampling.S422: 6,
    Subsampling.S420: 7,
}
"""The enum `Kind` of headers/source.cuh; the kind of samples is their number of channels."""

PITCH = 32
"""Bytes; the rows of a plane begin at multiples of it."""


class BatchSources:
    """Put the images of a batch into its slot: JPEGs by the decode engines, pixels by a copy.

    `planar` are the indexes of images that lie as planes; all further images lie as samples.
    """

    def __init__(self, slot: GpuSlot, kernels: Launcher) -> None:
        self._slot = slot
        self._kernels = kernels
        self.planar: list[int] = []

    def place(self, images: Sequence[Source]) -> Table:
        """Start all copies and decoding on the current stream; return a SOURCE row for each image.

        JPEGs that the engines refuse are decoded on the CPU; `slot.jpeg_blocks` tells, when the
        batch is done, which further files must be. An image that cannot be decoded gets the row of
        an image of a single pixel, and its error goes to `slot.failed`.
        """
        slot = self._slot
        rows = np.zeros(len(images), SOURCE)
        groups: dict[Subsampling, list[int]] = {}
        encoded: dict[int, Jpeg] = {}
        for index, image in enumerate(images):
            if not isinstance(image, Jpeg) or slot.decoder is None or not fits(image):
                rows[index] = self._pixels(index, image)
            else:
                rows[index] = planes(image, slot.second)
                groups.setdefault(image.subsampling, []).append(index)
                encoded[index] = image
        if encoded:
            slot.jpeg_blocks.check(self._kernels, encoded)
        slot.marks.copied.record()
        for group in groups.values():
            self._decode(images, group, rows)
        return rows

    def _decode(self, images: Sequence[Source], group: list[int], rows: Table) -> None:
        """Decode the JPEGs of a subsampling in a single call, or on the CPU where the call
        fails.
        """
        # The engines read the files after this call has returned. `slot.jobs` keeps them alive
        # until the batch is done.
        files = [image.data for index in group if isinstance(image := images[index], Jpeg)]
        addresses = np.array([f.__array_interface__["data"][0] for f in files], np.uint64)
        lengths = np.array([len(f) for f in files], np.uint64)
        destinations = np.zeros(len(group), DESTINATION)
        destinations["channel"][:, :3] = rows["plane"][group]
        destinations["pitch"][:, :3] = rows["pitch"][group]
        assert self._slot.decoder is not None
        try:
            stream = torch.cuda.current_stream().cuda_stream
            self._slot.decoder.decode(addresses, lengths, destinations, stream)
        except NvJpegError as error:
            log.warning("%d JPEGs are decoded on the CPU: %s", len(group), error)
            for index in group:
                rows[index] = self._pixels(index, images[index])
        else:
            self.planar += group

    def _pixels(self, index: int, image: Source) -> tuple[Any, ...]:
        """Copy the samples of an image, decoding them first where it is a file; return its row."""
        try:
            pixels = pixels_of(image).pixels
        except ServiceError as error:
            self._slot.failed[index] = error
            pixels = np.zeros((1, 1, 1), np.uint8)
        slot = self._slot
        offset = slot.first.take(pixels.size)
        host = slot.host[offset : offset + pixels.size]
        host.numpy()[:] = pixels.reshape(-1)
        slot.first.memory[offset : offset + pixels.size].copy_(host, non_blocking=True)
        height, width, channels = pixels.shape
        address = slot.first.address(offset)
        return ((address, 0, 0), (width * channels, 0, 0), width, height, channels, 1, 0)


def planes(jpeg: Jpeg, region: Region) -> tuple[Any, ...]:
    """Reserve memory for the planes of a JPEG as it is stored, and return its row."""
    turned = jpeg.orientation >= 5
    width, height = (jpeg.height, jpeg.width) if turned else (jpeg.width, jpeg.height)
    half_wide = jpeg.subsampling in (Subsampling.S422, Subsampling.S420)
    half_high = jpeg.subsampling is Subsampling.S420
    pitch = -(-width // PITCH) * PITCH
    luma = region.address(region.take(pitch * height))
    row = (width, height, KINDS[jpeg.subsampling], jpeg.orientation, 0)
    if jpeg.subsampling is Subsampling.GREY:
        return ((luma, 0, 0), (pitch, 0, 0), *row)
    # A bool counts as 0 or 1, so this halves and rounds up where the chroma is halved, and changes
    # nothing elsewhere.
    columns, lines = (width + half_wide) >> half_wide, (height + half_high) >> half_high
    narrow = -(-columns // PITCH) * PITCH
    blue, red = (region.address(region.take(narrow * lines)) for _ in range(2))
    return ((luma, blue, red), (pitch, narrow, narrow), *row)
