"""Encoders and their settings: time and bytes for each, beside what the service takes by default.

Method. Twelve photos (of ../shared/data, else rendered ones), and as many graphics made of them:
edges, few tones, wide borders. Every setting of every format encodes all images of a kind, in turn,
in each of three rounds, on one thread; the CPU seconds of its fastest round count, by time of the
process. `time` and `bytes` are ratios to the default of `models.codec.encode`, in the same run:
JPEG at quality 90 and 4:2:0, WebP at 80, AVIF at 75. Run: python -m tests.bench.encode
"""

import json
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import Any

import cv2
import numpy as np
import PIL
import simplejpeg
from PIL import Image as PillowImage
from PIL import features

from models.codec import Encoding, ImageFormat, encode
from models.domain.image import Image, Pixels
from tests.bench.images import jpegs
from workers.filters.registry import parse_chain

IMAGES, ROUNDS = 12, 3
DEFAULT = "default"

Encoder = Callable[[Pixels], bytes]

PNG_RLE, PNG_FILTERED = cv2.IMWRITE_PNG_STRATEGY_RLE, cv2.IMWRITE_PNG_STRATEGY_FILTERED
GRAPHICS = (
    [{"name": "canny"}],
    [{"name": "posterize", "bits": 2}],
    [{"name": "pad", "left": 200, "right": 200, "top": 200, "bottom": 200}],
)


def ours(format_: ImageFormat, encoding: Encoding, pixels: Pixels) -> bytes:
    """Return the file that the service would send."""
    return encode(Image(pixels), format_, encoding)


def pillow(format_: str, pixels: Pixels, **options: object) -> bytes:
    """Return the file that Pillow writes with these options."""
    file = BytesIO()
    PillowImage.fromarray(pixels).save(file, format_, **options)
    return file.getvalue()


def opencv(extension: str, options: list[int], pixels: Pixels) -> bytes:
    """Return the file that OpenCV writes with these flags."""
    swapped = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return bytes(cv2.imencode(extension, swapped, options)[1])


def by_simplejpeg(pixels: Pixels) -> bytes:
    """Return a JPEG of quality 90 with 4:2:0 chroma, by libjpeg-turbo alone."""
    return bytes(simplejpeg.encode_jpeg(pixels, 90, "RGB", "420"))


