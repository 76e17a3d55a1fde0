"""`darkroom profile`: trace the worker under load."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.cli import offline
from app.cli.flags import chain
from app.cli.flags.settings_flags import LOCAL, WEIGHTS, add_settings
from app.cli.standard_output import show
from app.telemetry import logs
from models.exit_codes import ExitCode
from models.settings import Settings
from workers.operations import Classify

EXAMPLES = (
    "darkroom profile --seconds 2 -o trace.json",
    "darkroom profile --op gaussian_blur:sigma=2",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--seconds", type=float, default=1.0, metavar="N", help="duration of the load (default: 1)"
    )
    filters = parser.add_argument_group("filters to run instead of classifying")
    chain.declare(filters, required=False)
    parser.add_argument(
        "-o",
        "--output",
        default="trace.json",
        metavar="FILE",
        help="Chrome trace (default: trace.json)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing trace")
    add_settings(parser, (*WEIGHTS, *LOCAL, "optimize"))


def run(
    settings: Settings,
    seconds: float,
    output: str,
    ops: str | None,
    op: Sequence[str],
    force: bool,
) -> int:
    """Write the trace, and print a summary of the device's work."""
    logs.configure("warning", settings.log_format)
    operation = chain.given_chain(ops, op) or Classify(network=settings.networks[0])
    path = Path(output)
    if not 0 < seconds <= 600:
        raise WrongUsage(f"--seconds: more than 0 and at most 600 (given: {seconds:g})")
    if path.exists() and not force:
        raise WrongUsage(f"--output: {path} exists already; add --force to replace it")
    try:
        atomic_file.check_writable(path.resolve().parent)
        with atomic_file.unfinished(path, replace=force) as temporary:
            found = offline.profile(settings, operation, seconds, temporary)
    except ValueError as error:  # of wrong settings
        raise WrongUsage(str(error)) from None
    except OSError as error:
        raise CannotWrite.of(path, error) from None
    show(json.dumps(found | {"trace": str(path)}, indent=2) + "\n")
    return ExitCode.OK
