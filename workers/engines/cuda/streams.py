"""Three streams, in the order in which every batch passes them: upload, compute, download.

Events order the streams; the host waits in one place, for `Marks.done`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from workers.engines.cuda.slot import Marks, Slot
from workers.engines.tracing import stage

CAPTURING = threading.Lock()
"""Held while a CUDA graph is captured, and by whatever allocates memory beside that in a thread of
its own: a capture fails when any thread of the process allocates."""


class Streams:
    """The streams of one device for upload (decoding too), compute and download."""

    def __init__(self, device: torch.device) -> None:
        self.upload, self.compute, self.download = (torch.cuda.Stream(device) for _ in range(3))

    @contextmanager
    def uploading(self, slot: Slot) -> Iterator[None]:
        """Run the block on the upload stream.

        The slot's last batch is done, so nothing reads the memory that is overwritten now. The
        decode engines ignore the order of the stream they are given: this is why a slot, and not a
        stream, must own the memory that they write to.
        """
        with torch.cuda.stream(self.upload), stage("upload"):
            slot.marks.begun.record()
            yield
            slot.marks.uploaded.record()

    @contextmanager
    def computing(self, slot: Slot) -> Iterator[None]:
        """Run the block on the compute stream, after the slot's upload."""
        with torch.cuda.stream(self.compute), stage("compute"):
            self.compute.wait_event(slot.marks.uploaded)
            slot.marks.computing.record()
            yield
            slot.marks.computed.record()

    @contextmanager
    def downloading(self, slot: Slot) -> Iterator[None]:
        """Run the block on the download stream, after the computation; it ends the batch."""
        with torch.cuda.stream(self.download), stage("download"):
            self.download.wait_event(slot.marks.computed)
            yield
            slot.marks.done.record()


def times(marks: Marks) -> tuple[float, float, float, float]:
    """Return the seconds of upload, decode, compute and download of a batch that is done."""
    ends = (
        (marks.begun, marks.copied),
        (marks.copied, marks.uploaded),
        (marks.computing, marks.computed),
        (marks.computed, marks.done),
    )
    upload, decode, compute, download = (a.elapsed_time(b) / 1e3 for a, b in ends)
    return upload, decode, compute, download
