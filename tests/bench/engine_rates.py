"""What one GPU can do, stage by stage, with nothing around it: the limits the service is held to.

Each rate is images per second over at least `SECONDS`, after a warm-up, with all work on its way
before the host waits once; three batches are in flight where the service would have three. A
latency is that of a single batch.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from models.codec import ImageFormat, decode, encode, encoded
from models.domain.image import Image, Jpeg, Source
from models.domain.job import Job
from models.networks.registry import BUNDLED, RESNET18
from models.settings import Optimize, Precision, Settings
from tests.bench.images import jpegs, subsampled
from tests.bench.report import report
from tests.own_networks import save
from workers.engines.cuda.classifying import Cropper
from workers.engines.cuda.engine import CudaEngine
from workers.engines.cuda.kernels import Kernels
from workers.engines.cuda.network import GraphedNetwork
from workers.engines.cuda.slot import GpuSlot
from workers.engines.cuda.sources import BatchSources
from workers.engines.model import load_models, load_state
from workers.operations import Classify

SECONDS = 1.0
BATCH = 64
MODEL_BATCH = 256
ROOM = 1 << 25
DEVICE = "cuda:0"
TIMM = ("vit_base_patch16_224", "convnext_tiny", "efficientnet_b0")


def hardware_rate(jpegs: Sequence[bytes]) -> float:
    """Return the images per second of the decode engines alone: planes of batches of one
    subsampling, in three states in turn.

    From one thread, whom nvJPEG's calls keep busy for 0.05 ms an image; two threads at once got
    26,000 images a second out of the engines where one got 19,400.
    """
    engine = CudaEngine([], BATCH, ROOM, DEVICE)
    slots, kernels = _slots(engine), Kernels()
    groups: dict[str, list[Source]] = {}
    for jpeg in _sent(jpegs):
        groups.setdefault(jpeg.subsampling, []).append(jpeg)
    batches = [
        group[start : start + BATCH]
        for group in groups.values()
        for start in range(0, len(group), BATCH)
    ]
    turn = 0

    def decode_all() -> int:
        nonlocal turn
        for batch in batches:
            slot = slots[turn % len(slots)]
            turn += 1
            slot.marks.done.synchronize()
            slot.clear()
            with torch.cuda.stream(slot.uploads):
                BatchSources(slot, kernels).place(batch)
                slot.marks.done.record()
        return sum(map(len, batches))

    return _rate(decode_all)


def own_network(architecture: str) -> GraphedNetwork:
    """Return timm's architecture with random weights, served from a folder as users do."""
    with TemporaryDirectory() as parent:
        folder = save(architecture, Path(parent))
        settings = Settings.model_validate({"networks": f"{folder}"})
        (loaded,) = load_models(
            settings,
            DEVICE,
            lambda spec, state: GraphedNetwork(state, Precision.AUTO, spec, MODEL_BATCH, DEVICE),
        )
    network: GraphedNetwork = loaded.network
    return network


def model_rate(network: GraphedNetwork) -> float:
    """Return the images per second of a network alone: replays of the graph of the largest batch
    size.
    """
    stream = torch.cuda.Stream()
    network.capture(stream)

    def replay() -> int:
        with torch.cuda.stream(stream):
            for _ in range(20):
                network.run(MODEL_BATCH)
        stream.synchronize()
        return 20 * MODEL_BATCH

    return _rate(replay)


def latency(jpegs: Sequence[bytes], size: int) -> float:
    """Return the median milliseconds of a batch of `size` labelled JPEGs, from the start of its
    launch until its labels are there, on an idle engine.
    """
    engine, times = CudaEngine([_network(BATCH)], BATCH, ROOM, DEVICE), []
    engine.warm_up()
    photos = cycle(_sent(jpegs))
    for _ in range(100):
        slot = engine.acquire()
        assert slot is not None
        jobs = [Job(Classify(), each) for each in islice(photos, size)]
        start = time.perf_counter()
        engine.launch(slot, jobs)
        engine.collect(slot)
        times.append(time.perf_counter() - start)
        engine.release(slot)
    return round(statistics.median(times) * 1e3, 2)


def preprocess_rate(jpegs: Sequence[bytes]) -> float:
    """Return the images per second of upsampling, conversion, resize, crop and normalisation alone,
    from decoded planes.
    """
    engine, network = CudaEngine([], BATCH, ROOM, DEVICE), _network(BATCH)
    cropper = Cropper(Kernels(), RESNET18.preprocessing, network.table)
    (slot, *_) = _slots(engine)
    batch = _sent(jpegs)[:BATCH]
    rows, starts = cropper.place(batch, slot)
    rows_at, starts_at = slot.tables.add(rows), slot.tables.add(starts)
    slot.tables.upload()
    torch.cuda.synchronize()

    def crop() -> int:
        for _ in range(20):
            cropper.launch(rows_at, starts_at, len(batch), int(starts[-1]), network.input)
        torch.cuda.synchronize()
        return 20 * len(batch)

    return _rate(crop)


def encode_rate(jpegs: Sequence[bytes]) -> float:
    """Return the JPEGs per second, encoded as answers are, on a thread for each core of this
    process.
    """
    images = [decode(data, max_pixels=ROOM).image for data in jpegs[:BATCH]]
    pixels = [image for image in images if isinstance(image, Image)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:

        def encode_all() -> int:
            return sum(1 for _ in pool.map(lambda image: encode(image, ImageFormat.JPEG), pixels))

        return _rate(encode_all)


def _slots(engine: CudaEngine) -> list[GpuSlot]:
    slots = []
    for _ in range(3):
        slot = engine.acquire()
        assert slot is not None
        slot.marks.done.record()
        slots.append(slot)
    return slots


def _network(batch: int, optimize: Optimize = Optimize.DEFAULT) -> GraphedNetwork:
    state = load_state(BUNDLED.path, 10)
    return GraphedNetwork(state, Precision.AUTO, RESNET18, batch, DEVICE, optimize)


def _sent(files: Sequence[bytes]) -> list[Jpeg]:
    """Return the files that front ends send encoded; a few have colour profiles and are decoded
    there.
    """
    found = (encoded(data, max_pixels=ROOM) for data in files)
    return [each.image for each in found if each is not None and isinstance(each.image, Jpeg)]


def _rate(work: Callable[[], int]) -> float:
    """Return the images per second of `work`, which returns how many images it handled."""
    work()
    torch.cuda.synchronize()
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        done += work()
    torch.cuda.synchronize()
    return done / (time.perf_counter() - started)


def main() -> None:
    """Measure all rates; the last line is one JSON object.

    `--max` adds ResNet-18 with the setting `optimize=max`, `--timm` three networks of timm.
    """
    mixed = jpegs(196)[1]
    small = [subsampled(each) for each in mixed]
    rates = {
        "hardware_subsampled": hardware_rate(small),
        "hardware_mixed": hardware_rate(mixed),
        "preprocess_subsampled": preprocess_rate(small),
        "preprocess_mixed": preprocess_rate(mixed),
        "encode": encode_rate(small),
        "model": model_rate(_network(MODEL_BATCH)),
    }
    if "--max" in sys.argv:
        rates["model_optimize_max"] = model_rate(_network(MODEL_BATCH, Optimize.MAX))
    if "--timm" in sys.argv:
        rates |= {name: model_rate(own_network(name)) for name in TIMM}
    waits = {f"latency_{size}_ms": latency(small, size) for size in (1, 8)}
    report("engine_rates", **{name: int(rate) for name, rate in rates.items()}, **waits)


if __name__ == "__main__":
    main()
