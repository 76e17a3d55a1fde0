"""What decoding in processes costs, beside decoding on threads, in one run.

Method. A photo of 500 × 375 pixels (drawn where ../shared/data is missing) in each format is
decoded again and again: by `codec.decode` on a thread of a pool, which is how everything was
decoded before there were decoder processes, and as `app.pipeline.decoding` does it now: a baseline
JPEG on a thread by `codec.open_plain`, everything else in a process. The two take turns image by
image, so a slow moment of the machine falls on both; what counts is the median of each, and their
difference. CPU time, which other programs on the machine hardly change, is that of this process and
of the decoders. `together` decodes eight at a time.

Run: python -m tests.bench.decoders [--rounds 200]. The last line is one JSON object.
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

from app.decoders import DecoderPool, Limits
from models import codec
from tests.pictures import drawing
from tests.shared import PHOTOS

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
    """The photo in each format."""
    paths = sorted(PHOTOS.glob("*.JPEG"))
    photo = Image.open(paths[0]).convert("RGB") if paths else drawing(500, 375)
    made = {}
    for kind, options in KINDS.items():
        file = io.BytesIO()
        photo.save(file, "JPEG" if kind == "progressive" else kind.upper(), **options)
        made[kind] = file.getvalue()
    return made


def cpu_seconds(pool: DecoderPool) -> float:
    """Of this process and of all decoders, which are idle now (clock_getcpuclockid(3))."""
    pids = (each.pid for each in pool._idle)
    return time.process_time() + sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


async def seconds(decode: Decode, together: int, pool: DecoderPool) -> tuple[float, float]:
    """Of one image, where so many are decoded at a time: by the clock, and CPU time."""
    start, cpu = time.perf_counter(), cpu_seconds(pool)
    await asyncio.gather(*(decode() for _ in range(together)))
    return (time.perf_counter() - start) / together, (cpu_seconds(pool) - cpu) / together


async def compared(
    old: Decode, new: Decode, rounds: int, together: int, pool: DecoderPool
) -> dict[str, float]:
    """Medians in milliseconds, and the ratio."""
    befores, afters = [], []
    for number in range(rounds):
        turns = [(old, befores), (new, afters)]
        for decode, times in turns if number % 2 else reversed(turns):
            times.append(await seconds(decode, together, pool))
    found = {}
    for column, name in enumerate(("", "cpu_")):
        before, after = (
            statistics.median(each[column] for each in times) * 1e3 for times in (befores, afters)
        )
        found[f"{name}old_ms"], found[f"{name}new_ms"] = round(before, 3), round(after, 3)
        found[f"{name}more_ms"] = round(after - before, 3)
        found[f"{name}ratio"] = round(after / before, 3)
    return found


async def measure(rounds: int) -> dict[str, object]:
    """All formats, one at a time and together."""
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(2)
    pool = DecoderPool(Limits(2, MAX_PIXELS, 32 << 20, 10.0))
    found: dict[str, object] = {}

    def plain(data: bytes) -> object:
        opened = codec.open_plain(data, max_pixels=MAX_PIXELS)
        assert opened is not None
        return opened.decode()

    for kind, data in files().items():

        async def old(data: bytes = data) -> object:
            return await loop.run_in_executor(
                threads, lambda: codec.decode(data, max_pixels=MAX_PIXELS)
            )

        async def new(data: bytes = data, kind: str = kind) -> object:
            if kind == "jpeg":
                return await loop.run_in_executor(threads, plain, data)
            return await pool.decode(data, len(data), lambda seen: True)

        await seconds(old, 2, pool), await seconds(new, 4, pool)
        found[kind] = await compared(old, new, rounds, 1, pool)
        fewer = max(5, rounds // 8)
        found[f"{kind} together"] = await compared(old, new, fewer, TOGETHER, pool)
        print(kind, found[kind], found[f"{kind} together"], flush=True)
    await pool.aclose()
    threads.shutdown()
    return found


def main() -> None:
    """As the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    print(json.dumps(asyncio.run(measure(parser.parse_args().rounds))))


if __name__ == "__main__":
    main()
