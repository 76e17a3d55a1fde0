"""Kernels, decoder and encoder of the GPU engine on a CUDA stack for which torch is not installed.

Method. The engine's own code for filters, JPEG decoding and JPEG encoding runs with CuPy in the
place of torch's memory, streams and events (tests/bench/torch_by_cupy.py); NVRTC of the installed
stack compiles every kernel anew, in a cache folder of its own. Filters are compared as by
tests/bench/filters_equal.py. Photos and random JPEGs in all subsamplings are decoded by the decode
engines in batches of 1 to 64 and compared with libjpeg-turbo. JPEGs that the device encodes must be
JPEGs of their size. Networks are not run: cuDNN is torch's.

Run: python -m tests.bench.without_torch [--filters NAME …]
"""

import argparse
import importlib
import json
import tempfile
from pathlib import Path
from typing import Any


def stack() -> dict[str, str]:
    """Return the versions of what is used; call it after `install`."""
    from workers.engines.cuda.versions import versions

    cupy = importlib.import_module("cupy")
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    driver = cupy.cuda.runtime.driverGetVersion()
    return {**{k: str(v) for k, v in versions().items()}, "runtime": runtime, "driver": driver}


class FilterEngine:
    """One slot and no networks; it has the methods that `tests.gpu.equality.runner` uses."""

    def __init__(self, max_pixels: int, max_batch_size: int, folder: Path) -> None:
        from workers.engines.cuda.compiled.modules import Kernels
        from workers.engines.cuda.filtering import Filtering
        from workers.engines.cuda.nvjpeg import decoder as nvjpeg
        from workers.engines.cuda.nvjpeg.shared_states import SharedStates, shared_sizes
        from workers.engines.cuda.slot import Marks, Region, Slot, Tables
        from workers.engines.cuda.streams import Streams
        from workers.kernels.cubins import CubinStore

        torch = importlib.import_module("torch")
        device, room = torch.device("cuda:0"), 4 * max_pixels + (max_batch_size << 16)
        self.nvjpeg = nvjpeg.NvJpeg()
        shared = SharedStates()
        for n in shared_sizes(max_batch_size):
            shared.add(n, self.nvjpeg.state(n))
        decoder = nvjpeg.Decoder(self.nvjpeg, max_batch_size, shared)
        self._filtering = Filtering(
            Kernels(CubinStore([folder])), Streams(device), Region(4 * room, device)
        )
        first, second, weights = (Region(n, device) for n in (room, room, 1 << 20))
        host = torch.empty(room, dtype=torch.uint8, pin_memory=True)
        tables, marks = Tables(device), Marks.made()
        self._slot = Slot(first, second, weights, tables, host, {}, marks, decoder)

    def acquire(self) -> Any:
        """Return the slot."""
        return self._slot

    def launch(self, slot: Any, jobs: list[Any]) -> None:
        """Start a batch."""
        slot.jobs = jobs
        self._filtering.launch(slot, jobs)

    def collect(self, slot: Any) -> Any:
        """Wait for the batch and return its results."""
        from workers.engines.cuda.encoding import as_jpegs
        from workers.engines.cuda.streams import times
        from workers.scheduling.engine import BatchResult

        slot.marks.done.synchronize()
        upload, decode, compute, download = times(slot.marks)
        asked = slot.jobs[0].operation.jpeg
        values = as_jpegs(slot, asked) if asked else [*self._filtering.results(slot)]
        for index, error in slot.failed.items():
            values[index] = error
        return BatchResult(values, upload, compute, download, decode)

    def release(self, slot: Any) -> None:
        """Forget the batch."""
        slot.clear()


