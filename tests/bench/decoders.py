"""Measure what decoding in processes costs more than decoding on a thread.

Method. A photo of 500 × 375 pixels (a drawing where ../shared/data is missing) in each format is
decoded repeatedly in two ways. "Old" is `codec.decode` on a thread of a pool, as everything was
decoded before decoder processes existed. "New" is what `app.pipeline.decoding` does today: a
baseline JPEG on a thread by `codec.open_plain`, every other file in a process. The two ways
alternate image by image, so that a slow moment of the machine falls on both; `more_ms` is the
median of the differences of the pairs, `ratio` the quotient of the medians. CPU time is that of
this process and of the decoder processes together; other programs on the machine change it less
than wall-clock time. `together` decodes eight images at a time.

Run: python -m tests.bench.decoders [--rounds 200] [--kinds png,webp]. The last line is one JSON
object.
"""

import argparse
import asyncio
import io
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from app.decoders import DecoderLimits, DecoderPool
from models import codec
from tests.pictures import drawing
from tests.shared import PHOTOS
from workers.malloc import keep_freed_memory

MAX_PIXELS = 50_000_000
TOGETHER = 8
KINDS: dict[str, dict[str, object]] = {
    "jpeg": {"quality": 90},
    "progressive": {"quality": 90, "progressive": True},
    "png": {},
    "webp": {},
    "gif": {},
    "bmp": {},
    "tiff": {"compression": "tiff_lzw"},
    "avif": {},
}

Decode = Callable[[], Awaitable[object]]


def files() -> dict[str, bytes]:
    """Return the photo as a file of each format."""
    paths = sorted(PHOTOS.glob("*.JPEG"))
    photo = Image.open(paths[0]).convert("RGB") if paths else drawing(500, 375)
    made = {}
    for kind, options in KINDS.items():
        file = io.BytesIO()
        photo.save(file, "JPEG" if kind == "progressive" else kind.upper(), **options)
        made[kind] = file.getvalue()
    return made


def cpu_seconds(pool: DecoderPool) -> float:
    """Return the CPU seconds of this process and of all decoders (clock_getcpuclockid(3)).

    The decoders must be idle.
    """
    pids = (each.pid for each in pool._idle)
    return time.process_time() + sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


async def seconds(decode: Decode, together: int, pool: DecoderPool) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of one image while `together` are decoded at a time."""
    start, cpu = time.perf_counter(), cpu_seconds(pool)
    await asyncio.gather(*(decode() for _ in range(together)))
    return (time.perf_counter() - start) / together, (cpu_seconds(pool) - cpu) / together


async def compared(
    old: Decode, new: Decode, rounds: int, together: int, pool: DecoderPool
) -> dict[str, float]:
    """Return medians in milliseconds, the median of the paired differences, and the ratio."""
    befores, afters = list[tuple[float, float]](), list[tuple[float, float]]()
    for number in range(rounds):
        turns = [(old, befores), (new, afters)]
        for decode, times in turns if number % 2 else reversed(turns):
            times.append(await seconds(decode, together, pool))
    found = {}
    for column, name in enumerate(("", "cpu_")):
        olds, news = ([each[column] * 1e3 for each in times] for times in (befores, afters))
        before, after = statistics.median(olds), statistics.median(news)
        more = statistics.median(new - old for old, new in zip(olds, news, strict=True))
        found[f"{name}old_ms"], found[f"{name}new_ms"] = round(before, 3), round(after, 3)
        found[f"{name}more_ms"], found[f"{name}ratio"] = round(more, 3), round(after / before, 3)
    return found


async def measure(rounds: int, kinds: list[str]) -> dict[str, object]:
    """Measure the formats, one image at a time and several together."""
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(2)
    pool = DecoderPool(DecoderLimits(2, MAX_PIXELS, 32 << 20, 10.0))
    found: dict[str, object] = {}

    def plain(data: bytes) -> object:
        opened = codec.open_plain(data, max_pixels=MAX_PIXELS)
        assert opened is not None
        return opened.decode()

    for kind, data in files().items():
        if kind not in kinds:
            continue

        async def old(data: bytes = data) -> object:
            return await loop.run_in_executor(
                threads, lambda: codec.decode(data, max_pixels=MAX_PIXELS)
            )

        async def new(data: bytes = data, kind: str = kind) -> object:
            if kind == "jpeg":
                return await loop.run_in_executor(threads, plain, data)
            return await pool.decode(data, len(data))

        await seconds(old, 2, pool), await seconds(new, 4, pool)
        found[kind] = await compared(old, new, rounds, 1, pool)
        fewer = max(5, rounds // 8)
        found[f"{kind} together"] = await compared(old, new, fewer, TOGETHER, pool)
        print(kind, found[kind], found[f"{kind} together"], flush=True)
    await pool.aclose()
    threads.shutdown()
    return found


def main() -> None:
    """Measure as the command line asks."""
    keep_freed_memory()  # as front ends do
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.rounds, options.kinds.split(",")))))


if __name__ == "__main__":
    main()
