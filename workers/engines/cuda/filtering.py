"""Put a batch of images through a chain of filters without leaving the device in between."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from models.domain.image import Image, Jpeg
from models.domain.job import Job
from workers.engines.cuda import jpeg_encoder
from workers.engines.cuda.slot import GpuSlot, Launcher, Region, Streams
from workers.engines.cuda.sources import SOURCE, BatchSources, Table
from workers.filters.base import ArrayFilter, Filter
from workers.kernels import items
from workers.kernels.items import ITEM, THREADS, Pass, Shape
from workers.operations import DeviceJpeg, FilterChain

UNPACK = np.dtype([("source", SOURCE), ("target", np.uint64)])
"""The struct `Unpack` of kernels/crop.cu."""

UNPACKING = Pass("unpack")

READ_ONLY = 1 << 16
"""Bytes of data from which no kernel writes to it, so that images with equal data share it: the
picture of an overlay has up to 1 MiB, and the tables of a slot have 4."""


class Launch(NamedTuple):
    """A kernel, its blocks, the device addresses of its tables, and the number of their rows."""

    kernel: str
    blocks: int
    rows: int
    starts: int
    n: int


Work = Launch | Callable[[], None]
"""A kernel to launch, or a function that launches the kernels of a library."""


class GpuFiltering:
    """Filter batches on `streams`; `scratch` belongs to the compute stream."""

    def __init__(self, kernels: Launcher, streams: Streams, scratch: Region) -> None:
        self._kernels = kernels
        self._streams = streams
        self._scratch = scratch
        self.encodes = True
        """Whether results are encoded where JPEGs are asked for."""

    def launch(self, slot: GpuSlot, jobs: Sequence[Job]) -> None:
        """Upload and decode, filter, download: each on its own stream.

        Where JPEGs are asked for, the results are encoded, and only files are downloaded.
        """
        slot.jpeg = _chain(jobs[0]).jpeg if self.encodes else None
        with self._streams.uploading(slot):
            sources = BatchSources(slot, self._kernels)
            rows = sources.place([job.image for job in jobs])
            shapes = [_shape(index, job, slot) for index, job in enumerate(jobs)]
            launches = self._unpacked(slot, rows, sources.planar, shapes)
            result = slot.result = self._filtered(slot, jobs, launches)
            stored = None if slot.jpeg is None else self._encoded(slot, slot.jpeg, launches)
            slot.tables.upload()
        with self._streams.computing(slot):
            for each in launches:
                self._start(each)
        with self._streams.downloading(slot):
            if stored is not None:
                self._start(stored)
            if slot.jpeg is None:
                slot.host[: result.used].copy_(result.memory[: result.used], non_blocking=True)

    def results(self, slot: GpuSlot) -> list[Image | Jpeg]:
        """Return the images or files of a batch that is done, copied out of the slot."""
        return [self._result(slot, index) for index in range(len(slot.places))]

    def _result(self, slot: GpuSlot, index: int) -> Image | Jpeg:
        (offset, shape), host = slot.places[index], slot.host.numpy()
        if slot.jpeg is None:
            return Image(host[offset : offset + math.prod(shape)].reshape(shape).copy())
        if index in slot.files:
            file = jpeg_encoder.file(host[slot.files[index] :], shape, slot.jpeg)
            if file is not None:
                return file
        assert slot.result is not None
        pixels = slot.result.memory[offset : offset + math.prod(shape)]
        return Image(pixels.cpu().numpy().reshape(shape))

    def _start(self, each: Work) -> None:
        if not isinstance(each, Launch):
            each()
            return
        arguments = (each.rows, each.starts, np.int32(each.n))
        self._kernels.launch(each.kernel, each.blocks, THREADS, arguments)

    def _unpacked(
        self, slot: GpuSlot, rows: Table, planar: Sequence[int], shapes: list[Shape]
    ) -> list[Work]:
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

    def _filtered(self, slot: GpuSlot, jobs: Sequence[Job], launches: list[Work]) -> Region:
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
            if isinstance(steps[0], ArrayFilter):
                launches.append(partial(self._computed, steps, table, source, target))
            slot.places = places
            source, target = target, source
        return source

    def _computed(
        self, steps: Sequence[Filter], table: Table, source: Region, target: Region
    ) -> None:
        """Run array filters by torch on the current stream, image by image."""
        for each, item in zip(steps, table, strict=True):
            assert isinstance(each, ArrayFilter)
            src, dst, scratch, _, width, height, channels, _ = item.tolist()
            shape = (height, width, channels)
            image, result = (
                region.view(address, math.prod(shape)).view(shape)
                for region, address in ((source, src), (target, dst))
            )
            memory = self._scratch.view(scratch, each.device_scratch(shape))
            each.compute(torch, image, result, memory)

    def _items(
        self, slot: GpuSlot, steps: Sequence[Filter], source: Region, target: Region
    ) -> tuple[Table, list[tuple[int, Shape]]]:
        """Return the items of a step, and the places of its results in `target`."""
        table, places = np.zeros(len(steps), ITEM), []
        # All steps of all batches share the scratch memory, because the compute stream runs them
        # one after the other.
        self._scratch.used = 0
        shared: dict[bytes, int] = {}
        for row, (each, (offset, shape)) in enumerate(zip(steps, slot.places, strict=True)):
            height, width, channels = shape
            after = each.shape_after(shape)
            places.append((target.take(math.prod(after)), after))
            content = each.device_data(shape)
            if content not in shared or len(content) < READ_ONLY:
                shared[content] = slot.tables.add(content)
            data = shared[content]
            addresses = (source.address(offset), target.address(places[row][0]))
            scratch = self._scratch.address(self._scratch.take(each.device_scratch(shape)))
            table[row] = (*addresses, scratch, data, width, height, channels, 0)
        return table, places

    def _encoded(self, slot: GpuSlot, asked: DeviceJpeg, launches: list[Work]) -> Launch | None:
        """Add the passes that encode the results, and return the pass that stores the files.

        Images of which no file is made stay pixels. Files take the region that the last step has
        read, and `slot.files` has the offset of each there, which is its offset in `slot.host` too.
        """
        assert slot.result is not None
        chosen = [n for n, (_, shape) in enumerate(slot.places) if jpeg_encoder.fits(shape)]
        if not chosen:
            return None
        target = slot.second if slot.result is slot.first else slot.first
        target.used = self._scratch.used = 0
        shapes = [slot.places[index][1] for index in chosen]
        table, stored = np.zeros(len(chosen), ITEM), np.zeros(len(chosen), ITEM)
        kinds = {channels for *_, channels in shapes}
        own = {each: slot.tables.add(jpeg_encoder.tables(asked, each)) for each in kinds}
        for row, (index, shape) in enumerate(zip(chosen, shapes, strict=True)):
            height, width, channels = shape
            offset = target.take(jpeg_encoder.FILE_AT + math.prod(shape))
            slot.files[index] = offset
            scratch = self._scratch.take(jpeg_encoder.scratch(shape, asked))
            source, file = slot.result.address(slot.places[index][0]), target.address(offset)
            blocks, host = self._scratch.address(scratch), slot.host.data_ptr() + offset
            table[row] = (source, file, blocks, own[channels], width, height, channels, 0)
            stored[row] = (file, host, 0, 0, width, height, channels, 0)
        launches += [_launch(slot, each, table, shapes) for each in jpeg_encoder.ENCODING]
        return _launch(slot, jpeg_encoder.STORING, stored, shapes)


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
