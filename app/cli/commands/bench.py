"""`darkroom bench`: measure a server under load, from this machine or another one."""

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from app.bulk.errors import WrongUsage
from app.cli import offline
from app.cli.commands import health
from app.cli.flags import chain
from app.cli.flags.offered_values import complete_files
from app.cli.load.client import Origin
from app.cli.load.messages import distinct, photos, requests
from app.cli.load.step import Load, Timing, loop_factory, measured
from app.cli.standard_output import show
from app.system.terminal import Style, has_colours, printable, styled
from models.exit_codes import ExitCode
from workers.filters.short_form import parse_short

EXAMPLES = (
    "darkroom bench http://localhost:8000",
    "darkroom bench http://localhost:8000 --connections 1,8,64 --photos photos/",
    "darkroom bench http://localhost:8000 --ops gaussian_blur:sigma=2 --rate 20,50",
)

MOST_CONNECTIONS = 4096
MOST_RATE = 100_000

COLUMNS = "{:>14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7}  {}"


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("url", metavar="URL", help="the server, as http://localhost:8000")
    load = parser.add_argument_group("load: one step after the other")
    load.add_argument(
        "--connections",
        help="closed loops with these numbers of requests at a time (default: 1,8,64 without "
        "--rate)",
    )
    load.add_argument(
        "--rate", help="open loops at these rates, in requests a second (default: none)"
    )
    asked = parser.add_argument_group("requests")
    photos_ = asked.add_argument(
        "--photos", nargs="+", metavar="PATH", help="images, or folders of them (default: drawn)"
    )
    complete_files(photos_)
    asked.add_argument(
        "--images-per-request",
        type=int,
        default=1,
        metavar="N",
        help="images in one request, as a form; of classification only (default: 1)",
    )
    chain.declare(asked, required=False)
    asked.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header of every request, as `Authorization: Bearer KEY`; may be repeated",
    )
    asked.add_argument("--insecure", action="store_true", help="accept any certificate")
    _declare_timing(parser.add_argument_group("time"))


def _declare_timing(timing: "argparse._ArgumentGroup") -> None:
    for name, text in (
        ("warm_up", "seconds of load before a step is measured"),
        ("window", "seconds of a window; a closed loop ends when three windows agree within 5 %%"),
        ("limit", "seconds of a step's windows at most; open loops last so long"),
    ):
        default = getattr(Timing(), name)
        flag = "--" + name.replace("_", "-")
        timing.add_argument(
            flag, type=float, default=default, help=f"{text} (default: {default:g})"
        )


def run(
    _settings: None,
    url: str,
    connections: str | None,
    rate: str | None,
    ops: str | None,
    op: Sequence[str],
    **options: Any,
) -> int:
    """Print a table to standard error and one line of JSON to standard output.

    The exit code is FAILED if the server cannot be reached, or a step had no good answer.
    """
    loads, timing = _loads(connections, rate), _timing(options)
    each, is_verified = options["images_per_request"], not options["insecure"]
    chained = chain.given_chain(ops, op) is not None
    if not 1 <= each <= 1024 or (chained and each > 1):
        raise WrongUsage("--images-per-request: 1 to 1024, and 1 with filters")
    headers = _headers(options["header"])
    try:
        origin = Origin.of(url, is_verified)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    asked = health.ask(url, 5.0, is_verified)
    if asked["state"] == "unreachable":
        print(f"darkroom: {printable(url)}: {printable(asked['reasons'][0])}", file=sys.stderr)
        return ExitCode.FAILED
    given = options["photos"]
    images = photos(given) if given else distinct(offline.drawings())
    path = _path(ops, op) if chained else "/classify"
    messages = requests(origin, path, images, each, headers)
    steps, interrupted = _finished(origin, messages, each, loads, timing)
    report = {"url": url, "path": path, "images_per_request": each, "drawn": not given}
    report |= {**_circumstances(asked, images), "interrupted": interrupted, "steps": steps}
    show(json.dumps(report) + "\n")
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if all(step["images"] for step in steps) else ExitCode.FAILED


def _timing(options: Mapping[str, Any]) -> Timing:
    timing = Timing(options["warm_up"], options["window"], options["limit"])
    if not (0 <= timing.warm_up <= 600 and 0.1 <= timing.window <= timing.limit <= 3600):
        raise WrongUsage(
            "--warm-up: 0 to 600; --window: 0.1 at least, --limit at most; --limit: 3600 at most"
        )
    return timing


