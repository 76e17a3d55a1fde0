"""Put a batch of images through a chain of filters without leaving the device in between."""

import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from cuda.pathfinder import DynamicLibNotFoundError

from models.domain.errors import ServiceError, Unavailable
from models.domain.image import Image, Jpeg, Pixels, Subsampling
from models.domain.job import Job, Result
from workers.engines.cuda.nvjpeg import TOGETHER, Encoder, NvJpeg, NvJpegError, NvJpegUnfit, Placed
from workers.engines.cuda.slot import GpuSlot, Launcher, Region, Streams
from workers.engines.cuda.sources import SOURCE, BatchSources, Table
from workers.filters.base import Filter
from workers.kernels import items
from workers.kernels.items import ITEM, THREADS, Pass, Shape
from workers.operations import DeviceJpeg, FilterChain

UNPACK = np.dtype([("source", SOURCE), ("target", np.uint64)])
"""The struct `Unpack` of kernels/crop.cu."""

UNPACKING = Pass("unpack")


class Launch(NamedTuple):
    """A kernel, its blocks, the device addresses of its tables, and the number of their rows."""

    kernel: str
    blocks: int
    rows: int
    starts: int
    n: int


class GpuFiltering:
    """Filter batches on `streams`; `scratch` belongs to the compute stream."""

    def __init__(self, kernels: Launcher, streams: Streams, scratch: Region) -> None:
        self._kernels = kernels
        self._streams = streams
        self._scratch = scratch

    def launch(self, slot: GpuSlot, jobs: Sequence[Job]) -> None:
        """Upload and decode, filter, download: each on its own stream.

        Results that will be encoded on the device are not downloaded as pixels.
        """
        with self._streams.uploading(slot):
            sources = BatchSources(slot, self._kernels)
            rows = sources.place([job.image for job in jobs])
            shapes = [_shape(index, job, slot) for index, job in enumerate(jobs)]
            launches = self._unpacked(slot, rows, sources.planar, shapes)
            result = slot.result = self._filtered(slot, jobs, launches)
            slot.tables.upload()
        with self._streams.computing(slot):
            for each in launches:
                arguments = (each.rows, each.starts, np.int32(each.n))
                self._kernels.launch(each.kernel, each.blocks, THREADS, arguments)
        with self._streams.downloading(slot):
            used = 0 if _chain(jobs[0]).jpeg else result.used
            slot.host[:used].copy_(result.memory[:used], non_blocking=True)

    def results(self, slot: GpuSlot) -> list[Image]:
        """Return the images of a batch that is done, copied out of the slot."""
        host = slot.host.numpy()
        return [
            Image(host[offset : offset + math.prod(shape)].reshape(shape).copy())
            for offset, shape in slot.places
        ]

    def _unpacked(
        self, slot: GpuSlot, rows: Table, planar: Sequence[int], shapes: list[Shape]
    ) -> list[Launch]:
        """Give every image its place in `slot.first`, and unpack JPEGs to there."""
        start = slot.first.address(0)
        offsets = [int(address) - start for address in rows["plane"][:, 0]]
        table = np.zeros(len(planar), UNPACK)
        for row, index in enumerate(planar):
            offsets[index] = slot.first.take(math.prod(shapes[index]))
            table[row] = (rows[index], slot.first.address(offsets[index]))
        slot.places = list(zip(offsets, shapes, strict=True))
        if not planar:
            return []
        return [_launch(slot, UNPACKING, table, [(*shapes[n][:2], 1) for n in planar])]

    def _filtered(self, slot: GpuSlot, jobs: Sequence[Job], launches: list[Launch]) -> Region:
        """Add the passes of every step and return the region of the results.

        Each step reads a region and writes the second, by turns.
        """
        source, target = slot.first, slot.second
        for steps in zip(*(_chain(job).steps for job in jobs), strict=True):
            target.used = 0
            table, places = self._items(slot, steps, source, target)
            shapes = [shape for _, shape in slot.places]
            after = [shape for _, shape in places]
            for step, each in enumerate(steps[0].device_passes):
                table["step"] = step
                seen = after if each.of_result else shapes
                launches.append(_launch(slot, each, table, seen))
            slot.places = places
            source, target = target, source
        return source

    def _items(
        self, slot: GpuSlot, steps: Sequence[Filter], source: Region, target: Region
    ) -> tuple[Table, list[tuple[int, Shape]]]:
        """Return the items of a step, and the places of its results in `target`."""
        table, places = np.zeros(len(steps), ITEM), []
        # All steps of all batches share the scratch memory, because the compute stream runs them
        # one after the other.
        self._scratch.used = 0
        for row, (each, (offset, shape)) in enumerate(zip(steps, slot.places, strict=True)):
            height, width, channels = shape
            after = each.shape_after(shape)
            places.append((target.take(math.prod(after)), after))
            data = slot.tables.add(each.device_data(shape))
            addresses = (source.address(offset), target.address(places[row][0]))
            scratch = self._scratch.address(self._scratch.take(each.device_scratch(shape)))
            table[row] = (*addresses, scratch, data, width, height, channels, 0)
        return table, places


