"""`darkroom tune`: measure this machine and choose settings for it."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.cli import offline
from app.cli.flags.offered_values import complete_files
from app.cli.flags.settings_flags import WEIGHTS, add_settings
from app.cli.load import ending
from app.cli.load.messages import distinct
from app.cli.load.search import Choice, questions, search
from app.cli.load.trial import rate
from app.cli.standard_output import show
from app.processes.plan import Plan
from app.system.terminal import Style, has_colours, styled
from models.codec import decode
from models.exit_codes import ExitCode
from models.settings import PREFIX, Settings

EXAMPLES = (
    "darkroom tune",
    "darkroom tune --write darkroom.env && darkroom serve --env-file darkroom.env",
)

SECONDS = 120.0
"""The time of the whole measurement by default."""

DECODING = 1.0
"""Seconds of each measurement of decoding."""

CONNECTIONS = {True: 256, False: 16}
"""Requests at a time with GPUs, and without: enough to fill batches."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    file = parser.add_argument(
        "--write",
        metavar="FILE",
        help="write the settings there, as `serve --env-file` and Compose's env_file read them "
        "(default: print them)",
    )
    complete_files(file)
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"time of the measurement, at most (default: {SECONDS:g})",
    )
    add_settings(parser, (*WEIGHTS, "gpus"))


def run(settings: Settings, write: str | None, force: bool, seconds: float) -> int:
    """Measure, explain each choice, and print or write the settings."""
    if not 10 <= seconds <= 3600:
        raise WrongUsage(f"--seconds: 10 to 3600 (given: {seconds:g})")
    if write is not None and Path(write).exists() and not force:
        raise WrongUsage(f"--write: {write} exists already; add --force to replace it")
    try:
        if write is not None:
            atomic_file.check_writable(Path(write).resolve().parent)
        plan = Plan.of(settings)
    except OSError as error:
        raise CannotWrite.of(write, error) from None
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    began, drawn = time.monotonic(), offline.drawings()
    cores = offline.usable_cores(settings)
    decoding = _decoding(drawn, cores)
    asked = questions(cores, plan.front_ends, plan.gpus)
    trials = _Trials(settings, distinct(drawn), CONNECTIONS[plan.gpus > 0], began + seconds)
    choices = ending.run(search(asked, trials.measure, trials.has_time))
    if not trials.worked:
        print("darkroom: no server became ready; `darkroom serve` says why", file=sys.stderr)
        return ExitCode.FAILED
    notes = [_machine(cores, plan.gpus, time.monotonic() - began), decoding, *trials.notes]
    text = env_file(choices, notes)
    if write is None:
        show(text)
        return ExitCode.OK
    try:
        atomic_file.write(Path(write), text.encode(), replace=force)
    except OSError as error:
        raise CannotWrite.of(write, error) from None
    print(f"{write} is written; start with `darkroom serve --env-file {write}`", file=sys.stderr)
    return ExitCode.OK


def env_file(choices: Sequence[Choice], notes: Sequence[str]) -> str:
    """Return the lines of the file: each setting below a comment that explains it."""
    lines = [f"# {note}" for note in notes]
    for choice in choices:
        lines += ["", f"# {choice.sentence()}"]
        mark = "" if choice.is_measured else "# "
        lines.append(f"{mark}{PREFIX}{choice.question.setting.upper()}={choice.value}")
    return "\n".join(lines) + "\n"


class _Trials:
    """Servers that are measured one after the other until `end`, in seconds of the clock."""

    def __init__(
        self, settings: Settings, images: Sequence[bytes], connections: int, end: float
    ) -> None:
        self._given = {name: str(value) for name, value in settings.given.items()}
        self._images, self._connections, self._end = images, connections, end
        self._longest = 0.0
        self.worked = False
        self.notes: list[str] = []

    def has_time(self) -> bool:
        """Return whether another trial fits before the end, if it is as long as the longest."""
        return time.monotonic() + self._longest < self._end

    async def measure(self, chosen: Mapping[str, str]) -> float | None:
        """Measure a server with these settings, and print the rate."""
        began = time.monotonic()
        flags = {**self._given, **chosen}
        found = await rate(flags, self._images, self._connections, max(1.0, self._end - began))
        self._longest = max(self._longest, time.monotonic() - began)
        told = "it did not become ready" if found is None else f"{found[0]:.1f} images/s"
        words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in chosen.items())
        colours = has_colours(sys.stderr)
        print(f"{styled(told, Style.BOLD, on=colours)} with {words}", file=sys.stderr, flush=True)
        if found is None:
            return None
        self.worked = True
        limited = "the client was the limit in at least one measurement, which compares too little"
        if found[1] and limited not in self.notes:
            self.notes.append(limited)
        return found[0]


def _decoding(drawn: Sequence[bytes], cores: int) -> str:
    """Measure how many JPEGs threads decode in a second; return the sentence that tells it."""
    counts = dict.fromkeys([1, cores])
    found = {n: _decoded(drawn, n) for n in counts}
    told = " and ".join(f"{n} {'thread' if n == 1 else 'threads'} {found[n]:.0f}" for n in found)
    return f"decoding JPEGs of 500 x 375 pixels, images/s: {told}"


def _decoded(drawn: Sequence[bytes], threads: int) -> float:
    began = time.monotonic()

    def work(first: int) -> int:
        number = first
        while time.monotonic() - began < DECODING:
            decode(drawn[number % len(drawn)], max_pixels=1 << 20)
            number += 1
        return number - first

    with ThreadPoolExecutor(threads) as pool:
        total = sum(pool.map(work, range(threads)))
    return total / (time.monotonic() - began)


def _machine(cores: int, gpus: int, seconds: float) -> str:
    device = f"{gpus} GPUs" if gpus > 1 else "one GPU" if gpus else "no GPU"
    return (
        f"measured by `darkroom tune` on {datetime.now(UTC):%Y-%m-%d} in {seconds:.0f} s: "
        f"{cores} cores, {device}"
    )
