"""Compressed TARs that unpack to gigabytes.

Promise: each is answered below 500 within the deadline, whatever it unpacks to, and memory stays
bounded. `tests/unit/app/archives` has the archives whose records lie.
"""

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post
from tests.chaos.hostile.archives import bomb


def packed_tar_bombs(target: Target) -> Steps:
    """Send eight compressed TARs that unpack to gigabytes of a file that is no image."""
    bodies = [bomb(kind, 6 << 30, filler=60_000_000) for kind in ("gz", "bz2")]
    paths = ("/classify", "/filter?name=invert") * 2
    requests = [post(path, body, "application/gzip") for body in bodies for path in paths]
    yield None
    yield from ask_all(target, requests, 80.0)