def _launch(slot: GpuSlot, each: Pass, table: Table, shapes: Sequence[Shape]) -> Launch:
    starts = items.starts(each, shapes)
    return Launch(
        each.kernel, int(starts[-1]), slot.tables.add(table), slot.tables.add(starts), len(table)
    )


def _shape(index: int, job: Job, slot: GpuSlot) -> Shape:
    """Return the shape of the image's samples; an image that could not be decoded has a single
    pixel.
    """
    if index in slot.failed:
        return 1, 1, 1
    return job.image.height, job.image.width, job.image.channels


def _chain(job: Job) -> FilterChain:
    assert isinstance(job.operation, FilterChain)
    return job.operation


# JPEGs of results, made from the pixels that filters left on the device.

log = logging.getLogger("darkroom.cuda")


UNUSABLE = (NvJpegError, NvJpegUnfit, DynamicLibNotFoundError)
"""Errors of a library that is missing, or that the device cannot use."""

QUALITY = 85
"""Of the images that a new encoder is tried with."""


def prepare(slot: GpuSlot, side: int) -> None:
    """Make the encoder of a slot and all of its states.

    The library loads its kernels with the first image of a process, and a state allocates memory
    for its first image: together half a second to a second, which the first requests would wait
    for. So grey images of `side` × `side` pixels are encoded with each state. A device that cannot
    encode is noted in the log: the engine serves without an encoder.
    """
    try:
        encoder = _made(slot)
        grey = torch.full((3 * side * side,), 128, dtype=torch.uint8).to(slot.first.memory.device)
        images = [Placed(grey.data_ptr(), side, side)] * TOGETHER
        encoder.encode(images, QUALITY, Subsampling.S420)
    except UNUSABLE as error:
        log.warning("JPEGs cannot be encoded on the GPU: %s", error)


def _made(slot: GpuSlot) -> Encoder:
    """Return the encoder of a slot, and make it where `prepare` could not."""
    slot.encoder = slot.encoder or _encoder()
    return slot.encoder


def _encoder() -> Encoder:
    library = NvJpeg(hardware=False)
    try:
        return Encoder(library, torch.cuda.Stream())
    except NvJpegError:
        library.close()
        raise


def as_jpegs(slot: GpuSlot, asked: DeviceJpeg) -> list[Result | ServiceError]:
    """Return the results of a batch that is done, with RGB images as JPEGs.

    Call this before the batch's slot is released, with the slot's device as the current device.
    Results stay pixels where the device refuses them, and where a JPEG would be larger. Without
    nvJPEG all of them are Unavailable.
    """
    assert slot.result is not None
    try:
        encoder = _made(slot)
    except UNUSABLE as error:
        log.warning("JPEGs cannot be encoded on the GPU: %s", error)
        return [Unavailable("encoder: the GPU here cannot encode; leave it out")] * len(slot.places)
    coloured = [index for index, (_, shape) in enumerate(slot.places) if shape[2] == 3]
    placed = [
        Placed(slot.result.address(offset), *shape[:2])
        for offset, shape in (slot.places[index] for index in coloured)
    ]
    try:
        files = encoder.encode(placed, asked.quality, asked.subsampling)
    except NvJpegError as error:
        files = [error] * len(placed)
    made = dict(zip(coloured, files, strict=True))
    return [_file(slot, index, made.get(index), asked) for index in range(len(slot.places))]


def _file(
    slot: GpuSlot, index: int, file: Pixels | NvJpegError | None, asked: DeviceJpeg
) -> Image | Jpeg:
    offset, shape = slot.places[index]
    if isinstance(file, NvJpegError):
        log.warning("an image is encoded on the CPU: %s", file)
    elif file is not None and len(file) < math.prod(shape):
        return Jpeg(file, *shape[:2], 1, asked.subsampling)
    assert slot.result is not None
    pixels = slot.result.memory[offset : offset + math.prod(shape)]
    return Image(pixels.cpu().numpy().reshape(shape))
