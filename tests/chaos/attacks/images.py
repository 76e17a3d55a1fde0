"""Files that are cheap to send and dear to decode, beside 15 good clients.

Old effect: codec threads were held for up to 100 s by one file and could not be ended, so that all
15 neighbours got 504; some files took over a gigabyte. Promise: neighbours are spared, and the
file is refused, or its decoding ended, within the request's deadline.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

from PIL import Image

from tests import hostile
from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post
from tests.pictures import encoded, jpeg

LASTING = 5.0
"""Seconds during which a refused attacker tries again."""

Build = Callable[[], bytes]


def flat(format_: str, side: int = 7000, mode: str = "RGB", **options: Any) -> bytes:
    """Return a flat square picture, a few hundred thousand bytes at most."""
    return encoded(Image.new(mode, (side, side)), format_, **options)


FILES: dict[str, tuple[str, int, Build]] = {
    "progressive_jpegs": (
        "Four progressive JPEGs of 7000 x 7000, 90 scans",
        4,
        hostile.jpeg_of_scans,
    ),
    "png_text_bomb": ("PNG whose texts are 1 GB when opened", 4, hostile.png_of_text_bombs),
    "tiff_huge_strip": ("TIFF of 64 x 64 with a strip of 1 GB", 2, hostile.huge_strip),
    "avif_lying_size": ("AVIF of 64 x 64 with a frame of 7000 x 7000", 4, hostile.avif_lying_size),
    "accepted_jpegs": ("Eight flat JPEGs of 7000 x 7000", 8, partial(flat, "JPEG")),
}


def attack(name: str) -> Callable[[Target], Steps]:
    """Return the attack with one kind of file."""
    about, count, build = FILES[name]

    def run(target: Target) -> Steps:
        data = build()
        paths = ("/classify", "/filter?name=invert")
        requests = [post(paths[n % 2], data) for n in range(count)]
        yield None
        yield from ask_all(target, requests, 80.0, LASTING)

    run.__name__ = name
    run.__doc__ = f"{about}."
    return run


def enlarging_chains(target: Target) -> Steps:
    """Enlarge four tiny photos to 49 megapixels, 16 times in one chain."""
    large = {"name": "resize", "width": 7000, "height": 7000}
    small = {"name": "resize", "width": 64, "height": 48}
    chain = quote(json.dumps([large, small] * 16))
    request = post(f"/filter?ops={chain}", jpeg(1, 64, 48), "image/jpeg")
    yield None
    yield from ask_all(target, [request] * 4, 60.0)


def dear_neighbourhoods(target: Target) -> Steps:
    """Ask for the dearest morphology of four flat JPEGs of 4000 x 4000, twenty minutes of work."""
    options = "op=blackhat&shape=ellipse&size=201&iterations=16"
    request = post(f"/filter?name=morphology&{options}", flat("JPEG", 4000), "image/jpeg")
    yield None
    yield from ask_all(target, [request] * 4, 60.0)
