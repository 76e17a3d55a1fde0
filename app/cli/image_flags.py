"""Flags of commands that take images, and their values: the sources and the chain of filters."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from app.bulk.errors import WrongUsage
from app.bulk.report import readable
from app.bulk.sources import Sources
from app.bulk.walk import Choice
from app.cli.flags import complete_files, complete_with
from app.intake.json_items import parsed_json
from models.domain.errors import InvalidParameter
from workers.filters.registry import FILTERS, parse_chain
from workers.filters.short_form import parse_short
from workers.operations import FilterChain

JSON = "JSON Lines on a terminal too (default: words there, JSON Lines elsewhere)"
"""Help of `--json`."""

_PATH = re.compile(r"^ops\[(\d+)\](?:\.(.*))?$")
"""The path of an error: the number of the filter, and the parameter."""


def add_sources(parser: argparse.ArgumentParser, *, retry: bool = True) -> None:
    """Add the sources, the flags that choose among them, and the servers that answer.

    Commands that write files take `--retry-failed` too.
    """
    text = "files, folders, archives (ZIP, TAR), patterns or URLs; - is standard input"
    complete_files(parser.add_argument("files", nargs="*", metavar="FILE", help=text))
    lists = parser.add_argument(
        "--from",
        dest="lists",
        action="append",
        default=[],
        metavar="LIST",
        help="a file with one source on each line, - for standard input; repeatable",
    )
    complete_files(lists)
    parser.add_argument(
        "-0",
        "--null",
        dest="nul",
        action="store_true",
        help="lists are separated by NUL bytes, as by `find -print0` (default: lines)",
    )
    group = parser.add_argument_group("files of folders and archives")
    for name, text in (
        ("include", "take files whose name or path matches, as '*.png' (default: all images)"),
        ("exclude", "leave out files and folders that match (default: none)"),
    ):
        group.add_argument(
            f"--{name}", action="append", default=[], metavar="PATTERN", help=f"{text}; repeatable"
        )
    parser.add_argument(
        "--server",
        dest="servers",
        action="append",
        default=[],
        metavar="URL",
        help="let this server do the work, with the key in DARKROOM_API_KEY if it wants one; "
        "repeatable (default: this machine, by a server that ends with the command)",
    )
    if retry:
        parser.add_argument(
            "--retry-failed",
            action="store_true",
            help="take only the images that failed in the finished command of the same arguments",
        )


def sources_of(options: dict[str, Any], results: str | None = None) -> Sources:
    """Take the values of `add_sources` out of the options and return the images.

    The folder `results` is not searched. WrongUsage where an argument cannot be read.
    """
    choice = Choice(options.pop("include"), options.pop("exclude"))
    separator = b"\0" if options.pop("nul") else b"\n"
    found = Sources(options.pop("files"), choice, options.pop("lists"), separator, results)
    found.check()
    return found


def counted(sources: Sources) -> int:
    """Return the number of images, and tell on standard error the files that were left out."""
    number = sources.count()
    if text := str(sources.left_out):
        print(f"darkroom: {readable(text)}", file=sys.stderr)
    return number


def add_chain(parser: argparse.ArgumentParser) -> "argparse._MutuallyExclusiveGroup":
    """Add `--ops` and `--op`, which are alternatives; return their group for a further one."""
    group = parser.add_mutually_exclusive_group(required=True)
    text = 'all filters: sepia,grayscale, or JSON: [{"name": "gaussian_blur", "sigma": 2}]'
    complete_with(group.add_argument("--ops", metavar="FILTERS", help=text), [*FILTERS])
    text = "one filter, as gaussian_blur:sigma=2; repeat it for a chain"
    op = group.add_argument("--op", action="append", default=[], metavar="FILTER", help=text)
    complete_with(op, [*FILTERS])
    return group


def given_chain(ops: str | None, op: Sequence[str]) -> FilterChain:
    """Return the chain that the flags describe.

    WrongUsage names the flag, the filter, the parameter and the allowed values.
    """
    flag = "--op" if op else "--ops"
    given: Any = None
    try:
        given = [each for text in op for each in parse_short(text)] if op else _described(ops or "")
        return FilterChain(parse_chain(given))
    except InvalidParameter as error:
        lines = [f"{flag}: {_place(each.path, given)}{each.message}" for each in error.errors]
        raise WrongUsage("\ndarkroom: ".join(lines)) from None
    except ValueError as error:
        raise WrongUsage(f"{flag}: {error}") from None


def _described(ops: str) -> object:
    if not ops.lstrip().startswith(("[", "{")):
        return parse_short(ops)
    try:
        return parsed_json(ops)
    except ValueError as error:
        text = f"it begins as JSON, but is none: {error}"
        raise ValueError(f"{text}; the short form is gaussian_blur:sigma=2,sepia") from None


def _place(path: str, ops: object) -> str:
    """Return the words before a message for the path `ops[0].sigma`: `gaussian_blur: sigma: `."""
    found = _PATH.match(path)
    if found is None or not isinstance(ops, list):
        return ""
    op, parameter = ops[int(found[1])], found[2]
    name = op.get("name") if isinstance(op, dict) else None
    if name not in FILTERS:
        return ""
    return f"{name}: {parameter}: "
