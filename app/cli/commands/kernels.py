"""`darkroom kernels`: compile the GPU's kernels in advance, on a machine with or without a GPU."""

import argparse
import sys

import workers.filters.registry  # noqa: F401 (it refuses packages with faults)
from app.bulk.errors import CannotWrite, WrongUsage
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
    """Compile the missing kernels for capabilities, as `80,90`; return the exit code.

    The cubins go to the folder that a worker looks into first. No GPU is needed, but CuPy and
    NVRTC are.
    """
    logs.configure("warning", settings.log_format)
    numbers = [each.strip() for each in architectures.split(",")]
    if wrong := [each for each in numbers if not each.isdecimal()]:
        raise WrongUsage(
            f"--architectures: numbers between commas, as 80,90 (given: {', '.join(wrong)!r})"
        )
    try:
        from workers.engines.cuda.nvrtc import Nvrtc

        compiler = Nvrtc()
    except (ImportError, RuntimeError) as error:  # no CuPy, or CuPy without NVRTC
        print(
            f'darkroom: {error}; kernels need CuPy: in a checkout run `pip install ".[gpu]"`',
            file=sys.stderr,
        )
        return ExitCode.FAILED
    names = [f"sm_{each}" for each in numbers]
    if unknown := [each for each in names if each not in compiler.architectures]:
        known = ", ".join(sorted(compiler.architectures, key=lambda name: int(name[3:])))
        raise WrongUsage(f"{compiler.version} compiles for {known}, not for {', '.join(unknown)}")
    folder = shipped(settings.cache_folder)
    store = CubinStore([folder])
    if not store.writable():
        raise CannotWrite(f"{folder} cannot be written")
    for each in names:
        size = sum(map(len, compiled(modules(), each, compiler, store).values()))
        print(f"{each}: {len(modules())} modules, {size:,} bytes, in {folder / each}")
    return ExitCode.OK
