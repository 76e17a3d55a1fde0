"""Random requests to a server with a GPU and to a server without: the answers must be equal.

Method. Two servers of this checkout run, one with `--gpus auto` and one with `--gpus 0`. Each
request has one image (a photo as it is or cut at random, or noise as PNG, grey, RGB or RGBA, of 1
to 400 pixels a side), a chain of one to four filters with parameters at the ends of their ranges or
at their examples, and a random encoding: JPEGs of any quality and subsampling in three of four
requests, which a GPU encodes itself, else PNG, lossless WebP, or a progressive JPEG. Filters that
may differ by one level are left out. Both answers must have the same status, and the same bytes
if they are images. The last line is JSON; the exit code is 1 where answers differ.

Run: python -m tests.bench.chains_equal [--count 10000] [--seed 0]
"""

import argparse
import io
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image

from tests.bench.images import jpegs
from tests.bench.report import report
from tests.bench.subject import darkroom
from tests.emulation.staging import noise
from tests.gpu.equality import NAMES, extremes
from workers.filters.registry import FILTERS

PARAMETERS = {name: extremes(FILTERS[name]) for name in NAMES if not FILTERS[name].device_tolerance}
FLAGS = ("--weights", "random", "--log-level", "warning")
SENDERS = 8


def image(chance: random.Random, photos: list[bytes]) -> bytes:
    """Return a photo, a part of a photo, or noise."""
    kind, photo = chance.random(), chance.choice(photos)
    if kind < 0.5:
        return photo
    width, height = (chance.randint(1, 400) for _ in range(2))
    if kind < 0.75:
        pixels = np.asarray(Image.open(io.BytesIO(photo)).convert("RGB"))[:height, :width]
    else:
        pixels = noise(height, width, chance.choice((1, 3, 4)), chance.randrange(1 << 16))
    file = io.BytesIO()
    shown = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    Image.fromarray(shown).save(file, "PNG", compress_level=1)
    return file.getvalue()


def query(chance: random.Random) -> str:
    """Return a chain and an encoding as a query of `POST /filter`."""
    ops = [
        chance.choice(PARAMETERS[name])
        for name in chance.choices([*PARAMETERS], k=chance.randint(1, 4))
    ]
    quality, chroma = chance.randint(1, 100), chance.choice(("420", "422", "444"))
    encodings = [f"format=jpeg&quality={quality}&chroma={chroma}"] * 9
    encodings += ["format=png", "format=webp&lossless=true", "format=jpeg&progressive=true"]
    escaped = json.dumps(ops).replace(" ", "").replace("+", "%2B").replace('"', "%22")
    return f"ops={escaped}&{chance.choice(encodings)}"


def answer(port: int, path: str, body: bytes) -> tuple[int, str, bytes]:
    """Return status, type and body of an answer."""
    url = f"http://127.0.0.1:{port}/filter?{path}"
    request = Request(url, body, {"Content-Type": "application/octet-stream"})
    request.add_header("X-Deadline-Ms", "120000")
    try:
        with urlopen(request, timeout=130) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    source, photos = jpegs(64)
    with (
        darkroom("--gpus", "auto", *FLAGS) as gpu,
        darkroom("--gpus", "0", *FLAGS) as cpu,
        ThreadPoolExecutor(SENDERS) as pool,
    ):

        def compared(request: tuple[str, bytes]) -> tuple[str, int, str, bool]:
            one, other = (answer(each.port, *request) for each in (gpu, cpu))
            alike = one == other if one[0] == 200 else one[0] == other[0]
            return request[0], one[0], one[1], alike

        requests = [(query(chance), image(chance, photos)) for _ in range(options.count)]
        found = list(pool.map(compared, requests))
    different = [path for path, *_, alike in found if not alike]
    report(
        "chains_equal",
        images=source,
        requests=len(found),
        answered_200=sum(status == 200 for _, status, *_ in found),
        jpegs=sum(kind == "image/jpeg" for _, _, kind, _ in found),
        different=len(different),
        first_different=different[:20],
    )
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
