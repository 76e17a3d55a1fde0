"""A batch of images through one network: crops, a forward pass, labels or vectors."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.domain.image import NetworkInput, Source
from models.domain.job import Job, Labels, Vector
from workers.engines.cuda.crops import Cropper
from workers.engines.cuda.network import CLASSES, LOGITS, SOFTMAX, GraphedNetwork
from workers.engines.cuda.slot import Slot
from workers.engines.cuda.streams import Streams
from workers.operations import Classify, FunctionToApply, NetworkOutput


class Classifying:
    """Launches batches on `streams`; the network belongs to the compute stream."""

    def __init__(self, network: GraphedNetwork, cropper: Cropper, streams: Streams) -> None:
        self.network = network
        self._cropper = cropper
        self._streams = streams

    def launch(self, slot: Slot, jobs: Sequence[Job]) -> None:
        """Upload and decode, crop and compute, download: each on its own stream.

        Scores carry the logits of all classes, so logits need no other pass than labels do.
        """
        n, outputs = len(jobs), slot.outputs[self.network.spec.name]
        embeds = _operation(jobs).output is NetworkOutput.EMBEDDING
        with self._streams.uploading(slot):
            make_input = self._uploaded(slot, [job.image for job in jobs])
        with self._streams.computing(slot):
            make_input()
            # The outputs are copied on the compute stream: the buffers of the network belong to the
            # next batch as soon as this stream goes on, while downloads are still to come.
            if embeds:
                self.network.embed(n)
                outputs.vectors[:n].copy_(self.network.vectors[:n])
            else:
                self.network.run(n)
                outputs.scores[:n].copy_(self.network.scores[:n])
        with self._streams.downloading(slot):
            if embeds:
                outputs.vectors_host[:n].copy_(outputs.vectors[:n], non_blocking=True)
            else:
                outputs.scores_host[:n].copy_(outputs.scores[:n], non_blocking=True)

    def _uploaded(self, slot: Slot, images: Sequence[Source]) -> Callable[[], object]:
        """Start to upload images; return what makes the network's input of them."""
        given = [image.values for image in images if isinstance(image, NetworkInput)]
        target, n = self.network.input, len(images)
        if given:
            values = _values_on_device(slot, given)
            slot.marks.copied.record()
            return partial(target[:n].copy_, values)
        rows, starts = self._cropper.place(images, slot)
        rows_at, starts_at = slot.tables.add(rows), slot.tables.add(starts)
        slot.tables.upload()
        return partial(self._cropper.launch, rows_at, starts_at, n, int(starts[-1]), target)

    def results(self, slot: Slot, jobs: Sequence[Job]) -> list[Labels | Vector]:
        """Return the answers of a batch that is done."""
        outputs, output = slot.outputs[self.network.spec.name], _operation(jobs).output
        if output is NetworkOutput.EMBEDDING:
            return [Vector(row.copy()) for row in outputs.vectors_host.numpy()[: len(jobs)]]
        scores = outputs.scores_host.numpy()
        if output is NetworkOutput.LOGITS:
            return [Vector(in_class_order(row)) for row in scores[: len(jobs)]]
        return [_labels(row, job) for row, job in zip(scores, jobs, strict=False)]


def in_class_order(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Undo the sorting of (3, classes) scores: return the logits (classes,) in class order."""
    logits = np.empty(scores.shape[1], np.float32)
    logits[scores[CLASSES].astype(np.int64)] = scores[LOGITS]
    return logits


def _values_on_device(slot: Slot, given: Sequence[NDArray[np.float32]]) -> Tensor:
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
    """Return the operation of a batch; what it does to all jobs is part of the batch key."""
    operation = jobs[0].operation
    assert isinstance(operation, Classify)
    return operation


def _labels(scores: NDArray[np.float32], job: Job) -> Labels:
    """Return the labels of one image from its (3, classes) scores."""
    assert isinstance(job.operation, Classify)
    best = slice(job.operation.top_k)
    values = scores[LOGITS, best]
    match job.operation.function_to_apply:
        case FunctionToApply.SOFTMAX:
            values = scores[SOFTMAX, best]
        case FunctionToApply.SIGMOID:
            values = np.float32(1) / (np.float32(1) + np.exp(-values))
    return Labels(tuple(map(int, scores[CLASSES, best].tolist())), tuple(values.tolist()))
