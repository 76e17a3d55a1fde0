"""Batches that overtake each other on three streams and in three slots never mix."""

import queue
import threading

import numpy as np
import torch

from models.codec import pixels_of
from models.domain.image import Image, Jpeg
from models.domain.job import Job
from tests.gpu.conftest import as_jpeg, jpeg
from tests.gpu.equality import Run
from workers.engines.cuda.engine import CudaEngine
from workers.engines.cuda.slot import GpuSlot
from workers.filters.registry import parse_chain
from workers.operations import Classify, FilterChain

INVERT = FilterChain(parse_chain([{"name": "invert"}]))
BATCHES = 400
SOAK = 200_000


def plain(level: int, side: int) -> Jpeg:
    """Return a JPEG of one colour, which any byte of another image in it would change."""
    return as_jpeg(jpeg(np.full((side, side + 3, 3), level, np.uint8), subsampling=2))


def pipelined(engine: CudaEngine, batches: list[list[Job]]) -> list[list[object]]:
    """Run batches as the worker does: one thread launches, another collects."""
    launched: queue.SimpleQueue[GpuSlot] = queue.SimpleQueue()
    found: list[list[object]] = []

    def collect() -> None:
        for _ in batches:
            slot = launched.get()
            found.append(list(engine.collect(slot).values))
            engine.release(slot)

    collecting = threading.Thread(target=collect)
    collecting.start()
    for batch in batches:
        slot = engine.acquire()
        assert slot is not None
        engine.launch(slot, batch)
        launched.put(slot)
    collecting.join()
    return found


def test_decoding_never_writes_into_a_batch_that_is_still_read(engine: CudaEngine) -> None:
    """The engines ignore the order of streams: a slot used too early would show here."""
    random = np.random.default_rng(2)
    known = [plain(int(level), int(side)) for level in range(0, 256, 15) for side in (40, 333, 500)]
    expected = [255 - pixels_of(each).pixels for each in known]
    picks = [random.integers(0, len(known), random.integers(1, 33)) for _ in range(BATCHES)]
    batches = [[Job(INVERT, known[pick]) for pick in batch] for batch in picks]
    for values, batch in zip(pipelined(engine, batches), picks, strict=True):
        for found, pick in zip(values, batch, strict=True):
            assert isinstance(found, Image)
            assert np.array_equal(found.pixels, expected[pick])


def test_labels_of_interleaved_batches_are_those_of_batches_alone(
    engine: CudaEngine, run: Run
) -> None:
    random = np.random.default_rng(4)
    known = [as_jpeg(jpeg(random.integers(0, 256, (300, 400, 3), np.uint8))) for _ in range(64)]
    alone = [run(Classify(top_k=3), known[: 1 << n]).values for n in range(7)]
    order = [int(n) for n in random.integers(0, 7, BATCHES)]
    batches = [[Job(Classify(top_k=3), each) for each in known[: 1 << n]] for n in order]
    for values, n in zip(pipelined(engine, batches), order, strict=True):
        assert values == alone[n]


def test_memory_is_flat_over_200_000_images(engine: CudaEngine) -> None:
    known = [plain(level, 64) for level in range(64)]
    batch = [Job(Classify(), each) for each in known]
    before, seen = 0, 0
    while seen < SOAK:
        pipelined(engine, [batch] * 50)
        seen += 50 * len(batch)
        free, _ = torch.cuda.mem_get_info()
        before = before or free
    assert free >= before - (1 << 20)


def test_launching_leaves_the_thread_on_the_default_stream(engine: CudaEngine) -> None:
    slot = engine.acquire()
    assert slot is not None
    engine.launch(slot, [Job(INVERT, plain(3, 40))])
    engine.collect(slot)
    engine.release(slot)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
