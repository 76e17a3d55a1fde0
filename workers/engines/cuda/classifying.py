"""A batch of images to labels: crops, one graph, scores sorted on the device."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.domain.job import Job, Labels
from workers.engines.cuda.crops import Cropper
from workers.engines.cuda.network import CLASSES, LOGITS, SOFTMAX, GraphedResNet18
from workers.engines.cuda.slot import Slot
from workers.engines.cuda.streams import Streams
from workers.operations import Classify, FunctionToApply


class Classifying:
    """Launches on `streams`; the network belongs to the compute stream."""

    def __init__(self, network: GraphedResNet18, cropper: Cropper, streams: Streams) -> None:
        self._network = network
        self._cropper = cropper
        self._streams = streams

    def launch(self, slot: Slot, jobs: Sequence[Job]) -> None:
        """Upload and decode, crop and classify, download: each on its own stream."""
        n = len(jobs)
        with self._streams.uploading(slot):
            rows, starts = self._cropper.place([job.image for job in jobs], slot)
            rows_at, starts_at = slot.tables.add(rows), slot.tables.add(starts)
            slot.tables.upload()
        with self._streams.computing(slot):
            self._cropper.launch(rows_at, starts_at, n, int(starts[-1]), self._network.input)
            self._network.run(n)
            slot.scores[:n].copy_(self._network.scores[:n])
        with self._streams.downloading(slot):
            slot.scores_host[:n].copy_(slot.scores[:n], non_blocking=True)

    def results(self, slot: Slot, jobs: Sequence[Job]) -> list[Labels]:
        """The labels of a batch that is done."""
        scores = slot.scores_host.numpy()
        return [_labels(row, job) for row, job in zip(scores, jobs, strict=False)]


def _labels(scores: NDArray[np.float32], job: Job) -> Labels:
    """From (3, classes)."""
    assert isinstance(job.operation, Classify)
    best = slice(job.operation.top_k)
    values = scores[LOGITS, best]
    match job.operation.function_to_apply:
        case FunctionToApply.SOFTMAX:
            values = scores[SOFTMAX, best]
        case FunctionToApply.SIGMOID:
            values = np.float32(1) / (np.float32(1) + np.exp(-values))
    return Labels(tuple(map(int, scores[CLASSES, best].tolist())), tuple(values.tolist()))
