"""Damaged JPEGs must come out the same on a GPU and on a CPU.

The program needs an NVIDIA GPU. It compares the GPU's engine with the CPU's decoder in one process,
for every file that the front end would hand to the GPU. The last line is JSON; the exit code is 1
where they differ. Run: python -m tests.chaos.damaged_jpegs [--count 3000]
"""

import argparse
import json
import sys
from collections import Counter
from typing import Any

from tests.chaos.hostile.damaged import files
from tests.shared import ODD

MAX_PIXELS = 16_000_000


def every_file(count: int) -> list[tuple[str, bytes]]:
    """Yield the damaged files, and the odd JPEGs where they are."""
    odd = [(f"odd-{path.name}", path.read_bytes()) for path in sorted(ODD.glob("*.jp*g"))]
    return odd + list(files(count))


def engine(count: int) -> dict[str, Any]:
    """Compare the GPU's engine with the CPU's decoder, for files that a front end hands to it."""
    import numpy as np
    import torch

    from models import codec
    from models.codec import pixels_of
    from models.domain.errors import ServiceError
    from models.domain.image import Image, Jpeg
    from models.networks.registry import BUNDLED, RESNET18
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
    result = engine(parser.parse_args().count)
    print(json.dumps({"program": "damaged_jpegs", **result}))
    return int(result["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
