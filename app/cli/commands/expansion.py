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
    results: str | None = None,
) -> list[str]:
    """Return files, URLs and `-`, in a fixed order; folders are searched recursively.

    The sources of `lists` follow those of `names`. A name that is no file but matches files as a
    pattern stands for them. Three kinds of folders are not searched: links, so no search is
    endless; hidden ones, whose names begin with a dot, unless a pattern of `include` has such a
    name; and the folder `results`, because earlier results are no sources. WrongUsage where a
    folder or a pattern has no image, or a list cannot be read.
    """
    if not names and not lists:
        raise WrongUsage("name files, folders or URLs, or a list of them with --from")
    if [*names, *lists].count(sources.STANDARD_INPUT) > 1:
        raise WrongUsage("-: standard input can be read only once")
    found: list[str] = []
    for name in [*names, *(line for each in lists for line in _lines(each))]:
        inside = [*_inside(name, include, exclude, results)]
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


def _inside(
    name: str, include: Sequence[str], exclude: Sequence[str], results: str | None
) -> Iterator[str]:
    if name == sources.STANDARD_INPUT or sources.is_url(name):
        yield name
    elif os.path.isdir(name):
        yield from _files(name, include, exclude, results)
    elif not os.path.lexists(name) and glob.has_magic(name) and (match := sorted(glob.glob(name))):
        for each in match:
            if os.path.isdir(each):
                yield from _files(each, include, exclude, results)
            else:
                yield each
    else:
        yield name  # a missing file is reported with all others


def _files(
    folder: str, include: Sequence[str], exclude: Sequence[str], results: str | None
) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        raise WrongUsage(f"{error.filename}: {error.strerror}")

    takes_hidden = any(part.startswith(".") for each in include for part in each.split("/"))

    def is_searched(inner: Path) -> bool:
        if inner.name.startswith(".") and not takes_hidden:
            return False
        return not _matches(inner, exclude) and not _is_same(folder / inner, results)

    for path, folders, files in os.walk(folder, onerror=unreadable):
        inner = Path(path).relative_to(folder)
        folders[:] = sorted(each for each in folders if is_searched(inner / each))
        for name in sorted(files):
            wanted = _matches(inner / name, include) if include else _is_image(name)
            if wanted and not _matches(inner / name, exclude):
                yield str(Path(path) / name)


def _is_same(folder: Path, results: str | None) -> bool:
    return results is not None and os.path.isdir(results) and folder.samefile(results)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().rpartition(".")[2] in IMAGES


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path.name, each) or fnmatch(str(path), each) for each in patterns)
