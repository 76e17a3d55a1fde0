"""Commands that need no service: manage weights, compile kernels, trace a worker under load."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from models.codec import encoded
from models.did_you_mean import hint
from models.domain.job import Operation
from models.exit_codes import ExitCode
from models.networks.registry import CATALOGUE, NETWORKS, qualified_name
from models.networks.spec import Bundled, PublishedWeights
from models.settings import Settings
from workers.backends.in_process import LocalBackend
from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore, shipped
from workers.kernels.loader import modules
from workers.supervision.gpu_discovery import wanted_gpus
from workers.supervision.profiling import DRAWN, drawing, keep_busy, kernel_times, utilisation
from workers.supervision.startup import start_worker
from workers.weights_digest import WeightsUnavailable, verified_sha256
from workers.weights_store import WeightsStore

KERNELS = 12
"""Kernels that `darkroom profile` lists."""


def manage_weights(settings: Settings, action: str, name: str) -> int:
    """Download, verify or list weights for `darkroom weights`; return the exit code.

    `name` is a name of weights as the list shows it, or the name of a network, which stands for its
    default weights.
    """
    store = WeightsStore(settings.cache_folder)
    bundled = [spec.bundled for spec in NETWORKS.values() if spec.bundled is not None]
    if action == "list":
        for each in bundled:
            print(f"{each.name:22} {'present':8} {each.sha256}  {each.path}")
        for published, path, status in store.listing():
            title = qualified_name(published)
            print(f"{title:22} {status.value:8} {published.sha256}  {path}")
        return ExitCode.OK
    known: dict[str, Bundled | PublishedWeights] = {each.name: each for each in bundled}
    known |= CATALOGUE
    networks = {name: spec.weights[0] for name, spec in NETWORKS.items()}
    wanted = known.get(name) or networks.get(name)
    if wanted is None:
        there = [*known, *networks]
        meant = hint(name, there)
        print(
            f"darkroom: no weights {name!r}; {meant}there are {', '.join(there)}", file=sys.stderr
        )
        return ExitCode.WRONG_USAGE
    try:
        path = _get(store, action, wanted)
    except WeightsUnavailable as error:
        print(f"darkroom: {error}", file=sys.stderr)
        return ExitCode.FAILED
    print(f"{path} has sha256 {wanted.sha256}")
    return ExitCode.OK


def _get(store: WeightsStore, action: str, weights: Bundled | PublishedWeights) -> Path:
    """Return the path of the verified file; `fetch` downloads it where it is missing."""
    if isinstance(weights, Bundled):
        verified_sha256(weights.path, weights.sha256)
        return weights.path
    return store.fetch(weights) if action == "fetch" else store.open_verified(weights)


def compile_kernels(settings: Settings, architectures: Sequence[str]) -> int:
    """Compile the kernels for `architectures` such as `sm_90`; return the exit code.

    The cubins go to the folder that a worker looks into first. No GPU is needed, but CuPy and
    NVRTC are.
    """
    try:
        from workers.engines.cuda.nvrtc import Nvrtc

        compiler = Nvrtc()
    except (ImportError, RuntimeError) as error:  # no CuPy, or CuPy without NVRTC
        print(
            f'darkroom: {error}; kernels need CuPy: in a checkout run `pip install ".[gpu]"`',
            file=sys.stderr,
        )
        return ExitCode.FAILED
    if unknown := [each for each in architectures if each not in compiler.architectures]:
        known = ", ".join(sorted(compiler.architectures, key=lambda name: int(name[3:])))
        print(
            f"darkroom: {compiler.version} compiles for {known}, not for {', '.join(unknown)}",
            file=sys.stderr,
        )
        return ExitCode.WRONG_USAGE
    folder = shipped(settings.cache_folder)
    store = CubinStore([folder])
    if not store.writable():
        print(f"darkroom: {folder} cannot be written", file=sys.stderr)
        return ExitCode.CANNOT_WRITE
    for each in architectures:
        size = sum(map(len, compiled(modules(), each, compiler, store).values()))
        print(f"{each}: {len(modules())} modules, {size:,} bytes, in {folder / each}")
    return ExitCode.OK


def profile(settings: Settings, operation: Operation, seconds: float, path: Path) -> dict[str, Any]:
    """Trace a worker that is kept busy with drawn JPEGs, and summarise the trace.

    `images` are those that ended within `seconds`. ValueError says what is wrong with the settings.
    """
    from workers.engines.tracing import traced

    gpu = 0 if wanted_gpus(settings.gpus) else None
    # What a worker prepares while it already works would be measured, too.
    worker = start_worker(settings, lambda _batch, _result: None, gpu=gpu).worker
    drawn = [encoded(drawing(seed), max_pixels=settings.max_pixels) for seed in range(DRAWN)]
    sources = [each.image for each in drawn if each is not None]

    async def work(seconds: float) -> int:
        return await keep_busy(LocalBackend(worker), operation, sources, seconds)

    asyncio.run(work(min(seconds, 0.5)))  # work that is done only once is not measured
    with traced(path):
        images = asyncio.run(work(seconds))
    worker.stop()
    trace = json.loads(path.read_text())
    found, kernels = utilisation(trace), kernel_times(trace)
    return {
        "trace": str(path),
        "device": worker.load().device,
        "images": images,
        "images_per_second": round(images / seconds, 1),
        "utilisation": None if found is None else asdict(found),
        "kernel_milliseconds": {name: round(kernels[name], 2) for name in [*kernels][:KERNELS]},
    }
