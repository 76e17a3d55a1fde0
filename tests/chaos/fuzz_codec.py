"""Mutated image files through `models.codec`: an image or an error of ours, in bounded time.

Method. Some sixty small files of all formats are drawn and mutated (`mutations.py`); input
number n of a seed is always the same. Each is opened and decoded under the cost bounds, in a
child process with limits of memory, and of CPU time for each input, as production has them. The
child says in shared memory which input it is at: when it dies, its parent counts why, keeps the
input, and goes on with the next one in a new child. What counts as found: a crash, an exception
that is no ServiceError, an input over its time, and pixels of another size than the header said.

Run: python -m tests.chaos.fuzz_codec [--count 1000000] [--start 0] [--seed 1] [--keep FOLDER]. The
last line is one JSON object; the exit code is 1 if anything was found.
"""

import argparse
import io
import json
import mmap
import os
import random
import resource
import signal
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from models import codec
from models.domain.errors import ServiceError
from models.domain.image import Image as Image_
from tests import hostile
from tests.chaos.mutations import mutated
from tests.pictures import HEIF

MAX_PIXELS = 1_000_000
SECONDS = 5.0
"""CPU time of one input."""

MEMORY = 400 << 20
BATCH = 5000


@dataclass(slots=True)
class Tally:
    """What has been seen, and what is to be mended."""

    seed: int
    next: int
    outcomes: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    slowest: float = 0.0


def _noise(width: int, height: int) -> Image.Image:
    """Return grey noise, the same in every run: input number n of a seed is built on it."""
    return Image.frombytes("L", (width, height), random.Random(17).randbytes(width * height))


def _timeless(avif: bytes) -> bytes:
    """Return a file whose boxes of ISO/IEC 14496-12 have 0 as the times at which it was made."""
    made = bytearray(avif)
    for box in (b"mvhd", b"tkhd", b"mdhd"):
        at = made.find(box) + len(box)
        if at >= len(box) and made[at] == 1:  # version 1: two times of 8 bytes
            made[at + 4 : at + 20] = bytes(16)
    return bytes(made)


def drawn() -> list[bytes]:
    """Return small files of every format and mode."""
    seeds = []
    exif = Image.Exif()
    exif[0x0112], exif[0x8298], exif[0x010E] = 6, "somebody", "a description"
    ramp = Image.linear_gradient("L").resize((24, 17))
    noise = _noise(19, 23)
    colour = Image.merge(
        "RGBA",
        (ramp, ramp.transpose(Image.Transpose.FLIP_TOP_BOTTOM), noise.resize(ramp.size), ramp),
    )

    def add(mode: str, format_: str, **options: Any) -> None:
        file = io.BytesIO()
        image = colour.convert("L").convert("I") if mode == "I;16" else colour.convert("RGB")
        image = colour if mode == "RGBA" else image
        converted = image.convert(mode)
        converted.info.pop("icc_profile", None)  # that of LAB has the time of this run
        converted.save(file, format_, **options)
        seeds.append(file.getvalue())

    for mode in ("L", "RGB", "CMYK"):
        add(mode, "JPEG", exif=exif)
        add(mode, "JPEG", progressive=True, quality=95)
    for n in (0, 1, 2):
        add("RGB", "JPEG", subsampling=n, restart_marker_blocks=3, comment=b"c" * 30)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        add(mode, "PNG")
    add("RGB", "PNG", exif=exif, dpi=(72, 72))
    add("P", "PNG", bits=4, transparency=b"\0\x80")
    for format_ in ("PNG", "GIF", "WEBP", "AVIF"):
        frames = [ramp.convert("RGB").rotate(n) for n in (0, 90, 180)]
        file = io.BytesIO()
        frames[0].save(file, format_, save_all=True, append_images=frames[1:], duration=50)
        seeds.append(_timeless(file.getvalue()))
    add("P", "GIF", transparency=2, comment=b"hello", interlace=1)
    add("L", "GIF", interlace=0)
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        add(mode, "BMP")
    seeds.append(hostile._bmp(16, 9, b"\x10\x05\0\0" * 8 + b"\0\x04abcd\0\2\1\1\0\1"))
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "YCbCr", "LAB"):
        add(mode, "TIFF")
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd", "lzma"):
        add("RGB", "TIFF", compression=compression)
    for compression in ("group3", "group4"):
        add("1", "TIFF", compression=compression)
    add("RGB", "TIFF", big_tiff=True, exif=exif)
    seeds.append(hostile.large_tile(64, 64))
    webp: tuple[dict[str, Any], ...] = ({"lossless": True}, {"exif": exif}, {"quality": 30})
    for options in webp:
        add("RGBA", "WEBP", **options)
    avif: tuple[dict[str, Any], ...] = ({"subsampling": "4:4:4"}, {"exif": exif}, {"quality": 100})
    for options in avif:
        add("RGBA", "AVIF", max_threads=1, speed=9, **options)
    seeds.extend(each.read_bytes() for each in sorted(HEIF.glob("*.h*")))
    return seeds


