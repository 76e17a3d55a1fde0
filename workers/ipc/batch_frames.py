"""Send the last batches of a worker in several frames, and put them together again."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from models.domain.batch_record import BatchRecord
from workers.ipc.frames import ENCODER, LastBatches

MOST = 256_000
"""Bytes of the batches in one frame, far below the longest frame.

One batch has at most 512 images with ids of at most 128 characters, and takes 0.11 MB.
"""


def batch_frames(batches: Sequence[BatchRecord]) -> Iterator[LastBatches]:
    """Yield the frames of one answer: the batches in their order, of which the last is marked."""
    held: list[BatchRecord] = []
    size = 0
    for each in batches:
        more = len(ENCODER.encode(each))
        if held and size + more > MOST:
            yield LastBatches(held, False)
            held, size = [], 0
        held.append(each)
        size += more
    yield LastBatches(held, True)


class BatchAnswers:
    """The answers that one worker owes, in the order of the questions."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[list[BatchRecord]]] = deque()
        self._received: list[BatchRecord] = []

    def expect(self) -> "asyncio.Future[list[BatchRecord]]":
        """Return the future of one more answer."""
        answer: asyncio.Future[list[BatchRecord]] = asyncio.Future()
        self._waiting.append(answer)
        return answer

    def receive(self, frame: LastBatches) -> None:
        """Take a frame; the last one of an answer resolves the oldest future."""
        self._received += frame.batches
        if frame.complete:
            whole, self._received = self._received, []
            _resolve(self._waiting.popleft(), whole)

    def end(self) -> None:
        """Resolve all futures with no batches, because the worker has gone."""
        self._received = []
        while self._waiting:
            _resolve(self._waiting.popleft(), [])


def _resolve(waiter: "asyncio.Future[list[BatchRecord]]", batches: list[BatchRecord]) -> None:
    if not waiter.done():  # the request that asked may have ended
        waiter.set_result(batches)
