"""Places of the images of a batch on the device, and their way there."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.codec import pixels_of
from models.codec.jpeg import UNITS
from models.codec.matrix_shaper import srgb_levels
from models.domain.errors import ServiceError
from models.domain.image import Jpeg, Source, Subsampling
from workers.engines.cuda.jpeg_blocks import fits
from workers.engines.cuda.nvjpeg import DESTINATION, NvJpegError
from workers.engines.cuda.slot import ALIGNMENT, GpuSlot, Launcher, Region

log = logging.getLogger("darkroom.cuda")

SOURCE = np.dtype(
    [
        ("plane", np.uint64, 3),
        ("shaper", np.uint64),
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
        """Start all copies and decoding on `slot.uploads`, the current stream; return a SOURCE row
        for each image.

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
                groups.setdefault(image.subsampling, []).append(index)
                encoded[index] = image
        slot.marks.copied.record(slot.uploads)
        if not encoded:
            return rows
        at, jpegs = [*encoded], [*encoded.values()]
        rows[at] = planes(jpegs, slot.second)
        shapers = {each.shaper for each in jpegs}
        if shapers != {None}:
            levels = srgb_levels().tobytes()
            added = {each: slot.tables.add(each + levels) if each else 0 for each in shapers}
            rows["shaper"][at] = [added[each.shaper] for each in jpegs]
        files = np.zeros((len(images), 2), np.uint64)  # address and bytes of each JPEG
        files[at] = [(j.data.__array_interface__["data"][0], len(j.data)) for j in jpegs]
        for group in groups.values():
            self._decode(images, group, rows, files[group])
        # After decoding has begun, so that the engines do not wait for it.
        slot.jpeg_blocks.check(self._kernels, encoded, files[at])
        return rows

    def _decode(
        self,
        images: Sequence[Source],
        group: list[int],
        rows: Table,
        files: NDArray[np.uint64],
    ) -> None:
        """Decode the JPEGs of a subsampling, whose addresses and sizes are `files`, in a single
        call, or on the CPU where the call fails.
        """
        # The engines read the files after this call has returned. `slot.jobs` keeps them alive
        # until the batch is done.
        addresses, lengths = np.ascontiguousarray(files.T)
        destinations = np.zeros(len(group), DESTINATION)
        destinations["channel"][:, :3] = rows["plane"][group]
        destinations["pitch"][:, :3] = rows["pitch"][group]
        assert self._slot.decoder is not None
        try:
            uploads = self._slot.uploads
            stream = 0 if uploads is None else uploads.cuda_stream
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
        return ((address, 0, 0), 0, (width * channels, 0, 0), width, height, channels, 1, 0)


def planes(jpegs: Sequence[Jpeg], region: Region) -> Table:
    """Reserve memory for the planes of JPEGs as they are stored, and return a row for each.

    A plane that a JPEG does not have stays at address 0, to which nothing can write.
    """
    layouts = [_layout(j.height, j.width, j.subsampling, j.orientation) for j in jpegs]
    rows = np.frombuffer(bytearray().join([row for row, _ in layouts]), SOURCE)
    starts = region.take_all(np.array([n_bytes for _, n_bytes in layouts]))
    rows["plane"] += starts[:, None] * (rows["pitch"] > 0)
    return rows


@lru_cache(maxsize=1024)
def _layout(
    height: int, width: int, subsampling: Subsampling, orientation: int
) -> tuple[bytes, int]:
    """Return the row and the bytes of the planes of a JPEG whose upright image has this size, in
    pixels, as if its planes began at address 0.

    A grey JPEG's second and third plane have a pitch of 0. A cache makes this cheap: arrays of a
    few numbers cost as much as decoding a photo.
    """
    if orientation >= 5:
        height, width = width, height
    across, down, _ = UNITS[subsampling]  # pixels of a unit, which has 8 × 8 samples of a chroma
    chroma = -(-width * 8 // across), -(-height * 8 // down)
    if subsampling is Subsampling.GREY:
        chroma = 0, 0
    sizes = [(width, height), chroma, chroma]
    pitches = [-(-each // PITCH) * PITCH for each, _ in sizes]
    n_bytes = [pitch * rows for pitch, (_, rows) in zip(pitches, sizes, strict=True)]
    first, second, third = (-(-each // ALIGNMENT) * ALIGNMENT for each in n_bytes)
    starts = (0, first if second else 0, first + second if third else 0)
    row = (starts, 0, pitches, width, height, KINDS[subsampling], orientation, 0)
    return np.array([row], SOURCE).tobytes(), first + second + third
