"""Measure the memory that decoding and encoding one large image takes, by format.

Method. A photo (a drawing where ../shared/data is missing), scaled to the number of megapixels
asked for, is written in each format. For each, a child is forked from this process, which has
loaded the codecs and holds nothing else, as decoder processes are forked. The child resets the
high-water mark of its resident memory, takes the file or the pixels, decodes or encodes, and
reports how far the mark rose, or what it holds at the end and the answer's bytes a second time, as
they exist while they are handed over, if that is more. This is compared with the estimates by which
the service lets such images in (`models/codec/costs.py`): `estimate_ratio` is estimate by
measurement and should be at least 1.

Run: python -m tests.bench.decoder_memory [--megapixels 24]. The last line is one JSON object.
"""

import argparse
import io
import json
import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from app.decoders.memory import SharedArea, new_area, release
from models import codec
from models.codec import Encoding, ImageFormat, encode_memory
from models.domain.image import Image
from tests.pictures import drawing
from tests.shared import PHOTOS

DECODED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "jpeg": ("JPEG", "RGB", {"quality": 90}),
    "jpeg progressive": ("JPEG", "RGB", {"quality": 90, "progressive": True}),
    "jpeg progressive 4:4:4": (
        "JPEG",
        "RGB",
        {"quality": 90, "progressive": True, "subsampling": "4:4:4"},
    ),
    "jpeg cmyk": ("JPEG", "CMYK", {"quality": 90}),
    "png": ("PNG", "RGB", {"compress_level": 1}),
    "png rgba": ("PNG", "RGBA", {"compress_level": 1}),
    "png palette": ("PNG", "P", {"compress_level": 1}),
    "png palette with alpha": (
        "PNG",
        "P",
        {"compress_level": 1, "transparency": bytes(range(256))},
    ),
    "png 16 bit": ("PNG", "I;16", {"compress_level": 1}),
    "webp": ("WEBP", "RGB", {"quality": 80, "method": 0}),
    "webp lossless": ("WEBP", "RGB", {"lossless": True, "method": 0, "quality": 0}),
    "webp rgba": ("WEBP", "RGBA", {"quality": 80, "method": 0}),
    "gif transparent": ("GIF", "P", {"transparency": 3}),
    "gif": ("GIF", "P", {}),
    "bmp": ("BMP", "RGB", {}),
    "tiff": ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    "tiff cmyk": ("TIFF", "CMYK", {"compression": "tiff_lzw"}),
    "tiff rgba": ("TIFF", "RGBA", {"compression": "tiff_lzw"}),
    "tiff float": ("TIFF", "F", {"compression": "tiff_lzw"}),
    "avif": ("AVIF", "RGB", {"speed": 10, "max_threads": 1}),
    "avif rgba": ("AVIF", "RGBA", {"speed": 10, "max_threads": 1, "subsampling": "4:4:4"}),
    "avif 4:4:4": ("AVIF", "RGB", {"speed": 10, "max_threads": 1, "subsampling": "4:4:4"}),
}

ENCODED: dict[str, tuple[ImageFormat, Encoding]] = {
    "jpeg": (ImageFormat.JPEG, Encoding()),
    "jpeg progressive": (ImageFormat.JPEG, Encoding(progressive=True)),
    "png": (ImageFormat.PNG, Encoding(png_level=1)),
    "webp": (ImageFormat.WEBP, Encoding()),
    "webp lossless": (ImageFormat.WEBP, Encoding(lossless=True)),
    "png rgba": (ImageFormat.PNG, Encoding(png_level=1)),
    "webp rgba": (ImageFormat.WEBP, Encoding()),
    "webp lossless rgba": (ImageFormat.WEBP, Encoding(lossless=True)),
    "avif rgba": (ImageFormat.AVIF, Encoding(avif_speed=10)),
    "avif 4:4:4 rgba": (ImageFormat.AVIF, Encoding(avif_speed=10, chroma="444")),
    "avif": (ImageFormat.AVIF, Encoding(avif_speed=10)),
    "avif 4:4:4": (ImageFormat.AVIF, Encoding(avif_speed=10, chroma="444")),
}


