"""Remember the last batches of a worker."""

import time
from collections import deque
from collections.abc import Callable

from models.domain.batch_record import BatchedImage, BatchRecord
from models.domain.errors import ServiceError
from workers.operations import FilterChain, kind_of
from workers.scheduling.batch import Batch
from workers.scheduling.engine import BatchResult


class RecentBatches:
    """Ring of at most `n` batches; with 0 nothing is remembered.

    `observe` is called on collect threads and `last` on any thread. `clock` is the one by which
    batches are released, `wall` gives seconds since 1970.
    """

    def __init__(
        self,
        n: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._ring: deque[BatchRecord] = deque(maxlen=n)
        self._clock = clock
        self._wall = wall
        self.device = ""
        """The name of the device, which is known when the worker has started."""

    def observe(self, batch: Batch, result: BatchResult) -> None:
        """Remember a finished batch."""
        if self._ring.maxlen:
            self._ring.append(self._record(batch, result))

    def last(self, n: int) -> list[BatchRecord]:
        """Return the last `n` batches, oldest first."""
        found = list(self._ring.copy())  # copying a deque is atomic, iterating is not
        return found[max(0, len(found) - n) :]

    def _record(self, batch: Batch, result: BatchResult) -> BatchRecord:
        first = batch.tickets[0].job
        operation, (kind, network) = first.operation, kind_of(first.operation)
        chain = operation.filters if isinstance(operation, FilterChain) else ()
        images = tuple(
            BatchedImage(
                ticket.job.request_id,
                batch.launched_at - ticket.enqueued_at,
                ticket.pixels,
                value.code if isinstance(value, ServiceError) else "ok",
            )
            for ticket, value in zip(batch.tickets, result.values, strict=True)
        )
        return BatchRecord(
            batch.id,
            self.device,
            self._wall() - (self._clock() - batch.launched_at),
            batch.reason.value,
            first.lane.value,
            kind,
            network,
            tuple(each.name for each in chain),
            len(images),
            sum(each.pixels for each in images),
            max(each.waited for each in images),
            result.upload,
            result.decode,
            result.compute,
            result.download,
            images,
        )
