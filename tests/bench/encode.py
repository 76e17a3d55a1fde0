"""Encoders and their settings: time and bytes for each, beside what the service takes by default.

Method. Twelve photos (of ../shared/data, else rendered ones), and as many graphics made of them:
edges, few tones, wide borders. Every setting of every format encodes all images of a kind, in turn,
in each of three rounds, on one thread; the CPU seconds of its fastest round count, by time of the
process. `time` and `bytes` are ratios to the default of `models.codec.encode`, in the same run:
JPEG at quality 90 and 4:2:0, WebP at 80, AVIF at 75. Run: python -m tests.bench.encode
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any

import cv2
import numpy as np
import PIL
from PIL import Image as PillowImage
from PIL import features

from models.codec import Encoding, ImageFormat, encode
from models.domain.image import Image, Pixels
from tests.bench.images import jpegs
from tests.bench.report import report
from workers.filters.registry import parse_chain

IMAGES, ROUNDS = 12, 3
DEFAULT = "default"

Encoder = Callable[[Pixels], bytes]

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


JPEG_QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 90]
PNG_RUNS = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
ALL_FILTERS = [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_ALL_FILTERS]


def encoders() -> dict[str, dict[str, Encoder]]:
    """Return the encoders of each format by their names; the service's comes first."""

    def default(format_: ImageFormat, **options: Any) -> dict[str, Encoder]:
        return {DEFAULT: partial(ours, format_, Encoding(**options))}

    jpeg = partial(pillow, "JPEG", quality=90, subsampling="4:2:0")
    lossless: list[tuple[str, dict[str, Any]]] = [
        (f"pillow method {method}, effort {effort}", {"quality": effort, "method": method})
        for method, effort in ((0, 0), (0, 80), (1, 0), (2, 0), (4, 80))
    ]
    found = {
        "jpeg": default(ImageFormat.JPEG)
        | {
            "pillow": jpeg,
            "pillow progressive": partial(jpeg, progressive=True),
            "cv2": partial(opencv, ".jpg", JPEG_QUALITY),
        },
        "png": default(ImageFormat.PNG)
        | {f"pillow level {n}": partial(pillow, "PNG", compress_level=n) for n in (0, 1, 3, 6)}
        | {
            "cv2": partial(opencv, ".png", []),
            "cv2 all filters, run lengths": partial(opencv, ".png", [*ALL_FILTERS, *PNG_RUNS]),
        },
        "webp": default(ImageFormat.WEBP)
        | {f"pillow method {n}": partial(pillow, "WEBP", quality=80, method=n) for n in range(5)},
        "webp lossless": default(ImageFormat.WEBP, lossless=True)
        | {name: partial(pillow, "WEBP", lossless=True, **each) for name, each in lossless},
    }
    if features.check("avif"):
        found["avif"] = default(ImageFormat.AVIF) | {
            f"pillow speed {n}": partial(pillow, "AVIF", quality=75, speed=n, max_threads=1)
            for n in (7, 8, 9, 10)
        }
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
    results: dict[str, dict[str, object]] = {}
    for kind, images in kinds.items():
        for format_, each in encoders().items():
            found = measured(each, images)
            results.setdefault(format_, {})[kind] = found
            print(f"\n{format_}, {kind}: time and bytes by the default's, ms a megapixel")
            for name, row in found.items():
                print(f"  {name:32}", *(f"{value:9.3f}" for value in row.values()))
    versions = {"pillow": PIL.__version__, "opencv": cv2.__version__}
    report("encode", **versions, images=source, results=results)


if __name__ == "__main__":
    main()