def decoded(run: Any, sources: list[Any]) -> dict[str, int]:
    """Decode the files on the device in batches of all sizes; count the samples that differ."""
    numpy = importlib.import_module("numpy")
    from models.codec import pixels_of
    from workers.filters.registry import parse_chain
    from workers.operations import FilterChain

    twice = FilterChain(parse_chain([{"name": "invert"}, {"name": "invert"}]))
    files = samples = different = start = 0
    for n in [*range(1, 65), 64, 64, 64]:
        batch = [sources[(start + k) % len(sources)] for k in range(n)]
        start += n
        for found, source in zip(run(twice, batch).values, batch, strict=True):
            wanted = pixels_of(source).pixels
            files, samples = files + 1, samples + wanted.size
            different += int(numpy.count_nonzero(found.pixels != wanted))
    return {"files": files, "samples": samples, "different": different}


def encoded(run: Any) -> dict[str, int]:
    """Encode images on the device; count what is no JPEG of the right size."""
    from models.codec import pixels_of
    from models.domain.image import Image, Jpeg, Subsampling
    from tests.emulation.staging import noise
    from workers.filters.registry import parse_chain
    from workers.operations import DeviceJpeg, FilterChain

    chain = parse_chain([{"name": "gaussian_blur", "sigma": 3}])
    images = [Image(noise(100 + 7 * k, 150 + 5 * k, 3)) for k in range(16)]
    wrong = 0
    for subsampling in (Subsampling.S420, Subsampling.S444):
        operation = FilterChain(chain, DeviceJpeg(85, subsampling))
        for found, image in zip(run(operation, images).values, images, strict=True):
            right = isinstance(found, Jpeg) and pixels_of(found).pixels.shape == image.pixels.shape
            wrong += not right
    return {"files": 2 * len(images), "wrong": wrong}


def main() -> None:
    """Run everything, print a table, and all of it as JSON on the last line."""
    from tests.bench import torch_by_cupy

    torch_by_cupy.install()
    from tests.gpu.equality import MAX_PIXELS, NAMES, compared, runner
    from workers.filters.registry import FILTERS
    from workers.kernels.loader import KERNELS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", nargs="*", default=NAMES)
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs to decode as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = FilterEngine(MAX_PIXELS, 64, Path(folder))
        run: Any = runner(engine)  # type: ignore[arg-type]  # only what it calls
        rows, broken = [], []
        print(stack(), flush=True)
        jpegs = _jpegs(given.photos)
        decode, encode = decoded(run, jpegs), encoded(run)
        print("decoded", decode, "encoded", encode, flush=True)
        for name in given.filters:
            found = compared(run, name)
            rows.append({"filter": name, "samples": found.samples, "different": found.different})
            allowed = FILTERS[name].device_tolerance * found.samples
            if found.different > allowed:
                broken.append(name)
            print(
                f"{name:20} {found.samples:12,} samples {found.different:6} different", flush=True
            )
    command = "python -m tests.bench.without_torch"
    result = {
        "benchmark": "without_torch",
        "command": command,
        "gpu": importlib.import_module("cupy").cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "stack": stack(),
        "kernels_compiled": len(KERNELS),
        "decoded": decode,
        "encoded": encode,
        "filters": rows,
        "broken": broken,
    }
    print(json.dumps(result))


def _jpegs(folder: Path | None) -> list[Any]:
    """Return random JPEGs of odd sizes in all subsamplings, and those of a folder."""
    import io

    import numpy as np
    from PIL import Image as PillowImage

    from models.codec import encoded as passed_on
    from tests.gpu.equality import MAX_PIXELS

    random, files = np.random.default_rng(7), []
    for height, width in [(1, 1), (17, 33), (64, 65), (127, 200), (300, 401)]:
        for subsampling in (0, 1, 2):
            drawn = random.integers(0, 256, (height, width, 3), np.uint8)
            file = io.BytesIO()
            PillowImage.fromarray(drawn).save(file, "JPEG", quality=90, subsampling=subsampling)
            files.append(file.getvalue())
    if folder is not None:
        files += [path.read_bytes() for path in sorted(folder.glob("*.JPEG"))]
    passed = [passed_on(data, max_pixels=MAX_PIXELS) for data in files]
    return [each.image for each in passed if each is not None]


if __name__ == "__main__":
    main()
