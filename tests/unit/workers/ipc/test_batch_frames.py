"""The last batches of a worker on their way to a front end."""

import asyncio
import operator

import msgspec
import pytest

from models.domain.batch_record import BatchedImage, BatchRecord
from tests.fakes import GUARD, FakeEngine
from tests.worker_fixture import WELCOME, decode_fake
from workers.ipc import frame_protocol, worker_client
from workers.ipc.arena import PAGE, Arena
from workers.ipc.batch_frames import MOST, batch_frames
from workers.ipc.client_session import ClientSession
from workers.ipc.frames import ENCODER, LastBatches
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.recent_batches import RecentBatches
from workers.scheduling.worker import Worker

LONGEST_ID = "i" * 128


def record(number: int, n_images: int = 64) -> BatchRecord:
    image = BatchedImage(LONGEST_ID, 0.25, 100_000, "ok")
    times = 0.1, 0.2, 0.3, 0.4, 0.5
    named = f"7-{number}", "cuda:0", 1e9 + number, "full", "interactive", "filter", "", ("sepia",)
    return BatchRecord(*named, n_images, 100_000 * n_images, *times, (image,) * n_images)


class Connected(asyncio.Transport):
    """Transport that passes written bytes to the protocol at the other end."""

    def __init__(self, other: asyncio.Protocol) -> None:
        super().__init__()
        self._other = other

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Deliver the bytes in pieces, as the event loop reads them."""
        for start in range(0, len(data), 1 << 18):
            self._other.data_received(bytes(data[start : start + (1 << 18)]))

    def get_write_buffer_size(self) -> int:
        """Return that nothing is pending."""
        return 0


def asked(records: list[BatchRecord], *numbers: int) -> list[list[BatchRecord]]:
    """Return the answers of a worker that remembers `records`, for these numbers of batches."""

    async def ask() -> list[list[BatchRecord]]:
        recent = RecentBatches(1000)
        recent._ring.extend(records)
        arena = Arena.create(PAGE)
        worker = Worker(FakeEngine(), BatchLimits(8, 8))
        session = ClientSession(worker, arena, decode_fake, lambda _session: None, recent)
        hooks = worker_client.Hooks(
            on_done=lambda _pending, _done: None,
            on_welcome=lambda _welcome: True,
            on_lost=lambda _pending: None,
            on_batch=lambda _batched: None,
            end_process=lambda: pytest.fail("the process would have ended"),
        )
        line = worker_client.Line(hooks)
        line.protocol.connection_made(Connected(session.protocol))
        session.protocol.connection_made(Connected(line.protocol))
        session.protocol.send([WELCOME])
        try:
            async with asyncio.timeout(GUARD):
                return await asyncio.gather(*map(line.batches, numbers))
        finally:
            arena.close()

    return asyncio.run(ask())


def test_a_thousand_large_batches_with_the_longest_ids_reach_the_front_end() -> None:
    records = [record(number) for number in range(1000)]
    assert len(ENCODER.encode(records)) > 10 * frame_protocol.LONGEST
    (found,) = asked(records, 1000)
    assert [each.id for each in found] == [each.id for each in records]
    assert all(map(operator.eq, found, records))  # pytest would compare 12 MB of text


def test_several_questions_at_once_get_each_its_own_batches() -> None:
    records = [record(number) for number in range(60)]
    whole, none, last = asked(records, 60, 0, 1)
    assert (whole, none, last) == (records, [], records[-1:])


def test_no_frame_is_larger_than_its_bound_and_only_the_last_is_marked() -> None:
    records = [record(number, n_images=1 + 37 * number % 512) for number in range(200)]
    frames = list(batch_frames(records))
    assert len(frames) > 10
    assert max(len(ENCODER.encode(each)) for each in frames) <= MOST + 100
    assert [each.complete for each in frames] == [False] * (len(frames) - 1) + [True]
    assert [each for frame in frames for each in frame.batches] == records


def test_the_largest_batch_fits_in_a_frame() -> None:
    assert len(ENCODER.encode(record(1, n_images=512))) < MOST


def test_a_worker_without_batches_answers_with_one_empty_frame() -> None:
    assert list(batch_frames([])) == [LastBatches([], True)]
    packed = msgspec.msgpack.encode(LastBatches([], True))
    assert len(packed) < 32
