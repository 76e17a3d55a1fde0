"""Damaged JPEGs must come out the same on a GPU and on a CPU.

`--url URL` sends each file to a server and writes the status and the digest of every answer to
`--out`; `--compare A B` compares two such files, one of a GPU and one of a CPU. `--engine` needs
an NVIDIA GPU and compares its engine with the CPU's decoder in this process: for every file that
the front end would hand to the GPU. The last line is JSON; the exit code is 1 where they differ.
"""

import argparse
import hashlib
import json
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.hostile.damaged import files
from tests.shared import ODD

MAX_PIXELS = 16_000_000
_PATHS = ("/filter?name=invert&format=png", "/filter?name=gaussian_blur&sigma=2&format=png")


def every_file(count: int) -> list[tuple[str, bytes]]:
    """Yield the damaged files, and the odd JPEGs where they are."""
    odd = [(f"odd-{path.name}", path.read_bytes()) for path in sorted(ODD.glob("*.jp*g"))]
    return odd + list(files(count))


def answers(url: str, count: int) -> dict[str, str]:
    """Return the status and the digest of the answer for each file and filter."""
    found = {}
    for name, data in every_file(count):
        for path in _PATHS:
            request = urllib.request.Request(url.rstrip("/") + path, data)
            request.add_header("Content-Type", "application/octet-stream")
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    text = f"{answer.status} {hashlib.sha256(answer.read()).hexdigest()}"
            except urllib.error.HTTPError as error:
                text = str(error.code)
            found[f"{name} {path}"] = text
    return found


def compare(first: dict[str, str], second: dict[str, str]) -> dict[str, Any]:
    """Return how many answers are the same, and the names of those that are not."""
    names = sorted(first.keys() & second.keys())
    different = [name for name in names if first[name] != second[name]]
    kinds = Counter(name.split("-")[1] if "-" in name else name for name in different)
    return {"compared": len(names), "different": len(different), "kinds": dict(kinds)} | {
        "names": different[:40]
    }


def engine(count: int) -> dict[str, Any]:
    """Compare the GPU's engine with the CPU's decoder, for files that a front end hands to it."""
    import numpy as np
    import torch

    from models import codec
    from models.codec import pixels_of
    from models.domain.errors import ServiceError
    from models.domain.image import Image, Jpeg
    from models.networks.resnet18 import BUNDLED, RESNET18
    from models.settings import Precision
    from tests.gpu.equality import runner
    from workers.engines.cuda.engine import CudaEngine
    from workers.engines.cuda.network import GraphedNetwork
    from workers.engines.model import load_state
    from workers.filters.registry import parse_chain
    from workers.operations import FilterChain

    twice = FilterChain(parse_chain([{"name": "invert"}, {"name": "invert"}]))
    state = load_state(BUNDLED.path, 10)
    network = GraphedNetwork(state, Precision.AUTO, RESNET18, 16, "cuda:0")
    made = CudaEngine([network], 16, MAX_PIXELS, "cuda:0")
    made.warm_up()
    run = runner(made)
    tally: Counter[str] = Counter()
    different: list[str] = []
    for name, data in every_file(count):
        try:
            found = codec.encoded(data, max_pixels=MAX_PIXELS)
        except ServiceError:
            found = None
        if found is None or not isinstance(found.image, Jpeg):
            tally["kept on the CPU"] += 1
            continue
        (value,) = run(twice, [found.image]).values
        try:
            expected: Image | None = pixels_of(found.image)
        except ServiceError:
            expected = None
        if isinstance(value, Image) and expected is not None:
            same = np.array_equal(value.pixels, expected.pixels)
        else:
            same = not isinstance(value, Image) and expected is None
        tally["the same" if same else "different"] += 1
        if not same:
            different.append(name)
    made.close()
    torch.cuda.synchronize()
    kinds = Counter(name.split("-")[1] for name in different)
    return {"tally": dict(tally), "different": len(different), "kinds": dict(kinds)} | {
        "names": different[:40]
    }


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="damaged files")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--url", help="a server to ask")
    way.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"))
    way.add_argument("--engine", action="store_true", help="the GPU of this machine")
    parser.add_argument("--out", type=Path, help="where --url writes the digests")
    arguments = parser.parse_args()
    if arguments.url:
        found = answers(arguments.url, arguments.count)
        if arguments.out:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        statuses = Counter(text.split()[0] for text in found.values())
        print(json.dumps({"program": "damaged_jpegs", "answers": dict(statuses)}))
        return int(any(status.startswith("5") for status in statuses))
    if arguments.compare:
        first, second = (json.loads(path.read_text()) for path in arguments.compare)
        result = compare(first, second)
    else:
        result = engine(arguments.count)
    print(json.dumps({"program": "damaged_jpegs", **result}))
    return int(result["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