def of_jpeg() -> dict[str, Encoder]:
    """Return the encoders of JPEG by their names; the service's comes first."""
    by_pillow = partial(pillow, "JPEG", quality=90, subsampling="4:2:0")
    quality = [cv2.IMWRITE_JPEG_QUALITY, 90]
    return {
        DEFAULT: partial(ours, ImageFormat.JPEG, Encoding()),
        "simplejpeg": by_simplejpeg,
        "pillow": by_pillow,
        "pillow optimize": partial(by_pillow, optimize=True),
        "pillow progressive": partial(by_pillow, progressive=True),
        "cv2": partial(opencv, ".jpg", quality),
        "cv2 progressive": partial(opencv, ".jpg", [*quality, cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
    }


def of_png() -> dict[str, Encoder]:
    """Return the encoders of PNG by their names; the service's comes first."""
    level, strategy = cv2.IMWRITE_PNG_COMPRESSION, cv2.IMWRITE_PNG_STRATEGY
    all_filters = [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_ALL_FILTERS]
    found: dict[str, Encoder] = {DEFAULT: partial(ours, ImageFormat.PNG, Encoding())}
    for n in (0, 1, 3, 6):
        found[f"pillow level {n}"] = partial(pillow, "PNG", compress_level=n)
    for name, kind in (("filtered", 1), ("huffman", 2), ("run lengths", 3)):
        found[f"pillow level 1, {name}"] = partial(
            pillow, "PNG", compress_level=1, compress_type=kind
        )
    found["cv2"] = partial(opencv, ".png", [])
    found["cv2 level 1"] = partial(opencv, ".png", [level, 1])
    found["cv2 level 1, filtered"] = partial(opencv, ".png", [level, 1, strategy, PNG_FILTERED])
    found["cv2 all filters, run lengths"] = partial(
        opencv, ".png", [*all_filters, level, 1, strategy, PNG_RLE]
    )
    return found


def of_webp() -> dict[str, Encoder]:
    """Return the encoders of lossy WebP by their names; the service's comes first."""
    found: dict[str, Encoder] = {DEFAULT: partial(ours, ImageFormat.WEBP, Encoding())}
    for n in range(5):
        found[f"pillow method {n}"] = partial(pillow, "WEBP", quality=80, method=n)
    found["cv2"] = partial(opencv, ".webp", [cv2.IMWRITE_WEBP_QUALITY, 80])
    return found


def of_lossless_webp() -> dict[str, Encoder]:
    """Return the encoders of lossless WebP by their names; the service's comes first."""
    asked = Encoding(lossless=True)
    found: dict[str, Encoder] = {DEFAULT: partial(ours, ImageFormat.WEBP, asked)}
    for method, effort in ((0, 0), (0, 80), (1, 0), (2, 0), (4, 80)):
        options: dict[str, Any] = {"lossless": True, "quality": effort, "method": method}
        found[f"pillow method {method}, effort {effort}"] = partial(pillow, "WEBP", **options)
    return found


def of_avif() -> dict[str, Encoder]:
    """Return the encoders of AVIF by their names; the service's comes first."""
    found: dict[str, Encoder] = {DEFAULT: partial(ours, ImageFormat.AVIF, Encoding())}
    for speed in (7, 8, 9, 10):
        options: dict[str, Any] = {"quality": 75, "speed": speed, "max_threads": 1}
        found[f"pillow speed {speed}"] = partial(pillow, "AVIF", **options)
    return found


def pictures() -> tuple[str, dict[str, list[Pixels]]]:
    """Return the source of the images, and the RGB pixels of each kind."""
    source, files = jpegs(16 * IMAGES)
    photos = [
        np.asarray(PillowImage.open(BytesIO(f)).convert("RGB"))
        for f in files[:: len(files) // IMAGES]
    ]
    photos = photos[:IMAGES]
    graphics = []
    for n, pixels in enumerate(photos):
        for each in parse_chain(GRAPHICS[n % len(GRAPHICS)]):
            pixels = each.apply(pixels)
        graphics.append(pixels)
    return source, {"photos": photos, "graphics": graphics}


def measured(encoders: Mapping[str, Encoder], images: list[Pixels]) -> dict[str, dict[str, float]]:
    """Return for every setting its share of the default's time and bytes, and milliseconds a
    megapixel.
    """
    megapixels = sum(p.shape[0] * p.shape[1] for p in images) / 1e6
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    sizes: dict[str, int] = {}
    for _ in range(ROUNDS):
        for name, encoder in encoders.items():
            start = time.process_time()
            sizes[name] = sum(len(encoder(pixels)) for pixels in images)
            seconds[name].append(time.process_time() - start)
    best = {name: min(each) for name, each in seconds.items()}
    return {
        name: {
            "time": round(best[name] / best[DEFAULT], 2),
            "bytes": round(sizes[name] / sizes[DEFAULT], 3),
            "ms_per_megapixel": round(1000 * best[name] / megapixels, 1),
        }
        for name in encoders
    }


def main() -> None:
    """Measure all formats, and print the results as JSON on the last line."""
    cv2.setNumThreads(1)
    source, kinds = pictures()
    formats = {
        "jpeg": of_jpeg(),
        "png": of_png(),
        "webp": of_webp(),
        "webp lossless": of_lossless_webp(),
        **({"avif": of_avif()} if features.check("avif") else {}),
    }
    results: dict[str, dict[str, object]] = {}
    for kind, images in kinds.items():
        for format_, encoders in formats.items():
            found = measured(encoders, images)
            results.setdefault(format_, {})[kind] = found
            print(f"\n{format_}, {kind}: time and bytes by the default's, ms a megapixel")
            for name, row in found.items():
                print(f"  {name:32}", *(f"{value:9.3f}" for value in row.values()))
    report = {
        "benchmark": "encode",
        "command": "python -m tests.bench.encode",
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "pillow": PIL.__version__,
        "opencv": cv2.__version__,
        "images": source,
        "results": results,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