def _circumstances(asked: Mapping[str, Any], images: Sequence[bytes]) -> dict[str, Any]:
    """Return what the result depends on: the images, the server and this machine."""
    return {
        "photos": len(images),
        "mean_bytes": round(sum(map(len, images)) / len(images)),
        "server": {name: asked[name] for name in ("state", "details") if name in asked},
        "client": {"machine": platform.machine(), "python": platform.python_version()},
    }


def _finished(
    origin: Origin, messages: Sequence[bytes], each: int, loads: Sequence[Load], timing: Timing
) -> tuple[list[dict[str, Any]], bool]:
    """Return the steps that were finished, and whether Ctrl-C came before the last one was."""
    steps = list[dict[str, Any]]()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_all(origin, messages, each, loads, timing, steps))
    except KeyboardInterrupt:
        if not steps:
            raise
        return steps, True
    return steps, False


async def _all(
    origin: Origin,
    messages: Sequence[bytes],
    each: int,
    loads: Sequence[Load],
    timing: Timing,
    steps: list[dict[str, Any]],
) -> None:
    """Measure one step after the other; add it to `steps` and print a row of the table for it."""
    colours = has_colours(sys.stderr)
    names = ("load", "images/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "errors", "client", "")
    print(styled(COLUMNS.format(*names).rstrip(), Style.BOLD, on=colours), file=sys.stderr)
    for load in loads:
        step = await measured(origin, messages, each, load, timing)
        steps.append(step)
        print(_row(step, colours), file=sys.stderr, flush=True)


def _row(step: dict[str, Any], colours: bool) -> str:
    times = step["milliseconds"]
    name = f"{step['rate']:g}/s" if step["loop"] == "open" else f"{step['connections']} conn."
    notes = [] if step["stable"] else ["not stable"]
    if not step["stable"] and step.get("unanswered"):
        notes.append(f"sent {step['sent_per_second']:g}/s, unanswered: {step['unanswered']}")
    if step["client_limited"]:
        notes.append("the client may be the limit")
    notes += [f"{printable(kind)}: {count}" for kind, count in step["errors"].items()]
    shown = ["-" if times[k] is None else f"{times[k]:.1f}" for k in ("p50", "p90", "p99", "max")]
    errors, cores = sum(step["errors"].values()), f"{step['client_cores']:.2f}"
    row = COLUMNS.format(name, f"{step['images_per_second']:.1f}", *shown, errors, cores, "")
    return row.rstrip() + ("  " + styled("; ".join(notes), Style.YELLOW, on=colours)).rstrip()


def _loads(connections: str | None, rate: str | None) -> list[Load]:
    """Return the steps: first the closed loops, then the open ones."""
    if connections is None and rate is None:
        connections = "1,8,64"
    closed = _numbers("--connections", connections, MOST_CONNECTIONS)
    if any(each != int(each) for each in closed):
        raise WrongUsage(f"--connections: whole numbers between commas (given: {connections!r})")
    return [
        *(Load(connections=int(each)) for each in closed),
        *(Load(rate=each) for each in _numbers("--rate", rate, MOST_RATE)),
    ]


def _numbers(flag: str, text: str | None, most: float) -> list[float]:
    found = list[float]()
    for each in text.split(",") if text is not None else ():
        with suppress(ValueError):
            found.append(float(each))
    if text is not None and (
        len(found) != len(text.split(",")) or not all(0 < each <= most for each in found)
    ):
        raise WrongUsage(
            f"{flag}: numbers above 0 and up to {most:g} between commas (given: {text!r})"
        )
    return found


def _headers(given: Sequence[str]) -> dict[str, str]:
    found = {"Accept": "application/json, image/*"}
    for each in given:
        name, colon, value = each.partition(":")
        if not colon or not name.strip() or not each.isprintable():
            raise WrongUsage(f"--header: NAME:VALUE, as `X-API-Key: KEY` (given: {each!r})")
        found[name.strip()] = value.strip()
    return found


def _path(ops: str | None, op: Sequence[str]) -> str:
    """Return the path and query of the filters, which the server reads as JSON."""
    if ops is not None and ops.lstrip().startswith("["):
        return "/filter?" + urlencode({"ops": ops})
    chained = [each for text in (op or [ops or ""]) for each in parse_short(text)]
    return "/filter?" + urlencode({"ops": json.dumps(chained)})
