"""`darkroom compare`: time filters on each device of this machine, and compare the bytes.

The whole chain is measured, and each filter of it alone on the image that the filters before it
have made. Workers are started as a server starts them, without HTTP.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2

from app.bulk.errors import WrongUsage
from app.cli.flags import add_settings, complete_files
from app.cli.image_flags import add_chain, given_chain
from app.cli.standard_output import show
from app.pipeline.memory import check_filters
from app.telemetry import logs
from models import codec
from models.domain.errors import ServiceError
from models.domain.image import Image
from models.domain.job import Job
from models.exit_codes import ExitCode
from models.settings import Settings
from workers.backends.in_process import LocalBackend
from workers.operations import FilterChain
from workers.scheduling.worker import Worker
from workers.supervision.gpu_discovery import wanted_gpus, why_no_gpu
from workers.supervision.startup import CPU_BATCH, GPU_BATCH, GpuUnusable, cores, start_worker

ALONE = 5
"""Times that an image is filtered alone; the median of the times is shown."""

EXAMPLES = (
    "darkroom compare photo.jpg --op gaussian_blur:sigma=4",
    "darkroom compare photo.jpg --ops 'grayscale,sobel' --images 500 --json",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Filters on a device: the milliseconds of an image alone and of its stages, images a second of
    many images at a time, and the samples that differ from the result of one thread.
    """

    filters: str
    device: str
    milliseconds: float
    upload: float
    compute: float
    download: float
    images_per_second: float
    different_samples: int


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    complete_files(parser.add_argument("image", metavar="IMAGE", help="the file of an image"))
    add_chain(parser)
    parser.add_argument(
        "--images",
        type=int,
        default=64,
        metavar="N",
        help="times that the image is filtered to measure images a second (default: 64)",
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON")
    names = ("gpus", "threads", "max_batch_size", "max_pixels", "cache_folder")
    add_settings(parser, names)


def run(
    settings: Settings,
    image: str,
    ops: str | None,
    op: Sequence[str],
    images: int,
    as_json: bool,
) -> int:
    """Print the times; the exit code is FAILED where devices differ that should not."""
    logs.configure("error", settings.log_format)
    chain = given_chain(ops, op)
    if images < 1:
        raise WrongUsage(f"--images: a number from 1 on is needed, not {images}")
    try:
        gpu = wanted_gpus(settings.gpus) > 0
        works = [*_works(chain, _decoded(Path(image), settings, chain))]
    except OSError as error:
        raise WrongUsage(f"{image}: {error.strerror}") from None
    except ServiceError as error:
        raise WrongUsage(f"{image}: {error}") from None
    except ValueError as error:  # of --gpus
        raise WrongUsage(str(error)) from None
    found: list[Measured] = []
    results: list[Image] = []
    left_out = "" if gpu else "--gpus 0" if settings.gpus == "0" else why_no_gpu()
    n = cores(settings)
    devices: list[tuple[str, int, int | None]] = [("CPU, 1 thread", 1, None)]
    devices += [(f"CPU, {n} threads", n, None)] if n > 1 else []
    devices += [("GPU", n, 0)] if gpu else []
    for device, threads, number in devices:
        cv2.setNumThreads(threads)
        own = settings.model_copy(update={"threads": threads})
        try:
            worker: Worker[Any] = start_worker(
                own, lambda *_: None, weights=False, gpu=number, stand_in=False
            ).worker
        except GpuUnusable as error:
            left_out = str(error)
            continue
        size = settings.max_batch_size or (CPU_BATCH if number is None else GPU_BATCH)
        try:
            for index, (name, each, given) in enumerate(works):
                most = max(
                    1, Settings.max_batch_pixels // each.most_pixels(*given.pixels.shape[:2])
                )
                lanes = min(images, 2 * (threads if number is None else size), 2 * most)
                measured = asyncio.run(_measured(worker, Job(each, given), images, lanes))
                if len(results) == index:
                    results.append(measured[0])
                differ = int((measured[0].pixels != results[index].pixels).sum())
                found.append(Measured(name, device, **measured[1], different_samples=differ))
        finally:
            worker.stop()
    _show(found, left_out, as_json=as_json)
    exact = not any(each.device_tolerance for each in chain.filters)
    wrong = exact and any(each.different_samples for each in found)
    return ExitCode.FAILED if wrong else ExitCode.OK


def _decoded(file: Path, settings: Settings, chain: FilterChain) -> Image:
    """Return the pixels of a file within the limits of a server; raises OSError, ServiceError."""
    opened = codec.open_file(file.read_bytes(), max_pixels=settings.max_pixels)
    codec.check_decode_memory(opened.info, opened.memory, Settings.decode_memory)
    image = opened.decode().image
    assert isinstance(image, Image)
    check_filters(chain, settings.max_pixels, image.pixels.shape, Settings.encode_memory)
    return image


def _works(chain: FilterChain, image: Image) -> Iterator[tuple[str, FilterChain, Image]]:
    """Yield the name of the chain, the chain and its image, then the same of each filter alone.

    Filters that measure pixels are replaced by the filters that they find.
    """
    works, source = [], image
    for each in chain.filters:
        measured = each.measured(source.pixels)
        works.append((f"  {each.name}", FilterChain((measured,)), source))
        source = Image(measured.apply(source.pixels))
    filters = tuple(alone.filters[0] for _, alone, _ in works)
    yield ", ".join(each.name for each in chain.filters), FilterChain(filters), image
    if len(works) > 1:
        yield from works


async def _measured(
    worker: Worker[Any], job: Job, images: int, lanes: int
) -> tuple[Image, dict[str, float]]:
    """Return the result, and the times of `Measured` by their names."""
    backend = LocalBackend(worker)
    first = await backend.run(job)  # what is loaded or allocated once is not measured
    alone = {name: list[float]() for name in ("milliseconds", *STAGES)}
    for _ in range(ALONE):
        start = time.perf_counter()
        trace = (await backend.run(job)).trace
        alone["milliseconds"].append(time.perf_counter() - start)
        for name in STAGES:
            alone[name].append(getattr(trace, name))
    left = iter(range(images))

    async def lane() -> None:
        for _ in left:
            await backend.run(job)

    start = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    rate = images / (time.perf_counter() - start)
    assert isinstance(first.result, Image)
    times = {name: 1000 * statistics.median(seconds) for name, seconds in alone.items()}
    return first.result, times | {"images_per_second": rate}


STAGES = ("upload", "compute", "download")
"""The times of a `Trace` that are shown; the pixels come decoded."""


def _show(found: Sequence[Measured], left_out: str, *, as_json: bool) -> None:
    if as_json:
        shown = {"measured": [asdict(each) for each in found], "gpu_left_out": left_out}
        show(json.dumps(shown) + "\n")
        return
    width = max(len(each.filters) for each in found)
    stages = "".join(f"{name + ' ms':>13}" for name in STAGES)
    show(f"{'filters':{width}}  {'device':15}{'ms':>10}{stages}{'images/s':>11}  bytes\n")
    for each in found:
        times = "".join(f"{getattr(each, name):13.2f}" for name in STAGES)
        differ = f"{each.different_samples:,} samples differ" if each.different_samples else "equal"
        show(
            f"{each.filters:{width}}  {each.device:15}{each.milliseconds:10.2f}{times}"
            f"{each.images_per_second:11.1f}  {differ}\n"
        )
    if left_out:
        print(f"darkroom: no GPU is compared: {left_out}", file=sys.stderr)
