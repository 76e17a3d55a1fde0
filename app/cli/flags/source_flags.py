"""The sources of a command, and the flags that choose among them."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from app.bulk.report import readable
from app.bulk.sources.expansion import Sources
from app.bulk.sources.walk import Choice
from app.cli.flags.offered_values import complete_files

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


def declare_servers(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names what answers the images."""
    parser.add_argument(
        "--server",
        dest="servers",
        action="append",
        default=[],
        metavar="URL",
        help="let this server do the work, with the key in DARKROOM_API_KEY if it wants one; "
        "repeatable (default: this machine, by a server that ends with the command)",
    )


def declare_retry(parser: argparse.ArgumentParser) -> None:
    """Add the flag that takes only the images that failed."""
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="take only the images that failed in the finished command of the same arguments",
    )
