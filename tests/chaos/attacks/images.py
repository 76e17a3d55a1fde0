"""Files that are cheap to send and dear to decode, beside 15 good clients.

Old effect: codec threads were held for up to 100 s by one file and could not be ended, so that all
15 neighbours got 504; some files took over a gigabyte. Promise: neighbours are spared, and the
file is refused, or its decoding ended, within the request's deadline.
"""

from collections.abc import Callable
from functools import partial

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post
from tests.chaos.hostile import jpeg, more_images, others, png, tiff

LASTING = 5.0
"""Seconds during which a refused attacker tries again."""

Build = Callable[[], bytes]

FILES: dict[str, tuple[str, int, Build]] = {
    "progressive_jpegs": ("Four progressive JPEGs of 7000 x 7000, 90 scans", 4, jpeg.progressive),
    "jpeg_restarts": ("JPEG with 15 million restart markers", 2, jpeg.many_restarts),
    "png_text_bomb": ("PNG whose texts are 400 MB when opened", 4, png.text_bomb),
    "png_profile_bomb": ("PNG whose colour profile is 500 MB when opened", 4, png.profile_bomb),
    "tiff_huge_strip": ("TIFF of 64 x 64 with a strip of 1 GB", 2, tiff.huge_strip),
    "gif_lzw": ("Four flat GIFs of 7000 x 7000", 4, more_images.gif_lzw),
    "webp_lossless": ("Four WebPs of 7000 x 7000 in 38 bytes", 4, more_images.lossless_webp),
    "avif_lying_size": (
        "AVIF of 64 x 64 with a frame of 7000 x 7000",
        4,
        more_images.avif_lying_size,
    ),
    "accepted_jpegs": ("Eight flat JPEGs of 7000 x 7000", 8, partial(others.flat, "JPEG", 7000)),
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
