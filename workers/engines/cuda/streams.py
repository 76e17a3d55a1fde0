"""Three streams, in the order in which every batch passes them: upload, compute, download.

Events order the streams; the host waits in one place, for `Marks.done`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from workers.engines.cuda.slot import Marks, Slot
from workers.engines.tracing import stage


class Streams:
    """The streams of one device for upload (decoding too), compute and download."""

    def __init__(self, device: torch.device) -> None:
        self.upload, self.compute, self.download = (torch.cuda.Stream(device) for _ in range(3))
        self._default = torch.cuda.default_stream(device)

    @contextmanager
    def uploading(self, slot: Slot) -> Iterator[None]:
        """Run the block on the upload stream.

        The slot's last batch is done, so nothing reads the memory that is overwritten now. The
        decode engines ignore the order of the stream they are given: this is why a slot, and not a
        stream, must own the memory that they write to.
        """
        with self._on(self.upload, "upload"):
            slot.marks.begun.record(self.upload)
            yield
            slot.marks.uploaded.record(self.upload)
            if slot.decoder is not None:
                slot.decoder.free(slot.marks.uploaded)

    @contextmanager
    def computing(self, slot: Slot) -> Iterator[None]:
        """Run the block on the compute stream, after the slot's upload."""
        with self._on(self.compute, "compute"):
            self.compute.wait_event(slot.marks.uploaded)
            slot.marks.computing.record(self.compute)
            yield
            slot.marks.computed.record(self.compute)

    @contextmanager
    def downloading(self, slot: Slot) -> Iterator[None]:
        """Run the block on the download stream, after the computation; it ends the batch."""
        with self._on(self.download, "download"):
            self.download.wait_event(slot.marks.computed)
            yield
            slot.marks.done.record(self.download)

    @contextmanager
    def _on(self, stream: torch.cuda.Stream, name: str) -> Iterator[None]:
        """Make a stream the current one of this thread for the block, which traces call `name`.

        `torch.cuda.stream` does the same for streams and devices of all kinds, and `Event.record()`
        without a stream looks for the current one: half of all calls of functions for a batch. Here
        the device is known, and each thread is on the default stream before.
        """
        torch.cuda.set_stream(stream)
        try:
            with stage(name):
                yield
        finally:
            torch.cuda.set_stream(self._default)


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