def made(work: Callable[[], bytes]) -> int:
    """Return a memory file of the bytes that `work` makes in a child, so that we stay small."""
    memory = os.memfd_create("made")
    pid = os.fork()
    if not pid:
        with open(os.dup(memory), "wb") as file:
            file.write(work())
        os._exit(0)
    os.waitpid(pid, 0)
    return memory


def risen(memory: int, work: Callable[[int], bytes | Any]) -> int:
    """Return by how many bytes a child's memory rises when it does `work` on a memory file."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        before = _resident("VmRSS")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        answer = work(memory)
        handed_over = _resident("VmRSS") + len(memoryview(answer).cast("B"))
        os.write(writing, str(max(_resident("VmHWM"), handed_over) - before).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        answer = file.read()
    os.close(memory)
    os.waitpid(pid, 0)
    return int(answer)


def _resident(name: str) -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(name))
    return int(line.split()[1]) << 10


def photo(width: int, height: int) -> PillowImage.Image:
    """Return the photo, scaled."""
    paths = sorted(PHOTOS.glob("*.JPEG"))
    picture = PillowImage.open(paths[0]).convert("RGB") if paths else drawing(500, 375)
    return picture.resize((width, height))


def stored(width: int, height: int, channels: int) -> bytes:
    """Return the pixels of the photo; a fourth channel is its brightness."""
    picture = photo(width, height)
    if channels == 4:
        picture.putalpha(picture.convert("L"))
    return picture.tobytes()


def written(width: int, height: int, format_: str, mode: str, options: dict[str, Any]) -> bytes:
    """Return the photo as a file."""
    file = io.BytesIO()
    picture = photo(width, height).convert("I" if mode == "I;16" else mode).convert(mode)
    picture.save(file, format_, **options)
    return file.getvalue()


def measure(megapixels: float) -> dict[str, dict[str, float]]:
    """Measure all formats; prints each as it is known."""
    codec.warm_up()
    height = round((megapixels * 1e6 * 3 / 4) ** 0.5)
    width = round(height * 4 / 3)
    found = {}
    for name, (format_, mode, options) in DECODED.items():
        memory = made(partial(written, width, height, format_, mode, options))
        size = os.fstat(memory).st_size
        opened = codec.open_file(os.pread(memory, size, 0), max_pixels=width * height)
        row = _row(risen(memory, decode), opened.memory, width * height)
        del opened
        found[f"decode {name}"] = row
        print(f"decode {name}", row, flush=True)
    for name, (kind, encoding) in ENCODED.items():
        channels = 4 if "rgba" in name else 3
        memory = made(partial(stored, width, height, channels))
        work = partial(encode, (height, width, channels), kind, encoding)
        estimate = encode_memory((height, width, channels), kind, encoding)
        row = _row(risen(memory, work), estimate, width * height)
        found[f"encode {name}"] = row
        print(f"encode {name}", row, flush=True)
    return found


def decode(memory: int) -> Any:
    """Decode as a decoder process does; return the pixels if they are not in the area."""
    data = os.pread(memory, os.fstat(memory).st_size, 0)
    opened = codec.open_file(data, max_pixels=1 << 30)
    area = SharedArea(new_area(opened.info.n_pixels, 0))
    image = opened.decode(
        writable=False, new_pixels=lambda shape: area.view(math.prod(shape)).reshape(shape)
    ).image
    assert isinstance(image, Image)
    return b"" if np.shares_memory(image.pixels, area.view(1)) else image.pixels


def encode(
    shape: tuple[int, int, int], format_: ImageFormat, encoding: Encoding, memory: int
) -> bytes:
    """Return the file of the pixels in an area, as a decoder process makes it."""
    size = math.prod(shape)
    pixels = SharedArea(memory).view(size)
    return codec.encode(Image(pixels.reshape(shape)), format_, encoding, taken=release)


def _row(measured: int, estimate: int, pixels: int) -> dict[str, float]:
    return {
        "bytes_per_pixel": round(measured / pixels, 1),
        "megabytes": round(measured / 1e6, 1),
        "estimate_ratio": round(estimate / measured, 2),
    }


def main() -> None:
    """Measure as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megapixels", type=float, default=24)
    print(json.dumps(measure(parser.parse_args().megapixels)))


if __name__ == "__main__":
    main()
