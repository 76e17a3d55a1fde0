"""The sources that the arguments of a command stand for: folders and patterns become files."""

import argparse
import glob
import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from app.cli.commands import sources
from app.cli.commands.command import FILES, complete_files
from app.cli.commands.errors import WrongUsage

IMAGES = ("jpg", "jpeg", "jpe", "png", "webp", "gif", "bmp", "tif", "tiff", "avif")
"""Endings of names that are taken from folders unless `--include` names others."""


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
    group = parser.add_argument_group("files of folders")
    for name, text in (
        ("include", "take files whose name or path matches, as '*.png' (default: all images)"),
        ("exclude", "leave out files and folders that match (default: none)"),
    ):
        group.add_argument(
            f"--{name}", action="append", default=[], metavar="PATTERN", help=f"{text}; repeatable"
        )


def expanded(
    names: Sequence[str],
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    lists: Sequence[str] = (),
) -> list[str]:
    """Return files, URLs and `-`, in a fixed order; folders are searched recursively.

    The sources of `lists` follow those of `names`. Links to folders are not followed, so no search
    is endless. A name that is no file but matches files as a pattern stands for them. WrongUsage
    where a folder or a pattern has no image, or a list cannot be read.
    """
    if not names and not lists:
        raise WrongUsage("name files, folders or URLs, or a list of them with --from")
    if [*names, *lists].count(sources.STANDARD_INPUT) > 1:
        raise WrongUsage("-: standard input can be read only once")
    found: list[str] = []
    for name in [*names, *(line for each in lists for line in _lines(each))]:
        inside = [*_inside(name, include, exclude)]
        if not inside:
            raise WrongUsage(f"{name}: no image in it; --include chooses other names")
        found += inside
    return found


def _lines(file: str) -> list[str]:
    """Return the lines of a list that are not empty."""
    try:
        if file == sources.STANDARD_INPUT:
            text = sys.stdin.buffer.read()
        else:
            text = Path(file).read_bytes()
    except OSError as error:
        raise WrongUsage(f"--from: {file}: {error.strerror}") from None
    return [os.fsdecode(line.rstrip(b"\r")) for line in text.split(b"\n") if line.strip()]


def _inside(name: str, include: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    if name == sources.STANDARD_INPUT or sources.is_url(name):
        yield name
    elif os.path.isdir(name):
        yield from _files(name, include, exclude)
    elif not os.path.lexists(name) and glob.has_magic(name) and (match := sorted(glob.glob(name))):
        for each in match:
            yield from _inside(each, include, exclude) if os.path.isdir(each) else (each,)
    else:
        yield name  # a missing file is reported with all others


def _files(folder: str, include: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        raise WrongUsage(f"{error.filename}: {error.strerror}")

    for path, folders, files in os.walk(folder, onerror=unreadable):
        inner = Path(path).relative_to(folder)
        folders[:] = sorted(each for each in folders if not _matches(inner / each, exclude))
        for name in sorted(files):
            wanted = _matches(inner / name, include) if include else _is_image(name)
            if wanted and not _matches(inner / name, exclude):
                yield str(Path(path) / name)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().rpartition(".")[2] in IMAGES


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path.name, each) or fnmatch(str(path), each) for each in patterns)
