"""The contents of sources: checked before anything is started, read one after the other."""

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from app.bulk.errors import WrongUsage
from app.bulk.report import readable
from app.bulk.sources import buckets
from app.bulk.sources.source import Source
from app.bulk.sources.walk import head_of
from models.codec.formats import ImageFormat, identify
from models.domain.errors import MalformedRequest, ServiceError

STANDARD_INPUT = "-"


def check(names: Sequence[str]) -> None:
    """Raise WrongUsage, with a line for each source that cannot be read."""
    problems = [f"{name}: {problem}" for name in names if (problem := _problem(name))]
    if names.count(STANDARD_INPUT) > 1:
        problems.append("-: standard input can be read only once")
    if problems:
        raise WrongUsage("\ndarkroom: ".join([*problems, "nothing was done"]))


Content = bytes | str | ServiceError
"""The bytes of an image, a URL that the server fetches, or the error of a file without access."""


def content(source: Source, limit: int) -> Content:
    """Return the content of an image.

    `limit` is the largest number of bytes of a member of an archive.
    """
    name = source.name
    if is_fetched(name):
        return readable(name)
    try:
        if source.load is not None:
            return source.load(limit)
        if name == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        return Path(name).read_bytes()
    except ServiceError as error:
        return error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        return MalformedRequest(f"cannot read {name}: {reason}")


def may_wait(source: Source) -> bool:
    """Return whether reading may wait for another program: standard input, pipes, devices."""
    if source.load is not None or is_fetched(source.name):
        return False
    if source.name == STANDARD_INPUT:
        return True
    try:
        return not stat.S_ISREG(os.stat(source.name).st_mode)
    except (OSError, ValueError):
        return False


def format_of(name: str) -> ImageFormat | None:
    """Return the format of a regular file by its first bytes; None where that is not known yet."""
    if is_fetched(name) or name == STANDARD_INPUT or not Path(name).is_file():
        return None
    return identify(head_of(name))


def is_url(name: str) -> bool:
    """Return whether a source is at a URL; the fetch decides whether the URL is allowed."""
    return name.startswith(("http://", "https://"))


def is_fetched(name: str) -> bool:
    """Return whether a source is at a URL or in a bucket, and so no local file."""
    return is_url(name) or buckets.is_address(name)


def _problem(name: str) -> str | None:
    if is_fetched(name) or name == STANDARD_INPUT:
        return None
    try:
        mode = Path(name).stat().st_mode
        if stat.S_ISDIR(mode):
            return "is a folder; name the files in it"
        if stat.S_ISREG(mode):
            Path(name).open("rb").close()
        elif not os.access(name, os.R_OK):  # opening a pipe may wait, and reading takes from it
            return os.strerror(13)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        return getattr(error, "strerror", None) or str(error)
    return None
