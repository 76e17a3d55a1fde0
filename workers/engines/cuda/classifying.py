"""Put a batch of images through a network: crops of any sizes in a single launch, a forward pass,
and labels or vectors.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.codec import pixels_of
from models.domain.image import Image, NetworkInput, Source
from models.domain.job import Job, Labels, Vector
from models.networks.spec import Preprocessing
from workers.engines.cuda.network import CLASSES, LOGITS, SOFTMAX, GraphedNetwork
from workers.engines.cuda.slot import ALIGNMENT, GpuSlot, Launcher, Streams
from workers.engines.cuda.sources import SOURCE, BatchSources, Table
from workers.operations import Classify, FunctionToApply, NetworkOutput
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
        ("method", np.int32),
    ]
)
"""The struct `Crop` of kernels/crop.cu."""

THREADS = 512
ROOM = 72 * 224
"""Pixels between the two steps of the resize for which a block of `crop_normalise` has memory."""

TILE = 28
"""Output rows of a block; fewer where the image is so large that fewer fit."""


class Cropper:
    """Write crops, normalised as `table` (256, 3) says, into the network's input."""

    def __init__(self, kernels: Launcher, spec: Preprocessing, table: Tensor) -> None:
        self._kernels = kernels
        self._spec = spec
        self._table = table
        self._crop = lru_cache(maxsize=1024)(partial(_crop, spec))
        self._normalise = f"crop_normalise_{8 * table.element_size()}"

    def place(self, images: Sequence[Source], slot: GpuSlot) -> tuple[Table, Table]:
        """Place the images in the slot and return how to crop them.

        The first table has a CROP row for each image; the second says where the blocks of each
        image start, uint32 (n + 1,). Uploads go to the current stream.
        """
        sources = BatchSources(slot, self._kernels).place([self._shrunk(each) for each in images])
        crops = [self._crop(image.height, image.width) for image in images]
        rows = np.frombuffer(bytearray().join([row for row, _, _ in crops]), CROP)
        rows["source"] = sources
        rows["weights"] = slot.weights.take_all(np.array([n_bytes for _, n_bytes, _ in crops]))
        starts = [0, *accumulate([blocks for _, _, blocks in crops])]
        return rows, np.array(starts, np.uint32)

    def launch(self, rows: int, starts: int, n: int, n_blocks: int, target: Tensor) -> None:
        """Launch the kernels for weights and then for crops, on the current stream.

        `rows` and `starts` are the device addresses of the tables that `place` returned.
        """
        side = np.int32(self._spec.crop)
        self._kernels.launch("crop_weights", 2 * n, 256, (rows, side))
        arguments = (rows, starts, np.int32(n), side, self._table.data_ptr(), target.data_ptr())
        self._kernels.launch(self._normalise, n_blocks, THREADS, arguments)

    def _shrunk(self, image: Source) -> Source:
        """Return the image, or its crop made by the CPU where no block could hold the rows it
        needs.
        """
        if not _too_large(image.height, image.width, self._spec):
            return image
        return Image(crop(pixels_of(image), self._spec))