def outcome(data: bytes) -> str:
    """Return what became of one input; raise for what is to be mended."""
    try:
        opened = codec.open_file(data, max_pixels=MAX_PIXELS)
        found = opened.decode()
    except ServiceError as error:
        return error.code
    assert isinstance(found.image, Image_)
    height, width, _ = found.image.pixels.shape
    if (found.info.height, found.info.width) != (height, width):
        raise AssertionError("the pixels have another size than the header says")
    return f"ok {found.info.format}"


def child(seeds: Sequence[bytes], seed: int, first: int, end: int, at: mmap.mmap, out: int) -> None:
    """Decode inputs `first` to `end` and write what became of each; never return."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    counts: Counter[str] = Counter()
    slowest, number = 0.0, first
    try:
        for number in range(first, end):
            struct.pack_into("q", at, 0, number)
            data = mutated(seeds, random.Random(seed << 40 | number))
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            start = time.process_time()
            counts[outcome(data)] += 1
            slowest = max(slowest, time.process_time() - start)
    except BaseException as error:
        counts[f"exception {type(error).__name__}"] += 1
        end = number + 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    text = json.dumps({"counts": counts, "slowest": slowest, "end": end})
    os.write(out, text.encode())
    os._exit(0)


def batch(seeds: Sequence[bytes], tally: Tally, size: int, keep: Path | None) -> None:
    """Run one child, count its outcomes, and say where the next one begins."""
    at = mmap.mmap(-1, 8)
    struct.pack_into("q", at, 0, tally.next)
    reading, writing = os.pipe()
    first = tally.next
    pid = os.fork()
    if not pid:
        child(seeds, tally.seed, first, first + size, at, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if text:
        told = json.loads(text)
        tally.outcomes.update(told["counts"])
        tally.slowest = max(tally.slowest, told["slowest"])
        tally.next = told["end"]
        problem = next((name for name in told["counts"] if name.startswith("exception")), None)
    else:  # those before it are run again: their outcomes died with the child
        (number,) = struct.unpack_from("q", at, 0)
        if number > first:
            batch(seeds, tally, number - first, keep)
        name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else status
        problem = "slow" if name == "SIGPROF" else f"crash {name}"
        tally.outcomes[problem] += 1
        tally.next = number + 1
    if problem is not None:
        number = tally.next - 1
        tally.found.append(f"{number}: {problem}")
        if keep is not None:
            data = mutated(seeds, random.Random(tally.seed << 40 | number))
            (keep / f"{tally.seed}-{number}").write_bytes(data)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    tally = Tally(asked.seed, asked.start)
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    codec.warm_up()
    random.seed(0)
    seeds, started = drawn(), time.monotonic()
    while (left := asked.start + asked.count - tally.next) > 0:
        batch(seeds, tally, min(BATCH, left), asked.keep)
    report = {
        "seed": tally.seed,
        "next": tally.next,
        "inputs": tally.outcomes.total(),
        "outcomes": dict(tally.outcomes.most_common()),
        "found": tally.found,
        "slowest": round(tally.slowest, 3),
        "inputs_per_second": round(tally.outcomes.total() / (time.monotonic() - started)),
    }
    print(json.dumps(report))
    return 1 if tally.found else 0


if __name__ == "__main__":
    raise SystemExit(main())
