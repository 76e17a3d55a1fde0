"""`darkroom kernels`: compile the GPU's kernels in advance, on a machine with or without a GPU."""

import argparse
import sys
from collections.abc import Sequence

from app.bulk.errors import WrongUsage
from app.cli.flags import add_settings
from app.telemetry import logs
from models.exit_codes import ExitCode
from models.settings import Settings
from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore, shipped
from workers.kernels.loader import modules

DEFAULT = "75,80,86,89,90,100,120"
"""Turing, Ampere (data centre and desktop), Ada, Hopper, Blackwell (data centre and desktop)."""

EXAMPLES = ("darkroom kernels --architectures 80,90",)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--architectures",
        default=DEFAULT,
        metavar="LIST",
        help="compute capabilities without their point, between commas; "
        f"takes about 40 s of CPU time each (default: {DEFAULT})",
    )
    add_settings(parser, ["cache_folder"])


def run(settings: Settings, architectures: str) -> int:
    """Compile the missing kernels in the folder `kernels` of the cache folder."""
    logs.configure("warning", settings.log_format)
    names = [each.strip() for each in architectures.split(",")]
    if wrong := [name for name in names if not name.isdecimal()]:
        raise WrongUsage(
            f"--architectures: numbers between commas, as 80,90 (given: {', '.join(wrong)!r})"
        )
    return compile_kernels(settings, [f"sm_{name}" for name in names])


def compile_kernels(settings: Settings, architectures: Sequence[str]) -> int:
    """Compile the kernels for `architectures`, for instance `sm_90`; return the exit code.

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