def _crop(spec: Preprocessing, height: int, width: int) -> tuple[bytes, int, int]:
    """Return the row of an image of this size, in pixels, still without its source and the address
    of its weights; the bytes of the weights; and its blocks.
    """
    if _too_large(height, width, spec):
        height = width = resized_height = resized_width = spec.crop
        top = left = 0
    else:
        resized_height, resized_width, top, left = geometry(height, width, spec)
    scale = max(height / resized_height, width / resized_width, 1.0)
    taps = 2 * math.ceil(spec.interpolation * scale) + 1
    by_columns = columns_first((height, width), (resized_height, resized_width))
    if by_columns:
        tile = _tile_of_columns(width / resized_width, spec)
    else:
        tile = _tile_of_rows(height / resized_height, spec)
    row = np.zeros(1, CROP)
    row["resized"], row["corner"] = (resized_width, resized_height), (left, top)
    row["taps"], row["tile"], row["columns_first"] = taps, tile, by_columns
    row["method"] = spec.interpolation
    return row.tobytes(), 2 * (2 + taps) * spec.crop * 4, -(-spec.crop // tile)


def _tile_of_rows(scale: float, spec: Preprocessing) -> int:
    """Return the output rows of a block that resamples the source's rows first."""
    rows, radius = ROOM // spec.crop, int(spec.interpolation)
    return min(TILE, 1 + int((rows - 2 - 2 * radius * max(scale, 1.0)) / scale))


def _tile_of_columns(scale: float, spec: Preprocessing) -> int:
    """Return the output rows of a block that resamples the source's columns first.

    It needs all source columns that the crop needs.
    """
    columns = int((spec.crop - 1 + 2 * spec.interpolation) * max(scale, 1.0)) + 2
    return min(TILE, ROOM // columns)


def _too_large(height: int, width: int, spec: Preprocessing) -> bool:
    scale = (max if spec.squash else min)(height, width) / spec.resize
    return 2 * spec.interpolation * scale + 2 > ROOM // spec.crop - 2


def weights_bytes(pixels: int, max_batch_size: int, each: Sequence[Preprocessing]) -> int:
    """Return the bytes for the resampling weights of any batch of `pixels` for any network.

    They are 2 · crop · (2 + taps) integers of 4 bytes an image. An image of p pixels has at most
    2 · radius · (sqrt(p) / resize + 1) + 1 taps, and a squashed image as many as a block has rows;
    the sum of the roots is largest when all images of a batch are equal.
    """
    root = math.isqrt(max_batch_size * pixels)
    integers = []
    for spec in each:
        radius = 2 * int(spec.interpolation)
        taps = max_batch_size * (4 + radius) + radius * root // spec.resize
        if spec.squash:
            taps = max_batch_size * (2 + ROOM // spec.crop)
        integers.append(2 * spec.crop * taps)
    return 4 * max(integers) + ALIGNMENT * max_batch_size


class Classifying:
    """Launches batches on `streams`; the network belongs to the compute stream."""

    def __init__(self, network: GraphedNetwork, cropper: Cropper, streams: Streams) -> None:
        self.network = network
        self._cropper = cropper
        self._streams = streams

    def launch(self, slot: GpuSlot, jobs: Sequence[Job]) -> None:
        """Upload and decode; crop, compute and download on the compute stream.

        Scores carry the logits of all classes, so labels, logits and embeddings need the same pass.
        """
        n, outputs = len(jobs), slot.outputs[self.network.spec.name]
        embeds = _operation(jobs).output is NetworkOutput.EMBEDDING
        with self._streams.uploading(slot):
            make_input = self._uploaded(slot, [job.image for job in jobs])
        with self._streams.computing(slot):
            make_input()
            self.network.run(n)
        # The buffers of the network belong to the next batch as soon as the compute stream goes on.
        with self._streams.downloading(slot, self._streams.compute):
            if embeds:
                outputs.vectors[:n].copy_(self.network.vectors[:n], non_blocking=True)
            else:
                outputs.scores[:n].copy_(self.network.scores[:n], non_blocking=True)

    def _uploaded(self, slot: GpuSlot, images: Sequence[Source]) -> Callable[[], object]:
        """Start to upload images; return a function that makes the network's input of them."""
        given = [image.values for image in images if isinstance(image, NetworkInput)]
        target, n = self.network.input, len(images)
        if given:
            values = _values_on_device(slot, given)
            slot.marks.copied.record(slot.uploads)
            return partial(target[:n].copy_, values)
        rows, starts = self._cropper.place(images, slot)
        rows_at, starts_at = slot.tables.add(rows), slot.tables.add(starts)
        slot.tables.upload()
        return partial(self._cropper.launch, rows_at, starts_at, n, int(starts[-1]), target)

    def results(self, slot: GpuSlot, jobs: Sequence[Job]) -> list[Labels | Vector]:
        """Return the answers of a batch that is done."""
        outputs, output = slot.outputs[self.network.spec.name], _operation(jobs).output
        if output is NetworkOutput.EMBEDDING:
            return [Vector(row.copy()) for row in outputs.vectors.numpy()[: len(jobs)]]
        scores = outputs.scores.numpy()
        if output is NetworkOutput.LOGITS:
            return [Vector(in_class_order(row)) for row in scores[: len(jobs)]]
        return [_labels(row, job) for row, job in zip(scores, jobs, strict=False)]


def in_class_order(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Undo the sorting of (3, classes) scores: return the logits (classes,) in class order."""
    logits = np.empty(scores.shape[1], np.float32)
    logits[scores[CLASSES].astype(np.int64)] = scores[LOGITS]
    return logits


def _values_on_device(slot: GpuSlot, given: Sequence[NDArray[np.float32]]) -> Tensor:
    """Copy inputs to the slot's memory on the device, on the current stream.

    Return them as float32 (n, 3, height, width). Raises SlotFull.
    """
    n_bytes = sum(values.nbytes for values in given)
    offset = slot.first.take(n_bytes)
    host = slot.host[offset : offset + n_bytes]
    np.stack(given, out=host.view(torch.float32).numpy().reshape(len(given), *given[0].shape))
    device = slot.first.memory[offset : offset + n_bytes]
    device.copy_(host, non_blocking=True)
    return device.view(torch.float32).view(len(given), *given[0].shape)


def _operation(jobs: Sequence[Job]) -> Classify:
    """Return the operation of a batch; its effect on all jobs is part of the batch key."""
    operation = jobs[0].operation
    assert isinstance(operation, Classify)
    return operation


def _labels(scores: NDArray[np.float32], job: Job) -> Labels:
    """Return the labels of an image from its (3, classes) scores."""
    assert isinstance(job.operation, Classify)
    best = slice(job.operation.top_k)
    values = scores[LOGITS, best]
    match job.operation.function_to_apply:
        case FunctionToApply.SOFTMAX:
            values = scores[SOFTMAX, best]
        case FunctionToApply.SIGMOID:
            values = np.float32(1) / (np.float32(1) + np.exp(-values))
    return Labels(tuple(map(int, scores[CLASSES, best].tolist())), tuple(values.tolist()))
