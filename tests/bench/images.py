"""The images benchmarks run on: the photos of ../shared/data where present, else rendered ones."""

import io

import numpy as np
import simplejpeg
from PIL import Image

from tests.shared import PHOTOS


def jpegs(count: int) -> tuple[str, list[bytes]]:
    """Return the source of the images, and up to `count` JPEGs of about 110 kB and 0.2 Mpx."""
    if PHOTOS.is_dir():
        return "photos", [path.read_bytes() for path in sorted(PHOTOS.iterdir())[:count]]
    random = np.random.default_rng(0)
    grain = random.integers(0, 40, (count, 400, 500, 3))
    ramp = np.linspace(0, 215, 500)[None, None, :, None]
    pixels = (grain + ramp).astype(np.uint8)
    return "rendered", [simplejpeg.encode_jpeg(p, quality=90) for p in pixels]


def subsampled(photo: bytes) -> bytes:
    """Return the image as a JPEG of quality 90 with 4:2:0 chroma."""
    file = io.BytesIO()
    Image.open(io.BytesIO(photo)).convert("RGB").save(file, "JPEG", quality=90, subsampling=2)
    return file.getvalue()
