"""`darkroom kernels`: compile the GPU's kernels in advance, on a machine with or without a GPU."""

import argparse

from app.bulk.errors import WrongUsage
from app.cli import offline
from app.cli.flags.settings_flags import add_settings
from app.telemetry import logs
from models.settings import Settings

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
    """Compile what is missing in the folder `kernels` of the cache folder."""
    logs.configure("warning", settings.log_format)
    names = [each.strip() for each in architectures.split(",")]
    if wrong := [name for name in names if not name.isdecimal()]:
        raise WrongUsage(
            f"--architectures: numbers between commas, as 80,90 (given: {', '.join(wrong)!r})"
        )
    return offline.compile_kernels(settings, [f"sm_{name}" for name in names])
