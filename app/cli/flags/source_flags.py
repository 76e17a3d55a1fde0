"""The sources of a command, and the flags that choose among them."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.bulk.engines.choice import How
from app.bulk.report import readable
from app.bulk.sources.expansion import Sources
from app.bulk.sources.walk import Choice
from app.cli.flags.offered_values import complete_files, complete_with

FILES = "files, folders, archives (ZIP, TAR), patterns or URLs; - is standard input"

JSON = "JSON Lines on a terminal too (default: words there, JSON Lines elsewhere)"
"""Help of `--json`."""


@dataclass(frozen=True, slots=True)
class SourceFlags:
    """The values of the arguments that `declare` adds."""

    files: Sequence[str]
    include: Sequence[str]
    exclude: Sequence[str]
    lists: Sequence[str]
    nul: bool

    def sources(self, results: str | None = None) -> Sources:
        """Return the images; WrongUsage where an argument cannot be read.

        The folder `results` is not searched.
        """
        choice = Choice(self.include, self.exclude)
        found = Sources(self.files, choice, self.lists, b"\0" if self.nul else b"\n", results)
        found.check()
        return found


def counted(sources: Sources) -> int:
    """Return the number of images, and tell on standard error what was left out."""
    number = sources.count()
    if text := str(sources.left_out):
        print(f"darkroom: {readable(text)}", file=sys.stderr)
    return number


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the sources, and the flags that choose files of folders."""
    complete_files(parser.add_argument("files", nargs="*", metavar="FILE", help=FILES))
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


def declare_engine(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose what answers the images."""
    parser.add_argument(
        "--processes",
        default="auto",
        metavar="N",
        help="processes that read and decode, beside those that compute (default: auto, several "
        "for many images on GPUs, else one for all)",
    )
    parser.add_argument(
        "--server",
        dest="servers",
        action="append",
        default=[],
        metavar="URL",
        help="let this server do the work, with the key in DARKROOM_API_KEY if it wants one; "
        "repeatable (default: this machine, without a server)",
    )
    group = parser.add_argument_group("work on a Ray cluster")
    ray = group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="let this Ray cluster do the work: auto, HOST:PORT, ray://HOST:PORT, or local for a "
        "new one of this machine (default: none)",
    )
    complete_with(ray, ["auto", "local"])
    group.add_argument(
        "--ray-cpus",
        type=int,
        default=0,
        metavar="N",
        help="CPUs of each actor (default: 0, at most 8 as the node's CPUs can be divided)",
    )
    group.add_argument(
        "--ray-shared",
        action="store_true",
        help="nodes see local files by the same names, so they read them (default: this command "
        "reads files and sends them)",
    )


def how_of(flags: dict[str, Any]) -> How:
    """Take the values of the flags of `declare_engine` out of `flags`."""
    names = ("processes", "servers", "ray", "ray_cpus", "ray_shared")
    return How(**{name: flags.pop(name) for name in names})


def declare_retry(parser: argparse.ArgumentParser) -> None:
    """Add the flag that takes only the images that failed."""
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="take only the images that failed in the finished command of the same arguments",
    )
